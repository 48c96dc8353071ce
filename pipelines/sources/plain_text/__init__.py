"""Read plain text: one document per file, sentences, BookCorpus and Project Gutenberg."""
