"""Beam transforms that find near-duplicates and repeated paragraphs in the whole corpus with `deduplication.py`.

Hash values are shuffled as arrays, grouped into hash ranges. Results are shuffled to the partition of the document
concerned. There are as many hash ranges as partitions, at least 64, so a range is about as large as a partition.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from beambert.pipelines.cleaning import deduplication
from beambert.pipelines.corpus.options import CorpusOptions, Partition, partition_of_document
from beambert.pipelines.corpus.records import BlockLocation, Record, read_blocks

# A partition: its blocks, and the results of deduplication for its documents.
Grouped = dict[str, Iterable[Any]]
BLOCKS, NEAR_DUPLICATE, REPEATED_PARAGRAPH = "blocks", "near_duplicate", "repeated_paragraph"


def precedence(record: Record) -> tuple[Any, ...]:
    """Return the sort key of the documents of a partition; of equal texts, the first one is kept.

    The largest weight comes first, then metadata from the file. The file name is last, so it decides only between
    documents that are equal in everything else.
    """
    return (record.id, -record.weight, record.title, record.language, record.paragraphs, record.work, *record)


def num_hash_groups(options: CorpusOptions) -> int:
    """Return the number of groups that hash values are divided into."""
    return max(64, options.num_partitions)


def _to_words(ids: list[bytes]) -> np.ndarray:
    """Return document IDs of 16 bytes as uint64 [N, 2], which sort in the same order."""
    return np.frombuffer(b"".join(ids), ">u8").reshape(-1, 2).astype(np.uint64)


def _to_bytes(words: np.ndarray) -> bytes:
    """Return the document ID of uint64 [2] from `_to_words`."""
    return words.astype(">u8").tobytes()


def sketch_batches(
    element: tuple[Partition, bytes | BlockLocation], num_groups: int
) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yield (hash group, (band keys, document IDs, sketches)) of a block, for `find_near_duplicates`."""
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
    group_of_key = keys % np.uint64(num_groups)
    for group in np.unique(group_of_key):
        document, band = np.nonzero(group_of_key == group)
        yield int(group), (keys[document, band], words[document], sketches[document])


def find_near_duplicates(
    element: tuple[int, Iterable[tuple[np.ndarray, ...]]], options: CorpusOptions
) -> Iterator[tuple[Partition, list[tuple[bytes, bytes]]]]:
    """Yield (partition, [(ID to drop, ID of its near-duplicate)]) for (hash group, batches)."""
    keys, ids, sketches = (np.concatenate(column) for column in zip(*element[1], strict=True))
    duplicates: dict[Partition, list[tuple[bytes, bytes]]] = defaultdict(list)
    for dropped, kept in zip(*deduplication.near_duplicates(keys, ids, sketches), strict=True):
        identity = _to_bytes(ids[dropped])
        duplicates[partition_of_document(identity, options)].append((identity, _to_bytes(ids[kept])))
    yield from duplicates.items()


def near_duplicates_of(grouped: Grouped) -> dict[bytes, bytes]:
    """Return {ID to drop: smallest ID among its near-duplicates} of a partition."""
    near_duplicate_of: dict[bytes, bytes] = {}
    for batch in grouped.get(NEAR_DUPLICATE, ()):
        for dropped, kept in batch:
            near_duplicate_of[dropped] = min(kept, near_duplicate_of.get(dropped, kept))
    return near_duplicate_of


def paragraph_batches(
    element: tuple[Partition, Grouped], num_groups: int
) -> Iterator[tuple[int, tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Yield (hash group, (keys, document IDs, paragraph numbers)) of a partition's remaining paragraphs."""
    grouped = element[1]
    dropped = near_duplicates_of(grouped)
    keys: list[int] = []
    ids: list[bytes] = []
    numbers: list[int] = []
    before = b""
    for record in sorted(read_blocks(grouped[BLOCKS]), key=precedence):
        # Documents with equal sentences may differ in paragraphs; the numbers refer to the document that is kept.
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
    key_array, id_array, number_array = np.array(keys, np.uint64), _to_words(ids), np.array(numbers, np.int32)
    group_of_key = key_array % np.uint64(num_groups)
    for group in np.unique(group_of_key):
        in_group = group_of_key == group
        yield int(group), (key_array[in_group], id_array[in_group], number_array[in_group])


def find_repeated_paragraphs(
    element: tuple[int, Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]]], options: CorpusOptions
) -> Iterator[tuple[Partition, list[tuple[bytes, int]]]]:
    """Yield (partition, [(document ID, number of a paragraph to drop)]) for (hash group, batches)."""
    keys, ids, numbers = (np.concatenate(column) for column in zip(*element[1], strict=True))
    repetitions: dict[Partition, list[tuple[bytes, int]]] = defaultdict(list)
    for index in np.flatnonzero(deduplication.repeated_paragraphs(keys, ids)):
        identity = _to_bytes(ids[index])
        repetitions[partition_of_document(identity, options)].append((identity, int(numbers[index])))
    yield from repetitions.items()


def repeated_paragraphs_of(grouped: Grouped) -> dict[bytes, set[int]]:
    """Return {document ID: numbers of the paragraphs to drop} of a partition."""
    repeated: dict[bytes, set[int]] = defaultdict(set)
    for batch in grouped.get(REPEATED_PARAGRAPH, ()):
        for identity, number in batch:
            repeated[identity].add(number)
    return repeated


def without_paragraphs(record: Record, numbers: set[int]) -> Record:
    """Return the record without the numbered paragraphs; its ID does not change."""
    texts = record.paragraph_texts()
    kept = [number for number in range(len(texts)) if number not in numbers]
    return record._replace(
        text="\n".join(texts[number] for number in kept),
        paragraphs=tuple(record.paragraphs[number] for number in kept),
    )


def group_by_partition(blocks: beam.PCollection, options: CorpusOptions) -> beam.PCollection:
    """Group blocks by partition, with the results of corpus-wide deduplication if it is enabled."""
    collections = {BLOCKS: blocks}
    if options.near_duplicates:
        collections[NEAR_DUPLICATE] = (
            blocks
            | "Sketch" >> beam.FlatMap(sketch_batches, num_hash_groups(options))
            | "GroupByBand" >> beam.GroupByKey()
            | "FindNearDuplicates" >> beam.FlatMap(find_near_duplicates, options)
        )
    if options.repeated_paragraphs:
        collections[REPEATED_PARAGRAPH] = (
            collections
            | "PartitionForParagraphs" >> beam.CoGroupByKey()
            | "HashParagraphs" >> beam.FlatMap(paragraph_batches, num_hash_groups(options))
            | "GroupByParagraph" >> beam.GroupByKey()
            | "FindRepeatedParagraphs" >> beam.FlatMap(find_repeated_paragraphs, options)
        )
    return collections | "Partition" >> beam.CoGroupByKey()
