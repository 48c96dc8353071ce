"""Render `report.html` of a dataset, and provide the components that all reports share."""
