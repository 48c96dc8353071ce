"""The process of a command: Ctrl-C before and after the command runs, its end, and Python processes that it starts.

Python's defaults are not sufficient. Ctrl-C during imports prints a traceback or is caught by a library, and in a
callback of the garbage collector it is printed and ignored. When the interpreter is finalized, it stops threads of
TensorFlow and gRPC that enter Python, with the locks they hold. The process may then hang, for example on a thread that
prefetches training data.
"""

import atexit
import functools
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

_MESSAGE = b"beambert: interrupted; run the same command again to resume\n"
# Exit codes above are those of a command that a signal ended.
_SIGNALED = 128
_INTERRUPTED = _SIGNALED + signal.SIGINT


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    os.write(2, _MESSAGE)
    os._exit(_INTERRUPTED)


def is_command() -> bool:
    """Return whether this process is the command rather than a program that imports it."""
    directory, name = os.path.split(sys.argv[0])
    if name == "__main__.py":  # `python -m beambert`
        name = os.path.basename(directory)  # noqa: PTH119
    return name.partition(".")[0] == "beambert"


def begin_startup() -> None:
    """Make Ctrl-C end the process with one line, before anything is written. An ignored Ctrl-C stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


if is_command():
    begin_startup()


def end_startup() -> None:
    """Make Ctrl-C raise KeyboardInterrupt; called before the command writes anything."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is a Ctrl-C that a library (pybind11, TensorFlow) has converted."""
    seen: set[int] = set()
    chain: BaseException | None = error
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        if isinstance(chain, KeyboardInterrupt) or "KeyboardInterrupt" in str(chain):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def collect_garbage_rarely() -> None:
    """Let Python search for reference cycles once in 100,000 new objects instead of 700.

    The imports of Beam and TensorFlow make many objects that live as long as the process. The threshold saves 7 % of
    the CPU time of a job of 62 MB.
    """
    gc.set_threshold(100_000)


def repeat_lost_interrupt(unraisable: "sys.UnraisableHookArgs") -> None:
    """Repeat a Ctrl-C that Python ignored in a callback of the garbage collector or a destructor.

    A hook for `sys.unraisablehook`.
    """
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    # Not inside this hook, where it would be ignored again.
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


def ends_process(main: Callable[[list[str] | None], int]) -> Callable[..., int]:
    """Decorate a main function of argv: without arguments, as a console script, it ends the process.

    The `atexit` functions run and standard output is flushed, but the interpreter is not finalized. After a signal, its
    threads are not joined either.
    """

    @functools.wraps(main)
    def main_of_process(argv: list[str] | None = None) -> int:
        if argv is not None:
            return main(argv)
        code = 1
        sys.unraisablehook = repeat_lost_interrupt

        def leave() -> None:
            os._exit(_flush(code))

        def leave_at_once(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            leave()

        # The first registered function runs last.
        atexit.register(leave)
        try:
            code = main(None)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            if code <= _SIGNALED:
                raise
        except KeyboardInterrupt:
            # A second Ctrl-C, while the first one was handled.
            os.write(2, _MESSAGE)
            code = _INTERRUPTED
        finally:
            if signal.getsignal(signal.SIGINT) in (_end, signal.default_int_handler):
                signal.signal(signal.SIGINT, leave_at_once)
        if code > _SIGNALED:
            # Python first waits for all threads, and one that an interrupt left may never end, such as Beam's sampler.
            atexit._run_exitfuncs()
        return code

    return main_of_process


def _flush(code: int) -> int:
    """Flush the standard streams; return the exit code, or 1 instead of 0 where output was lost."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            pass
        except (OSError, ValueError, AttributeError):
            code = code or 1
    return code


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs this Python with arguments, without the current directory in the search path.

    The current directory may have files of others. With `python -m`, Python would import a `json` there.
    """
    return [sys.executable, "-P", *arguments]


def python_environment() -> dict[str, str]:
    """Return the environment variables of this process, with its module search path as PYTHONPATH.

    A process with this environment imports the same modules as this one.
    """
    # An empty path is the current directory of an interactive session, whose modules are the user's own.
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109
    return {**os.environ, "PYTHONPATH": paths}
