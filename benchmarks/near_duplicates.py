"""Measure near-duplicate removal on generated documents: recall and precision against exact Jaccard, time and growth.

    python benchmarks/near_duplicates.py ../shared/data [NUMBER ...]

Documents have 100 to 300 words, drawn from the running words of English Wikipedia. A fifth of them are in families of
two to five: each is a copy of an earlier one in which a run of words is replaced. Of two documents of a family, the
Jaccard similarity of the 5-gram shingles is computed exactly; other documents share no shingles.

Recall at 0.8: of the pairs with a similarity of 0.8 or more, those of which at most one document stays. Precision: of
the removed documents, those with another document of the family at a similarity of 0.7 or more. "excess" is the number
of documents that stay although their cluster, by exact similarities of 0.7 or more, has a smaller ID.

MB/s is UTF-8 text per CPU second, for beambert without the generation of the text. PEERS=PYTHON is an interpreter with
datatrove and text-dedup; both are then measured on the same text, up to 100,000 documents, start and files included.
"""

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from beambert.pipelines.cleaning.deduplication import BANDS, band_keys, join_links, near_duplicates, signature, sketch
from beambert.pipelines.documents import identity
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file

NUM_GROUPS = 64
FAMILY_SHARE = 0.2
PEER_DOCUMENTS = 100_000
PEERS = ("datatrove", "text-dedup")


class Pair(NamedTuple):
    """Two documents of a family, and their exact similarity."""

    first: int
    second: int
    similarity: float


def running_words(data: Path) -> np.ndarray:
    """Return the running words of a file of Wikipedia, about a million, that every tokenizer takes as one word."""
    documents = read_file(str(data / "wiki-extracted/enwiki-2015-00.bz2"), ReadOptions())
    words = [word for document in documents for word in document.text.split()]
    return np.array([word for word in words if word.isascii() and word.isalpha() and len(word) <= 20])


def shingles(words: np.ndarray) -> set[tuple[str, ...]]:
    """Return the 5-grams of words, without case."""
    lower = [word.lower() for word in words]
    return set(zip(*(lower[start:] for start in range(5)), strict=False))


def families(vocabulary: np.ndarray, count: int) -> Iterator[tuple[str, list[Pair]]]:
    """Yield documents, and with the last one of a family its pairs of any similarity above zero."""
    rng = np.random.default_rng(count)
    number = 0
    while number < count:
        size = int(rng.integers(2, 6)) if rng.random() < FAMILY_SHARE / 3 else 1
        members = [vocabulary[rng.integers(0, len(vocabulary), rng.integers(100, 301))]]
        while len(members) < size:
            words = members[rng.integers(len(members))].copy()
            replaced = max(1, int(rng.uniform(0, 0.3) * len(words)))
            start = rng.integers(0, len(words) - replaced + 1)
            words[start : start + replaced] = vocabulary[rng.integers(0, len(vocabulary), replaced)]
            if not any(np.array_equal(words, member) for member in members):
                members.append(words)
        pairs = []
        if size > 1:
            sets = [shingles(words) for words in members]
            for a, b in itertools.combinations(range(size), 2):
                common = len(sets[a] & sets[b])
                pairs.append(Pair(number + a, number + b, common / (len(sets[a]) + len(sets[b]) - common)))
        for words in members[:-1]:
            yield " ".join(words), []
        yield " ".join(members[-1]), pairs
        number += size


class Result(NamedTuple):
    """What a tool removes, and its CPU seconds by stage."""

    removed: set[int]
    seconds: dict[str, float]


def measure(vocabulary: np.ndarray, count: int, path: Path | None) -> tuple[Result, list[Pair], list[bytes], int]:
    """Return our result, the pairs, the IDs of the documents and the bytes of text; write the text to a path."""
    ids, pairs, size = [], [], 0
    # Values for every document, grown in blocks, as the job has them for every block.
    keys, sketches, block = [], [], []
    seconds = dict.fromkeys(("signatures", "comparison", "clusters"), 0.0)
    file = path.open("w", encoding="utf-8") if path else None
    for text, of_family in families(vocabulary, count):
        if file:
            file.write(json.dumps({"id": str(len(ids)), "text": text}) + "\n")
        pairs += of_family
        size += len(text.encode())
        start = time.process_time()
        ids.append(identity([text]))
        found = signature(text)
        assert found is not None
        block.append(found)
        if len(block) == 1000:
            _store(block, keys, sketches)
        seconds["signatures"] += time.process_time() - start
    if block:
        _store(block, keys, sketches)
    if file:
        file.close()
    start = time.process_time()
    all_keys = np.concatenate(keys).reshape(-1)
    all_sketches = np.concatenate(sketches)
    words = np.frombuffer(b"".join(ids), ">u8").reshape(-1, 2).astype(np.uint64)
    links = []
    groups = all_keys % np.uint64(NUM_GROUPS)
    for group in range(NUM_GROUPS):
        index = np.flatnonzero(groups == group)
        links.append(near_duplicates(all_keys[index], words[index // BANDS], all_sketches[index // BANDS]))
    seconds["comparison"] = time.process_time() - start
    start = time.process_time()
    joined = join_links(links)
    seconds["clusters"] = time.process_time() - start
    place = {document_id: number for number, document_id in enumerate(ids)}
    removed = {place[row.astype(">u8").tobytes()] for row in joined[:, :2]}
    return Result(removed, seconds), pairs, ids, size


def _store(block: list[np.ndarray], keys: list[np.ndarray], sketches: list[np.ndarray]) -> None:
    """Append keys and sketches of a block of signatures, and empty it."""
    stacked = np.stack(block)
    keys.append(band_keys(stacked))
    sketches.append(sketch(stacked))
    block.clear()


def scores(removed: set[int], pairs: list[Pair], ids: list[bytes]) -> list[str]:
    """Return recall at 0.7, 0.8 and 0.9, precision and excess."""
    cells = []
    for least in (0.7, 0.8, 0.9):
        alike = [pair for pair in pairs if pair.similarity >= least]
        found = sum(pair.first in removed or pair.second in removed for pair in alike)
        cells.append(f"{found / len(alike):.2%}")
    near = {number for pair in pairs if pair.similarity >= 0.7 for number in pair[:2]}
    cells.append(f"{len(removed & near) / max(1, len(removed)):.2%}")
    cluster: dict[int, set[int]] = {}
    for pair in pairs:
        if pair.similarity >= 0.7:
            both = cluster.setdefault(pair.first, {pair.first}) | cluster.setdefault(pair.second, {pair.second})
            cluster.update(dict.fromkeys(both, both))
    kept = {number for number in cluster if number not in removed}
    smallest = {min(both, key=ids.__getitem__) for both in cluster.values()}
    cells.append(f"{len(kept) - len(smallest):,} of {len(cluster) - len(smallest):,}")
    return cells


def main() -> None:
    """Print the tables."""
    data, *counts = sys.argv[1:]
    vocabulary = running_words(Path(data))
    columns = ["documents", "tool", "MB", "recall at 0.7", "0.8", "0.9", "precision", "excess", "MB/s"]
    columns += ["signatures s", "comparison s", "clusters s", "peak GB"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for count in map(int, counts or ("10000", "100000", "1000000")):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "texts.jsonl"
            peers = os.environ.get("PEERS", "") if count <= PEER_DOCUMENTS else ""
            result, pairs, ids, size = measure(vocabulary, count, path if peers else None)
            _print_row(len(ids), "beambert", size, result, scores(result.removed, pairs, ids))
            for tool in PEERS if peers else ():
                program = Path(__file__).with_name("near_duplicates_peers.py")
                work = Path(name) / tool
                work.mkdir()
                outcome = subprocess.run(
                    [peers, program, tool, path, work], capture_output=True, text=True, check=False
                )
                if outcome.returncode:
                    print(f"{tool} failed: {outcome.stderr[-500:]}", file=sys.stderr)
                    continue
                kept, seconds = json.loads(outcome.stdout.splitlines()[-1])
                removed = set(range(len(ids))) - set(kept)
                _print_row(len(ids), tool, size, Result(removed, {"total": seconds}), scores(removed, pairs, ids))


def _print_row(documents: int, tool: str, size: int, result: Result, cells: list[str]) -> None:
    times, peak = [""] * 3, ""
    if tool == "beambert":
        times = [f"{seconds:.1f}" for seconds in result.seconds.values()]
        peak = f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f}"
    speed = size / 1e6 / sum(result.seconds.values())
    row = [f"{documents:,}", tool, f"{size / 1e6:,.0f}", *cells, f"{speed:.1f}", *times, peak]
    print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
