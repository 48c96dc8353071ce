"""Tag words with entities: CoNLL column files, tag schemes, rows and entity scores."""
