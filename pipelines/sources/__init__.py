"""Find, open and decompress input files, recognize their format, and read them or ranges of them."""
