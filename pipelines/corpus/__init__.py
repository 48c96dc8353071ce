"""Turn documents into a corpus: records, sentences, partitions, Parquet files, vocabulary and `corpus.json`."""
