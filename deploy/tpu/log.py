"""Print the log of a command on a TPU VM while it grows, across lost connections."""

import time

from beambert.deploy.tpu.interrupts import print_line
from beambert.deploy.tpu.job_folder import DIED
from beambert.deploy.tpu.service import Tpu
from beambert.pipelines.errors import SubmitError

# Maximum number of consecutive connections that end within a minute while the TPU VM exists.
_MAX_LOST_CONNECTIONS = 20


class Log:
    """The log of the command on the chief, printed as it grows.

    Args:
        tpu: the TPU.
        poll_seconds: seconds without a line after which the state of the TPU is checked.
    """

    def __init__(self, tpu: Tpu, poll_seconds: float) -> None:
        self._tpu, self._poll_seconds = tpu, poll_seconds
        self._seen = 0

    def follow(self, end: float = float("inf")) -> int:
        """Print the log until the command ends, and return its exit code.

        Args:
            end: time on the monotonic clock after which 255 is returned.

        Raises:
            Preempted: the TPU was preempted.
            SubmitError: the TPU VM is unreachable.
        """
        lost = 0
        while lost < _MAX_LOST_CONNECTIONS:
            begun = time.monotonic()
            with self._tpu.connection(f"follow {self._seen}", self._poll_seconds) as lines:
                for line in lines:
                    if time.monotonic() > end:
                        return DIED
                    if line is None:
                        self._tpu.check()
                    elif (code := self._show(line)) is not None:
                        return code
            self._tpu.check()
            lost = lost + 1 if time.monotonic() - begun < 60 else 0
            time.sleep(min(5.0, self._poll_seconds))
        raise SubmitError(f"{self._tpu.nodes[0]} exists, but ssh cannot connect to it: {lines.errors.strip()[-300:]}")

    def _show(self, line: str) -> int | None:
        """Print a line unless it was printed before; return the exit code where the line is the end marker."""
        number, _, text = line.partition("\t")
        if number == "end":
            return int(text)
        if number.isdigit() and int(number) > self._seen:
            print_line(text)
            self._seen = int(number)
        return None
