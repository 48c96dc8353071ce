"""Report errors of libraries and of the system as one line with an exit code."""

import signal

from beambert.common import file_errors, terminal
from beambert.common import optional_packages as packages


def interrupted(prog: str) -> int:
    """Print a line about Ctrl-C and return the exit code."""
    terminal.print_error(f"{prog}: interrupted; run the same command again to resume")
    return 128 + signal.SIGINT


def report_stream_error(error: OSError, prog: str) -> int:
    """Print an error about a standard stream, except for a closed pipe; return the exit code."""
    stream = terminal.failed_stream(error) or "stdout"
    terminal.silence(stream)
    if isinstance(error, BrokenPipeError):
        return 128 + signal.SIGPIPE
    reason = file_errors.reason_of(error)
    terminal.print_error(f"{prog}: error: {stream} cannot be written ({reason}); redirect it to another file")
    return 1


def error_line(error: Exception, extras: str, output: str) -> str | None:
    """Return one line for an error of the input or the system; None for an internal error.

    Args:
        error: the exception.
        extras: extras of the package that the command needs, for a missing package.
        output: output of the command, for errors that contain no file name.
    """
    if isinstance(error, ImportError):
        return packages.import_failure(error, extras)
    if isinstance(error, MemoryError):
        reason = f" ({' '.join(str(error).split())})" if str(error) else ""
        return f"not enough memory{reason}; free some memory, or use a machine with more"
    if str(error).startswith("Unable to get filesystem from specified path"):
        path = str(error).rpartition("Path specified: ")[2]
        return f"{path} is neither a local path nor a supported URL; use a local path or gs://BUCKET/NAME"
    kind = type(error).__module__
    if kind.startswith("beambert."):
        return file_errors.without_numbers(str(error))
    if (isinstance(error, OSError) or kind != "builtins") and (line := file_errors.line_of(error, output)):
        return line
    return " ".join(file_errors.without_numbers(str(error)).split()) if isinstance(error, OSError) else None
