"""Read minimal pairs: two sentences of which one is acceptable, by paradigm.

Layouts:

- blimp: JSON Lines of BLiMP (Warstadt et al. 2020) with sentence_good, sentence_bad, UID, linguistics_term and field;
- zorro: text of Zorro (Huebner et al. 2021), a paradigm per file, with the bad sentence on each odd line and the good
  one on the next line;
- tsv: good, bad, and optionally paradigm and field, separated by tabs.
"""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Required, TypedDict

from beambert.common.typed_json import JsonError, decode
from beambert.trainers.errors import TaskDataError
from beambert.trainers.evaluation.input_files import find_files
from beambert.trainers.finetuning.tasks.utf8_files import read_text

LAYOUTS = ("blimp", "zorro", "tsv")
_LAYOUT_OF_SUFFIX = {".jsonl": "blimp", ".txt": "zorro", ".tsv": "tsv"}
# The paper counts the two paradigms of this term among those of argument structure, which makes 12 phenomena.
_TERMS = {"s-selection": "argument_structure"}
# Columns by their names in headers, without the word "sentence".
_COLUMN_OF_NAME = {
    **dict.fromkeys(("good", "acceptable", "grammatical"), "good"),
    **dict.fromkeys(("bad", "unacceptable", "ungrammatical"), "bad"),
    **dict.fromkeys(("paradigm", "uid"), "paradigm"),
}
_SENTENCE = re.compile(r"^sentences?[ _-]|[ _-]sentences?$")
_COLUMNS = (2, 4)


class MinimalPair(NamedTuple):
    """An acceptable and an unacceptable sentence.

    Attributes:
        good, bad: the sentences.
        paradigm: name of the contrast, such as "wh_island".
        field: group of paradigms, such as "island_effects"; "" where it is unknown.
        path, line: file and first line of the pair, for messages.
    """

    good: str
    bad: str
    paradigm: str
    field: str
    path: str
    line: int

    @property
    def location(self) -> str:
        """Return the file and the line."""
        return f"{self.path}, line {self.line}"


class _Record(TypedDict, total=False):
    """The fields of a line of BLiMP that are read."""

    sentence_good: Required[str]
    sentence_bad: Required[str]
    UID: str | None
    linguistics_term: str | None
    field: str | None


def find_pair_files(flag: str, paths: Sequence[str], layout: str | None = None) -> list[Path]:
    """Return the files of minimal pairs.

    Args:
        flag, paths, layout: as for `read_pairs`.

    Raises:
        TaskDataError: as for `find_files`.
    """
    return find_files(flag, paths, [suffix for suffix, name in _LAYOUT_OF_SUFFIX.items() if layout in (None, name)])


def read_pairs(flag: str, paths: Sequence[str], layout: str | None = None) -> list[MinimalPair]:
    """Read the minimal pairs of files.

    Args:
        flag: name of the flag of the paths, for messages.
        paths: files, directories and glob patterns.
        layout: one of `LAYOUTS`; None to use that of the suffix: .jsonl, .txt or .tsv.

    Returns:
        The pairs in the order of the files, at least one.

    Raises:
        TaskDataError: a file is missing, has another layout or an empty sentence, or all files are empty.
    """
    pairs: list[MinimalPair] = []
    for path in find_pair_files(flag, paths, layout):
        layout_of_file = layout or _LAYOUT_OF_SUFFIX.get(path.suffix.lower())
        if layout_of_file is None:
            raise TaskDataError(f"{flag} {path}: the suffix states no layout: set it with --pairs_layout")
        # Not str.splitlines, which also splits at characters that a sentence may contain.
        lines = [line.removesuffix("\r") for line in read_text(path).split("\n")]
        for pair in _READERS[layout_of_file](path, lines):
            _require_sentences(pair)
            pairs.append(pair)
    if not pairs:
        raise TaskDataError(f"{flag} {' '.join(paths)} has no minimal pairs: check the files")
    return pairs


def sample_pairs(pairs: Sequence[MinimalPair], count: int | None) -> list[MinimalPair]:
    """Return a sample of pairs, spread evenly over the paradigms, in their order; all pairs for a count of None.

    The sentences determine which pairs of a paradigm are selected: those with the smallest hashes.
    """
    if count is None or count >= len(pairs):
        return list(pairs)
    of_paradigm: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        of_paradigm[pair.field, pair.paradigm].append(index)
    ranked = (
        (rank, group, index)
        for group, indices in sorted(of_paradigm.items())
        for rank, index in enumerate(sorted(indices, key=lambda index: (_content_hash(pairs[index]), index)))
    )
    return [pairs[index] for index in sorted(index for _, _, index in sorted(ranked)[:count])]


def _content_hash(pair: MinimalPair) -> bytes:
    return hashlib.blake2b(f"{pair.good}\n{pair.bad}".encode(errors="surrogatepass"), digest_size=16).digest()


def _name_of(path: Path) -> str:
    r"""Return a file name without its suffix, with `\xNN` for each byte that is not UTF-8."""
    return os.fsencode(path.stem).decode("utf-8", "backslashreplace")


def _require_sentences(pair: MinimalPair) -> None:
    if not pair.good.strip() or not pair.bad.strip():
        raise TaskDataError(f"{pair.location}: a sentence is empty: remove the pair, or restore the sentence")


def _read_blimp(path: Path, lines: Sequence[str]) -> Iterator[MinimalPair]:
    name = _name_of(path)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = decode(line.encode(), _Record)
        except JsonError as error:
            raise TaskDataError(
                f"{path}, line {number}: {error}: each line must be an object with sentence_good and sentence_bad"
            ) from error
        term = record.get("linguistics_term")
        yield MinimalPair(
            record["sentence_good"],
            record["sentence_bad"],
            record.get("UID") or name,
            _TERMS.get(term, term) if term else record.get("field") or "",
            str(path),
            number,
        )


def _read_zorro(path: Path, lines: Sequence[str]) -> Iterator[MinimalPair]:
    count = len(lines)
    while count and not lines[count - 1].strip():
        count -= 1
    if count % 2:
        raise TaskDataError(
            f"{path} has {count:,} lines, an odd number: each pair must be a line with the bad sentence, then a line "
            "with the good one"
        )
    name = _name_of(path)
    # Files of Zorro are named FIELD-PARADIGM.txt.
    field = name.partition("-")[0] if "-" in name else ""
    for number, (bad, good) in enumerate(zip(lines[:count:2], lines[1:count:2], strict=True)):
        yield MinimalPair(good, bad, name, field, str(path), 2 * number + 1)


def _read_tsv(path: Path, lines: Sequence[str]) -> Iterator[MinimalPair]:
    name = _name_of(path)
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if not line.strip() or (number == 1 and _is_header(path, cells)):
            continue
        if not _COLUMNS[0] <= len(cells) <= _COLUMNS[1]:
            raise TaskDataError(
                f"{path}, line {number} has {len(cells)} columns: must be good, bad, and optionally paradigm and "
                "field, separated by tabs"
            )
        good, bad, paradigm, field = (*cells, "", "")[:4]
        yield MinimalPair(good, bad, paradigm.strip() or name, field.strip(), str(path), number)


def _is_header(path: Path, cells: Sequence[str]) -> bool:
    """Return whether the first line of a file is a header. Raise TaskDataError for a header of other columns."""
    columns = [_COLUMN_OF_NAME.get(_SENTENCE.sub("", cell.strip().lower())) for cell in cells]
    if columns[:2] == ["good", "bad"]:
        return True
    if {"good", "bad"} <= set(columns) or columns[2:3] == ["paradigm"]:
        raise TaskDataError(
            f"{path}, line 1 is a header with the columns {', '.join(cell.strip() for cell in cells)}: must be good, "
            "bad, and optionally paradigm and field: reorder or rename the columns"
        )
    return False


_READERS = {"blimp": _read_blimp, "zorro": _read_zorro, "tsv": _read_tsv}
