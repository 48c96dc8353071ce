"""Read and write files: atomic writes, locks, output directories, manifest schemas, TFRecord and cloud access."""
