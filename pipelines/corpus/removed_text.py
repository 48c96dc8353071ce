"""Count the bytes of text that each rule removes, and warn about inputs that lose most of their text."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from beambert.pipelines.cleaning.rules import SKIPPABLE, utf8_bytes
from beambert.pipelines.corpus.records import Record
from beambert.pipelines.documents import LICENSE

# Fraction of removed text above which an input gets a warning.
_WARNING_FRACTION = 0.5
_MAX_RULES = 3
_MAX_FILES = 100
_MAX_FILES_PRINTED = 5


@dataclasses.dataclass
class Loss:
    """Kept and removed text of an input.

    Attributes:
        kept: bytes (UTF-8) of text kept.
        lost: bytes of text removed, by rule.
    """

    kept: int = 0
    lost: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, record: Record) -> None:
        """Add a cleaned document, which may be rejected."""
        size = utf8_bytes(record.text)
        if record.reason:
            self.lost[record.reason] += size
        else:
            self.kept += size
        if record.work:
            self.lost.update(json.loads(record.work).get("lost", {}))

    def merge(self, other: "Loss") -> None:
        """Add the counts of another part of the same input."""
        self.kept += other.kept
        self.lost.update(other.lost)

    @property
    def lost_text(self) -> Counter[str]:
        """Return the bytes of text removed, by rule, without licenses."""
        return Counter({rule: size for rule, size in self.lost.items() if rule != LICENSE})

    @property
    def share(self) -> float:
        """Return the fraction of the text that is removed; the license of a file is not text."""
        lost = self.lost_text.total()
        return lost / (self.kept + lost) if lost else 0.0

    @property
    def is_much(self) -> bool:
        """Return whether more than half of the text is removed."""
        return self.share > _WARNING_FRACTION


def losses_of_files(losses: Iterable[tuple[str, str, bool, Loss]]) -> list[dict[str, Any]]:
    """Return the files that lost more than half of their text in cleaning, by descending loss in bytes.

    Args:
        losses: (path, --input pattern, whether the split is the complete file, loss) of every file split.

    Returns:
        {"file", "input", "kept", "lost": {rule: bytes}} of at most 100 files.
    """
    files: dict[tuple[str, str], Loss] = {}
    for path, origin, is_complete, loss in losses:
        if not is_complete or loss.is_much:
            files.setdefault((path, origin), Loss()).merge(loss)
    large_losses = sorted((-loss.lost_text.total(), file) for file, loss in files.items() if loss.is_much)
    return [
        {"file": file[0], "input": file[1], "kept": files[file].kept, "lost": dict(sorted((+files[file].lost).items()))}
        for _, file in large_losses[:_MAX_FILES]
    ]


def loss_warnings(counts: Mapping[str, Any], rejected: str) -> list[str]:
    """Return a warning for each input that lost more than half of its text, then for such files of other inputs.

    Args:
        counts: counts of corpus.json.
        rejected: directory with the removed text, such as "data/rejected/".
    """
    lines = []
    named = set()
    for name, size in sorted(counts.get("inputs", {}).items()):
        loss = Loss(size.get("bytes", 0), Counter(size.get("bytes_lost", {})))
        if loss.is_much:
            lines.append(f"--input {name}: {_described(loss, rejected)}")
            named.add(name)
    # Files of inputs that already have a warning are not listed.
    files = [file for file in counts.get("files_mostly_rejected", []) if file["input"] not in named]
    for file in files[:_MAX_FILES_PRINTED]:
        lines.append(f"{file['file']}: {_described(Loss(file['kept'], Counter(file['lost'])), rejected)}")
    if len(files) > _MAX_FILES_PRINTED:
        more = len(files) - _MAX_FILES_PRINTED
        lines.append(f"{more:,} more files lost more than half of their text; see files_mostly_rejected in corpus.json")
    return lines


def _described(loss: Loss, rejected: str) -> str:
    """Return the fraction of text removed, the rules that removed most of it, and what to do."""
    total = loss.kept + loss.lost_text.total()
    rules = sorted(loss.lost_text.items(), key=lambda item: (-item[1], item[0]))[:_MAX_RULES]
    by_rule = ", ".join(f"{size / total:.0%} by {rule}" for rule, size in rules if size)
    # Rules such as duplicate and bad records cannot be disabled.
    flags = "; if this is not intended, use --skip_rules or change the threshold" if rules[0][0] in SKIPPABLE else ""
    share = "more than 99%" if loss.kept and loss.share >= 0.995 else f"{loss.share:.0%}"
    return f"cleaning removed {share} of the text: {by_rule}; see {rejected}{flags}"
