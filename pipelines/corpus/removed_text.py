"""Bytes of text removed by each rule, counted from the documents, and warnings about inputs that lose most of it."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.cleaning.rules import SKIPPABLE, utf8_bytes
from pipelines.corpus.records import Record

# An input is worth a warning when it loses a larger share of its text.
_MUCH = 0.5
_MOST_RULES = 3
_MOST_FILES = 100
_MOST_FILES_PRINTED = 5


@dataclasses.dataclass
class Loss:
    """The text of an input.

    Attributes:
        kept: bytes (UTF-8) of the text that stays.
        lost: bytes that rules left out, by the rule's name.
    """

    kept: int = 0
    lost: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, record: Record) -> None:
        """Add a document, cleaned and with the reason for which it is rejected, or none."""
        size = utf8_bytes(record.text)
        if record.reason:
            self.lost[record.reason] += size
        else:
            self.kept += size
        if record.work:
            self.lost.update(json.loads(record.work).get("lost", {}))

    def merge(self, other: "Loss") -> None:
        """Add another part of the same input."""
        self.kept += other.kept
        self.lost.update(other.lost)

    @property
    def share(self) -> float:
        """Return the share of the text that is lost."""
        lost = self.lost.total()
        return lost / (self.kept + lost) if lost else 0.0

    @property
    def is_much(self) -> bool:
        """Return whether more than half of the text is lost."""
        return self.share > _MUCH


def losses_of_files(losses: Iterable[tuple[str, str, bool, Loss]]) -> list[dict[str, Any]]:
    """Return the files that lost more than half of their text in cleaning, those that lost most bytes first.

    Args:
        losses: (path, --input pattern, whether it is all of the file, what was lost) of every file, or part of one.

    Returns:
        {"file", "input", "kept", "lost": {rule: bytes}} of at most 100 files.
    """
    files: dict[tuple[str, str], Loss] = {}
    for path, origin, whole, loss in losses:
        if not whole or loss.is_much:
            files.setdefault((path, origin), Loss()).merge(loss)
    much = sorted((-loss.lost.total(), file) for file, loss in files.items() if loss.is_much)
    return [
        {"file": file[0], "input": file[1], "kept": files[file].kept, "lost": dict(sorted((+files[file].lost).items()))}
        for _, file in much[:_MOST_FILES]
    ]


def loss_warnings(counts: Mapping[str, Any], rejected: str) -> list[str]:
    """Return a line for each input that lost more than half of its text, and for files of other inputs that did.

    Args:
        counts: of corpus.json; manifests of older versions have no bytes lost.
        rejected: where the text that is left out is listed, such as "data/rejected/".
    """
    lines = []
    named = set()
    for name, size in sorted(counts.get("inputs", {}).items()):
        loss = Loss(size.get("bytes", 0), Counter(size.get("bytes_lost", {})))
        if loss.is_much:
            lines.append(f"--input {name}: {_described(loss, rejected)}.")
            named.add(name)
    # Where a whole input is lost, its files need no line each.
    files = [file for file in counts.get("files_mostly_rejected", []) if file["input"] not in named]
    for file in files[:_MOST_FILES_PRINTED]:
        lines.append(f"{file['file']}: {_described(Loss(file['kept'], Counter(file['lost'])), rejected)}.")
    if len(files) > _MOST_FILES_PRINTED:
        more = len(files) - _MOST_FILES_PRINTED
        lines.append(f"{more:,} more files lost more than half of their text; corpus.json names them.")
    return lines


def _described(loss: Loss, rejected: str) -> str:
    """Return the share of the text that is lost, the rules that took most of it, and what to do."""
    total = loss.kept + loss.lost.total()
    rules = sorted(loss.lost.items(), key=lambda item: (-item[1], item[0]))[:_MOST_RULES]
    by_rule = ", ".join(f"{size / total:.0%} by {rule}" for rule, size in rules if size)
    # Equal texts, bad records and the like cannot be switched off.
    flags = ", and --skip_rules or the rule's threshold if that is not meant" if rules[0][0] in SKIPPABLE else ""
    return f"{loss.share:.0%} of its text was left out: {by_rule}; see {rejected}{flags}"
