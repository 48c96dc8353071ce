"""Print the lines of a run, and determine at which steps it reports."""

import sys

from beambert.common import terminal

# A run writes to its log and to TensorBoard at least LEAST_REPORTS times, at intervals of at most MOST_STEPS_A_REPORT.
LEAST_REPORTS = 20
MOST_STEPS_A_REPORT = 100


def steps_a_report(num_train_steps: int) -> int:
    """Return the number of steps between two reports of a run."""
    return max(1, min(MOST_STEPS_A_REPORT, num_train_steps // LEAST_REPORTS))


def print_status(line: str) -> None:
    """Print a line and flush, so that a log file has it at once."""
    print(terminal.printable_lines(line), flush=True)


def warn(line: str) -> None:
    """Print a warning to standard error."""
    terminal.print_labeled("warning: ", line, sys.stderr)
