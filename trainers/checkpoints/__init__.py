"""Save and restore the checkpoints of a run, keep the best one, and load initial weights."""
