"""Fork the worker processes of the local runner. `worker_server.py` starts this file as a program.

It imports Beam and the pipelines once, while the main process imports them too, and the forked workers share their
memory. Standard input is a socket of the main process. A message is the environment of a worker in JSON, after its
length, with one or two descriptors: a pipe for the exit code of the worker, and the file of progress counts.

A worker ends when this process ends, which ends when the main process ends: they read an end of file. On Linux the
kernel also kills them, even while they are stopped or in a long call into C.
"""

import contextlib
import gc
import importlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import traceback
import warnings
from types import FrameType
from typing import NoReturn

from beambert.common import process

_PR_SET_PDEATHSIG = 1  # From <sys/prctl.h>.
_PRELOADED = ("beambert.pipelines.transforms", "apache_beam.runners.worker.sdk_worker_main")
# Bytes of the length of a message, in network byte order.
LENGTH = 4

# Process ID of each running worker, with the pipe for its exit code.
_pipes: dict[int, int] = {}


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent process ends.

    The signal comes when the parent's starting thread ends, which waits for this process.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def report_ends(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Write the exit code of each worker that has ended to its pipe. A handler of SIGCHLD."""
    with contextlib.suppress(ChildProcessError):
        while True:
            worker, status = os.waitpid(-1, os.WNOHANG)
            if not worker:
                return
            pipe = _pipes.pop(worker)
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(pipe)


def receive(main_process: socket.socket) -> tuple[dict[str, str], list[int]] | None:
    """Return the environment and the descriptors of the next worker, or None at the end of the main process."""
    length, descriptors, _, _ = socket.recv_fds(main_process, LENGTH, 2)
    message = main_process.recv(int.from_bytes(length), socket.MSG_WAITALL)
    return (json.loads(message), descriptors) if message else None


def run_worker(environment: dict[str, str], counts: list[int], alive: int) -> NoReturn:
    """Run a worker in this new process until the runner has no more work, and end the process.

    Args:
        environment: Environment variables that configure Beam's `sdk_worker_main`.
        counts: Descriptor of the file of progress counts, or empty.
        alive: Descriptor of a pipe that is closed at the end of the parent process.
    """

    def wait_for_end_of_file() -> None:
        os.read(alive, 1)
        os._exit(1)

    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        end_with_parent()
        threading.Thread(target=wait_for_end_of_file, name="wait_for_end_of_file", daemon=True).start()
        os.environ.clear()
        os.environ.update(environment)
        from apache_beam.runners.worker import sdk_worker_main

        from beambert.pipelines.io import job_progress

        job_progress.use(*counts)
        sdk_worker_main.main([])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # The interpreter is not finalized, which takes 0.4 s.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)


def main() -> None:
    """Fork a worker for each message."""
    end_with_parent()
    process.collect_garbage_rarely()
    # The runner reports errors; Beam's log would repeat each of them.
    logging.disable(logging.CRITICAL)
    main_process = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in _PRELOADED:
        importlib.import_module(name)
    # Collections would copy the shared memory.
    gc.freeze()
    # Python warns of forks in a process with threads. Those of OpenBLAS and jemalloc, which handle forks, are the only
    # ones: numpy and pyarrow start them.
    warnings.simplefilter("ignore", DeprecationWarning)
    alive, open_while_alive = os.pipe()
    signal.signal(signal.SIGCHLD, report_ends)
    while request := receive(main_process):
        environment, (pipe, *counts) = request
        # The handler must not run before the worker is in `_pipes`.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        try:
            worker = os.fork()
        except OSError as error:
            sys.exit(f"it cannot be started: {error.strerror}; reduce --direct_num_workers")
        if not worker:
            main_process.close()
            for descriptor in (open_while_alive, pipe, *_pipes.values()):
                os.close(descriptor)
            run_worker(environment, counts, alive)
        _pipes[worker] = pipe
        for descriptor in counts:
            os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    os._exit(1)


if __name__ == "__main__":
    main()
