"""Render `report.html` of a dataset, and the parts of a page that other reports share."""
