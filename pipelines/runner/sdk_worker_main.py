"""Run one worker process of the local runner. `worker_processes.py` starts this file; it is not imported.

It runs Beam's `sdk_worker_main`, and ends when its parent process ends. Standard input is a pipe from the parent, and
its end of file means that the parent has ended. On Linux the kernel kills the worker too, even while the worker is
stopped or in a long call into C.
"""

import os
import signal
import sys
import threading

from beambert.common import process

_PR_SET_PDEATHSIG = 1  # From <sys/prctl.h>.


def end_with_parent() -> None:
    """End this process as soon as its parent process ends.

    The kernel sends its signal when the parent's starting thread ends. That thread waits for this process, so it ends
    earlier only together with the whole parent.
    """

    def wait_for_end_of_file() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait_for_end_of_file, name="end_with_parent", daemon=True).start()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Run until the runner has no more work."""
    end_with_parent()
    process.collect_garbage_rarely()
    import logging

    # The runner reports errors; Beam's log would repeat each of them.
    logging.disable(logging.CRITICAL)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
