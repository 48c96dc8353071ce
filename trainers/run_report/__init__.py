"""Collect the content of `report.html` of a run or a sweep: curves, metrics, examples, warnings."""
