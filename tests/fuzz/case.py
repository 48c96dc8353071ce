"""A case of the campaign, and the judgement of its outcome."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.process import Outcome

LONGEST_ERROR = 400
_ERROR = re.compile(r"^beambert[\w -]*: error: (.*)$", re.MULTILINE)
_FLAG = re.compile(r"--?\w+")
_TRACEBACK = re.compile(
    r"^Traceback \(most recent call last\)|^  File \".*\", line \d+, in |Fatal Python error", re.MULTILINE
)
# Control characters that act on a terminal, and marks that change the direction of text.
_ESCAPE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclasses.dataclass(frozen=True)
class Case:
    """A command on a hostile input.

    Attributes:
        description: the fault of the input, in words.
        argv: the command, run in the case's folder.
        wrong: function that returns the fault in the outcome of a successful command, or None.
    """

    description: str
    argv: list[str]
    wrong: Callable[[Outcome], str | None]


def judge(case: Case, outcome: Outcome) -> tuple[str, str] | None:
    """Return the kind of a failure and its details, or None if the command behaved correctly."""
    said = outcome.stdout + outcome.stderr
    if outcome.hung:
        return "hang", said[-300:]
    if _TRACEBACK.search(said):
        return "traceback", said.strip()[-300:]
    if escape := _ESCAPE.search(said):
        return "escape", repr(said[max(0, escape.start() - 100) : escape.end() + 100])
    if outcome.code < 0 or outcome.code > 2:
        return "crash", f"exit {outcome.code}: {said[-300:]}"
    if outcome.code == 0:
        reason = case.wrong(outcome)
        return ("wrong success", reason) if reason else None
    errors = _ERROR.findall(outcome.stderr)
    if len(errors) != 1 or not outcome.stderr.rstrip("\n").endswith(errors[0]):
        return "unhelpful error", f"{len(errors)} error lines: {outcome.stderr[-300:]}"
    if len(errors[0]) > LONGEST_ERROR:
        return "unhelpful error", f"{len(errors[0])} characters: {errors[0][:200]}"
    if not all(character.isprintable() for character in errors[0]):
        return "unhelpful error", f"unprintable: {errors[0]!r}"
    if not _names_something(errors[0], case, outcome.folder):
        return "unhelpful error", f"names neither file nor flag: {errors[0]}"
    return None


def _names_something(error: str, case: Case, folder: Path) -> bool:
    """Return whether an error names a file, a flag or a word of the command line."""
    # Errors omit the middle of a long value, so that only its first characters are compared.
    words = {repr(word)[1:-1][:30] if len(word) > 1 else repr(word) for word in case.argv[1:]}
    names = {path.name for path in folder.rglob("*")} | words
    return "<folder>" in error or bool(_FLAG.search(error)) or any(name in error for name in names)
