"""Read formats with fields: JSON lines, CSV and TSV tables, Parquet."""
