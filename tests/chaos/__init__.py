"""Disturbances of real beambert processes: kills, full disks, vanished files; `python -m tests.chaos --help`."""
