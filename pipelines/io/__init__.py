"""Read and write files: atomic writes, locks, output directories, progress, schemas, TFRecord, and cloud access."""
