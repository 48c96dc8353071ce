"""Submit a data command to Google Cloud Dataflow, and make the metadata of its flex templates."""
