"""Find near-duplicates and repeated paragraphs of the whole corpus: `deduplication.py` in Beam.

What is compared travels as arrays, grouped by a share of the hash values; what is found goes to the partition of the
document it is about. A share holds about as much as a partition: there are as many shares as partitions, 64 at least.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from pipelines.cleaning import deduplication
from pipelines.corpus.options import CorpusOptions, Partition, partition_of_document
from pipelines.corpus.records import BlockPlace, Record, read_blocks

# What a partition is grouped with: "blocks", and what these steps found of its documents.
Grouped = dict[str, Iterable[Any]]
BLOCKS, NEAR_DUPLICATE, REPEATED_PARAGRAPH = "blocks", "near_duplicate", "repeated_paragraph"


def precedence(record: Record) -> tuple[Any, ...]:
    """Return the sort key of a partition's documents: the first one of equal texts is the copy that stays.

    The copy with the largest weight comes first, then what the file says of the text. The file's name comes after all
    of that, so that a copy is never chosen for its name unless copies differ in nothing else.
    """
    return (record.id, -record.weight, record.title, record.language, record.paragraphs, record.work, *record)


def num_shares(options: CorpusOptions) -> int:
    """Return the number of shares that hash values are divided into."""
    return max(64, options.num_partitions)


def _to_words(ids: list[bytes]) -> np.ndarray:
    """Return identities of 16 bytes as uint64 [N, 2], which sort in the same order."""
    return np.frombuffer(b"".join(ids), ">u8").reshape(-1, 2).astype(np.uint64)


def _to_bytes(words: np.ndarray) -> bytes:
    return words.astype(">u8").tobytes()


def sketch_batches(
    element: tuple[Partition, bytes | BlockPlace], shares: int
) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yield (share, (band keys, identities, sketches)) of a block's documents, for `find_near_duplicates`."""
    ids: list[bytes] = []
    signatures: list[np.ndarray] = []
    for record in read_blocks([element[1]]):
        signature = None if record.reason else deduplication.signature(record.text)
        if signature is not None:
            ids.append(record.id)
            signatures.append(signature)
    if not ids:
        return
    stacked = np.stack(signatures)
    keys = deduplication.band_keys(stacked)  # [D, bands]
    words, sketches = _to_words(ids), deduplication.sketch(stacked)
    share_of_key = keys % np.uint64(shares)
    for share in np.unique(share_of_key):
        document, band = np.nonzero(share_of_key == share)
        yield int(share), (keys[document, band], words[document], sketches[document])


def find_near_duplicates(
    element: tuple[int, Iterable[tuple[np.ndarray, ...]]], options: CorpusOptions
) -> Iterator[tuple[Partition, list[tuple[bytes, bytes]]]]:
    """Yield (partition, [(identity to drop, identity it resembles)]) from (share, batches)."""
    keys, ids, sketches = (np.concatenate(column) for column in zip(*element[1], strict=True))
    duplicates: dict[Partition, list[tuple[bytes, bytes]]] = defaultdict(list)
    for dropped, kept in zip(*deduplication.near_duplicates(keys, ids, sketches), strict=True):
        identity = _to_bytes(ids[dropped])
        duplicates[partition_of_document(identity, options)].append((identity, _to_bytes(ids[kept])))
    yield from duplicates.items()


def near_duplicates_of(grouped: Grouped) -> dict[bytes, bytes]:
    """Return {identity to drop: the least identity that it resembles} of a partition."""
    like: dict[bytes, bytes] = {}
    for batch in grouped.get(NEAR_DUPLICATE, ()):
        for dropped, kept in batch:
            like[dropped] = min(kept, like.get(dropped, kept))
    return like


def paragraph_batches(
    element: tuple[Partition, Grouped], shares: int
) -> Iterator[tuple[int, tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Yield (share, (keys, identities, numbers in the document)) of a partition's remaining paragraphs."""
    grouped = element[1]
    dropped = near_duplicates_of(grouped)
    keys: list[int] = []
    ids: list[bytes] = []
    numbers: list[int] = []
    before = b""
    for record in sorted(read_blocks(grouped[BLOCKS]), key=precedence):
        # Copies of a text may have other paragraphs; numbers are those of the copy that stays.
        if record.reason or record.id in dropped or record.id == before:
            continue
        before = record.id
        for number, paragraph in enumerate(record.paragraph_texts()):
            key = deduplication.paragraph_key(paragraph)
            if key is not None:
                keys.append(key)
                ids.append(record.id)
                numbers.append(number)
    if not keys:
        return
    array, words, places = np.array(keys, np.uint64), _to_words(ids), np.array(numbers, np.int32)
    share_of_key = array % np.uint64(shares)
    for share in np.unique(share_of_key):
        chosen = share_of_key == share
        yield int(share), (array[chosen], words[chosen], places[chosen])


def find_repeated_paragraphs(
    element: tuple[int, Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]], options: CorpusOptions
) -> Iterator[tuple[Partition, list[tuple[bytes, int]]]]:
    """Yield (partition, [(identity, number of a paragraph to drop)]) from (share, batches)."""
    keys, ids, numbers = (np.concatenate(column) for column in zip(*element[1], strict=True))
    repetitions: dict[Partition, list[tuple[bytes, int]]] = defaultdict(list)
    for place in np.flatnonzero(deduplication.repeated_paragraphs(keys, ids)):
        identity = _to_bytes(ids[place])
        repetitions[partition_of_document(identity, options)].append((identity, int(numbers[place])))
    yield from repetitions.items()


def repeated_paragraphs_of(grouped: Grouped) -> dict[bytes, set[int]]:
    """Return {identity: numbers of the paragraphs to drop} of a partition."""
    repeated: dict[bytes, set[int]] = defaultdict(set)
    for batch in grouped.get(REPEATED_PARAGRAPH, ()):
        for identity, number in batch:
            repeated[identity].add(number)
    return repeated


def without_paragraphs(record: Record, numbers: set[int]) -> Record:
    """Return the record without the paragraphs of these numbers; its identity stays."""
    texts = record.paragraph_texts()
    kept = [number for number in range(len(texts)) if number not in numbers]
    return record._replace(
        text="\n".join(texts[number] for number in kept),
        paragraphs=tuple(record.paragraphs[number] for number in kept),
    )


def group_by_partition(blocks: beam.PCollection, options: CorpusOptions) -> beam.PCollection:
    """Group blocks by partition, with the findings of corpus-wide deduplication where it is enabled."""
    together = {BLOCKS: blocks}
    if options.near_duplicates:
        together[NEAR_DUPLICATE] = (
            blocks
            | "Sketch" >> beam.FlatMap(sketch_batches, num_shares(options))
            | "GroupByBand" >> beam.GroupByKey()
            | "FindNearDuplicates" >> beam.FlatMap(find_near_duplicates, options)
        )
    if options.repeated_paragraphs:
        together[REPEATED_PARAGRAPH] = (
            together
            | "PartitionForParagraphs" >> beam.CoGroupByKey()
            | "HashParagraphs" >> beam.FlatMap(paragraph_batches, num_shares(options))
            | "GroupByParagraph" >> beam.GroupByKey()
            | "FindRepeatedParagraphs" >> beam.FlatMap(find_repeated_paragraphs, options)
        )
    return together | "Partition" >> beam.CoGroupByKey()
