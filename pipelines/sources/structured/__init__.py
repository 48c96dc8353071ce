"""Read formats with fields: JSON Lines, JSON, CSV, TSV and Parquet."""
