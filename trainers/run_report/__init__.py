"""Render `report.html` of a run or a sweep: curves, scores, examples, warnings."""
