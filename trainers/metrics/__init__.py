"""Compute metrics of predictions, their chance levels, and warnings about scores that show nothing."""
