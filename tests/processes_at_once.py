"""Run a function in several processes at once, to test concurrent calls."""

import os
from collections.abc import Callable


def run_at_once(count: int, function: Callable[[int], object]) -> list[int]:
    """Call a function with each number below `count` in a forked process of its own, at once; return the exit codes."""
    wait, begin = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(begin)
                os.read(wait, 1)
                function(number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(wait)
    os.close(begin)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
