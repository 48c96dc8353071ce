"""Optimize variables: optimizers, learning rates, the schedule of stages, and the flags of all three."""
