"""One worker process of the local runner, started by `worker_processes.py`; run as a file, not imported.

It is Beam's `sdk_worker_main`, made to end with the process that started it. Standard input is a pipe whose other end
that process holds: its end of file means that the process is gone. On Linux the kernel kills the worker too, which
works while the worker is stopped or within a long call into C.
"""

import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1  # From <sys/prctl.h>.


def end_with_starter() -> None:
    """End this process as soon as the process that started it is gone.

    The kernel's signal comes at the end of the thread that started this process. That thread waits for this process, so
    it ends before only with the whole process.
    """

    def wait_for_end_of_file() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait_for_end_of_file, name="end_with_starter", daemon=True).start()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Run until the engine has no more work."""
    end_with_starter()
    import logging

    # The engine reports errors itself; Beam would print each a second time.
    logging.disable(logging.CRITICAL)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
