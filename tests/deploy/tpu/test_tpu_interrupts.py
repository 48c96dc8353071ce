"""Test that a signal while the log is printed does not split a line."""

import contextlib
import io
import os
import signal

import pytest

from deploy.tpu.interrupts import Interrupted, Signals, print_line


class InterruptedOutput(io.StringIO):
    """A text stream after whose first write the process receives SIGTERM."""

    def write(self, text):
        first = not self.getvalue()
        length = super().write(text)
        if first:
            os.kill(os.getpid(), signal.SIGTERM)
        return length


def test_a_signal_while_a_line_is_printed_leaves_it_whole():
    output = InterruptedOutput()
    with contextlib.redirect_stdout(output), Signals().as_interrupts():
        with pytest.raises(Interrupted):
            print_line("step 15")
        print_line("Stopping")
    assert output.getvalue().splitlines() == ["step 15", "Stopping"]
