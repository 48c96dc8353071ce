"""Start Python processes that import the same modules as this one, and none from the current directory.

The current directory may have files of others. With `python -m`, Python would import a `json` there.
"""

import os
import sys


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs this Python with arguments, without the current directory in the search path."""
    return [sys.executable, "-P", *arguments]


def python_environment() -> dict[str, str]:
    """Return the environment variables of this process, with its module search path as PYTHONPATH."""
    # An empty path is the current directory of an interactive session, whose modules are the user's own.
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109
    return {**os.environ, "PYTHONPATH": paths}
