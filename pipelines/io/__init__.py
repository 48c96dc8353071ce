"""Read and write files safely: atomic writes, directory locks, output directories, TFRecord framing, cloud access."""
