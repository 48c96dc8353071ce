"""Define the configuration of training runs: a frozen dataclass per command, with the flags and `run.json` fields."""
