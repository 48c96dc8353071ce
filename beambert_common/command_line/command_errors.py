"""Errors that are not beambert's own, printed as one line with an exit code."""

import signal

from beambert_common import file_errors, terminal
from beambert_common import optional_packages as packages


def interrupted(prog: str) -> int:
    """Report Ctrl-C; return the exit code."""
    terminal.print_error(f"{prog}: interrupted; run the same command again to resume")
    return 128 + signal.SIGINT


def report_stream_error(error: OSError, prog: str) -> int:
    """Report output that cannot be written, unless its reader has seen enough; return the exit code."""
    stream = terminal.failed_stream(error) or "stdout"
    terminal.silence(stream)
    if isinstance(error, BrokenPipeError):
        return 128 + signal.SIGPIPE
    reason = file_errors.reason_of(error)
    terminal.print_error(f"{prog}: error: {stream} cannot be written ({reason}); redirect it to another file")
    return 1


def error_line(error: Exception, extras: str, output: str) -> str | None:
    """Return an error of the user's input or machine as a line; None for a fault in beambert.

    Args:
        error: what was raised.
        extras: of the package that the command needs, for a package that is missing.
        output: what the command writes, for errors that name no file.
    """
    ours = ("tokenizer.", "bert_model.", "pipelines.", "trainers.", "deploy.")
    if isinstance(error, ImportError):
        return packages.import_failure(error, extras)
    if str(error).startswith("Unable to get filesystem from specified path"):
        path = str(error).rpartition("Path specified: ")[2]
        return (
            f"{path} is neither a path of this machine nor in a known kind of bucket; give a path or gs://BUCKET/NAME"
        )
    kind = type(error).__module__
    if kind.startswith(ours):
        return file_errors.without_numbers(str(error))
    if (isinstance(error, OSError) or kind != "builtins") and (line := file_errors.line_of(error, output)):
        return line
    return " ".join(file_errors.without_numbers(str(error)).split()) if isinstance(error, OSError) else None
