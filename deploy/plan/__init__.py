"""Estimate the size, the time and the cost of a build and of a training before either starts."""
