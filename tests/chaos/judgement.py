"""Judge how a command ended: its exit code, its error line and its output."""

import re
import signal

MAX_LINE_CHARACTERS = 400
_ERROR = re.compile(r"^beambert[ \w-]*: error: ", re.MULTILINE)
# Output that a user should not see: tracebacks, native crashes and the logs of libraries.
_NOISE = {
    "traceback": re.compile(r"^\s*Traceback \(most recent call last\)", re.MULTILINE),
    "crash": re.compile(r"Fatal Python error|Segmentation fault|terminate called|core dumped"),
    "ignored exception": re.compile(r"^Exception ignored |^Exception in thread", re.MULTILINE),
    "log of a library": re.compile(
        r"^(?:[WEF]\d{4} \d\d:|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [WEF] |(?:WARNING|ERROR|CRITICAL):\w+)",
        re.MULTILINE,
    ),
    "bare errno": re.compile(r"\[Errno \d+\]|\(os error \d+\)"),
}
_ERROR_CODES = (1, 2)


def output_errors(text: str) -> list[str]:
    """Return the parts of the printed text that a user should not see."""
    return [f"{name}: {_line_at(text, match.start())}" for name, sign in _NOISE.items() if (match := sign.search(text))]


def error_lines(text: str) -> list[str]:
    """Return the lines of a log that are errors of beambert."""
    return [line for line in text.splitlines() if _ERROR.match(line)]


def ending_errors(code: int, text: str, *, signaled: int = 0, killed: bool = False) -> list[str]:
    """Return the faults of an exit code and of the errors that were printed with it.

    Args:
        code: exit code, as in `subprocess.Popen.returncode`.
        text: output of the command.
        signaled: the signal that was sent to end it, 0 for none.
        killed: whether one of its processes was killed.
    """
    if code == 0:
        return [f"exit code 0 with an error: {line[:200]}" for line in error_lines(text)]
    if code == -signal.SIGKILL and killed:
        return []
    if signaled and code in (-signaled, 128 + signaled, 128 + signal.SIGINT):
        return []
    lines = error_lines(text)
    if code not in _ERROR_CODES:
        return [f"exit code {code}: {_last_line(text)}"]
    if len(lines) != 1:
        return [f"{len(lines)} error lines with exit code {code}: {_last_line(text)}"]
    errors = []
    if len(lines[0]) > MAX_LINE_CHARACTERS:
        errors.append(f"an error of {len(lines[0]):,} characters: {lines[0][:200]}")
    if text.rstrip("\n").splitlines()[-1] != lines[0]:
        errors.append(f"more lines after the error: {_last_line(text)}")
    return errors


def _line_at(text: str, start: int) -> str:
    return text[start:].lstrip().partition("\n")[0][:200] + " ... " + _last_line(text)


def _last_line(text: str) -> str:
    lines = text.rstrip("\n").splitlines()
    return lines[-1][:240] if lines else "no output"
