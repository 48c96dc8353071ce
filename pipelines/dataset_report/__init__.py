"""Describe a dataset: content of `report.html`, `README.md` and `croissant.json`, and warnings."""
