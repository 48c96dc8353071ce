"""The process of a command: Ctrl-C before the command runs and after it has ended, and the end of the process.

Python handles none of these well. Ctrl-C while modules are imported shows a traceback, and a library may catch it;
within a callback of the garbage collector it is printed and forgotten. When the interpreter is finalized, a thread of
TensorFlow or gRPC that enters Python is stopped with the locks it holds. The process may then wait for it for ever. A
thread that reads training data ahead is an example.
"""

import atexit
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

_MESSAGE = b"beambert: interrupted; run the same command again to resume\n"
_INTERRUPTED = 128 + signal.SIGINT


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    os.write(2, _MESSAGE)
    os._exit(_INTERRUPTED)


def is_command() -> bool:
    """Return whether this process is the command rather than a program that imports it."""
    return os.path.basename(sys.argv[0]).partition(".")[0] == "beambert"  # noqa: PTH119


def begin_startup() -> None:
    """Make Ctrl-C end the process with one line; nothing has been written yet. An ignored Ctrl-C stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


if is_command():
    begin_startup()


def end_startup() -> None:
    """Make Ctrl-C raise KeyboardInterrupt; called before the command writes anything."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is Ctrl-C that a library (pybind11, TensorFlow) has turned into another one."""
    seen: set[int] = set()
    chain: BaseException | None = error
    while chain is not None and id(chain) not in seen:
        seen.add(id(chain))
        if isinstance(chain, KeyboardInterrupt) or "KeyboardInterrupt" in str(chain):
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def repeat_lost_interrupt(unraisable: "sys.UnraisableHookArgs") -> None:
    """Repeat a Ctrl-C that came within a callback (of the garbage collector, a destructor), where Python drops it.

    A hook for `sys.unraisablehook`.
    """
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    # Not within this hook, where it would be dropped again.
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


def ends_process(main: Callable[[list[str] | None], int]) -> Callable[..., int]:
    """Decorate a main function of argv: called without, as a console script is, it ends the process.

    The functions of `atexit` run and standard output is flushed, but the interpreter is not finalized.
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

        # The first that is registered runs last.
        atexit.register(leave)
        try:
            code = main(None)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            raise
        finally:
            if signal.getsignal(signal.SIGINT) in (_end, signal.default_int_handler):
                signal.signal(signal.SIGINT, leave_at_once)
        return code

    return main_of_process


def _flush(code: int) -> int:
    """Flush the standard streams; return the exit code, 1 instead of 0 where output was lost."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            pass
        except (OSError, ValueError, AttributeError):
            code = code or 1
    return code
