"""Test the seconds of waiting for batches that TensorFlow steps report."""

from tests import forked
from tests.trainers.backends.waiting_seconds import write_waiting_seconds

STEPS, SECONDS = 3, 0.5


def test_a_step_is_not_counted_as_waiting(tmp_path):
    # A machine with one CPU has one thread for the operations of a step.
    output, log = tmp_path / "seconds", tmp_path / "log"
    assert forked.run(log, write_waiting_seconds, output, STEPS, SECONDS, timeout=600) == 0, log.read_text()
    assert 0 <= float(output.read_text()) < STEPS * SECONDS
