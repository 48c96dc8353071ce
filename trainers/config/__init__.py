"""The configuration of training runs: one frozen dataclass for each command, as its flags and `run.json` have it."""
