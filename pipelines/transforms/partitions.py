"""Group documents by partition: blocks of documents, near-duplicates and repeated paragraphs in the whole corpus.

Documents are shuffled in blocks. For deduplication, hash values are shuffled as arrays, grouped into hash ranges, and
the results are shuffled to the partition of the document concerned. There are as many hash ranges as partitions, at
least 64, so a range is about as large as a partition.
"""

import atexit
import dataclasses
import itertools
import logging
import shutil
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.pipeline import AppliedPTransform
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beambert.common.word_rules import WordRules
from beambert.pipelines.cleaning import deduplication
from beambert.pipelines.cleaning.urls import URL, domain_of, normalize_url
from beambert.pipelines.corpus.blocks import (
    BlockLocation,
    DeduplicationResult,
    Duplicates,
    deduplicate,
    in_order,
    read_blocks,
    to_block,
    write_block_file,
)
from beambert.pipelines.corpus.options import CorpusOptions, Partition, partition_of_document
from beambert.pipelines.documents import PARTITION_BYTES, Document, identified
from beambert.pipelines.errors import SourceError
from beambert.pipelines.runner.beam_flags import EMBEDDED_RUNNERS
from beambert.tokenizer.normalization import CHARACTER_RULES

_warn = logging.getLogger("beambert").warning
# As for `beambert corpus`: enough for several workers, and about 1 GiB of text in partitions of 64 MiB.
NUM_PARTITIONS = 16
DEFAULTS = CorpusOptions(
    do_lower_case=True, vocab_size=0, character_rules=CHARACTER_RULES, num_partitions=NUM_PARTITIONS
)


def corpus_options(**options: Any) -> CorpusOptions:
    """Return the options of a corpus of a transform.

    Args:
        **options: fields of `CorpusOptions`; the others are those of `DEFAULTS`.

    Raises:
        SourceError: a value is invalid.
    """
    given = dataclasses.replace(DEFAULTS, **options)
    # Equal rules are recorded as equal.
    return dataclasses.replace(given, **dataclasses.asdict(WordRules.of(given)))


# A partition: its blocks, and the results of deduplication for its documents.
Grouped = dict[str, Iterable[Any]]
_BLOCKS, _NEAR_DUPLICATES, _REPEATED_PARAGRAPHS = "blocks", "near_duplicates", "repeated_paragraphs"
_DUPLICATE_URLS, _DOMAIN_LINES = "duplicate_urls", "domain_lines"
# Fields of `CorpusOptions` that enable corpus-wide deduplication.
DEDUPLICATION_OPTIONS = (_DUPLICATE_URLS, _DOMAIN_LINES, _NEAR_DUPLICATES, _REPEATED_PARAGRAPHS)
# A block of documents as shuffled: its bytes, or its location in a block file.
Block = bytes | BlockLocation
# Characters of text of a partition above which to warn.
_MAX_CHARACTERS = 4 * PARTITION_BYTES
# Characters of text to buffer before writing blocks.
_FLUSH_CHARACTERS = 32 << 20


class BlockBuffer:
    """A buffer of documents by partition, which returns blocks whenever it is full.

    Args:
        options: options of the corpus; they determine the partitions.
    """

    def __init__(self, options: CorpusOptions) -> None:
        self._options = options
        self._pending: dict[Partition, list[Document]] = {}
        self._characters = 0

    def add(self, document: Document) -> Iterator[tuple[Partition, bytes]]:
        """Add a document with an ID, and yield (partition, block) of all documents if the buffer is full."""
        self._pending.setdefault(partition_of_document(document.id, self._options), []).append(document)
        self._characters += sum(map(len, document.paragraphs))
        if self._characters > _FLUSH_CHARACTERS:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[Partition, bytes]]:
        """Yield (partition, block) of all documents, and empty the buffer."""
        yield from ((partition, to_block(documents)) for partition, documents in self._pending.items())
        self._pending, self._characters = {}, 0


@beam.typehints.with_output_types(tuple[tuple[str, int], Block])
@beam.ptransform_fn
def ToBlocks(documents: beam.PCollection, options: CorpusOptions) -> beam.PCollection:
    """Convert segmented or rejected documents to (partition, block of documents).

    On an engine of this machine, which shuffles in memory, the blocks are in temporary files, and only their locations
    are shuffled.

    Args:
        documents: the documents.
        options: options of the corpus; they determine the partitions.

    Raises:
        SourceError: the documents are windowed; when the pipeline runs: a document is not segmented.
    """
    if not isinstance(documents.windowing.windowfn, GlobalWindows):
        raise SourceError("the documents are in windows; a corpus requires bounded input in the global window")
    return documents | beam.ParDo(_ToBlocks(options, _local_directory(documents.pipeline)))


def _local_directory(pipeline: beam.Pipeline) -> str:
    """Return a directory that all workers of an engine of this machine share; "" for another engine.

    It is deleted when the process ends, because a DirectRunner may return before the pipeline has finished.
    """
    engine = type(pipeline.runner).__name__.removeprefix("Switching")
    environment = pipeline.options.view_as(PortableOptions).environment_type
    if engine not in EMBEDDED_RUNNERS or environment not in (None, "LOOPBACK"):
        return ""
    directory = tempfile.mkdtemp(prefix="beambert-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


class _ToBlocks(beam.DoFn):
    def __init__(self, options: CorpusOptions, directory: str) -> None:
        self._options, self._directory = options, directory

    def start_bundle(self) -> None:
        self._buffer = BlockBuffer(self._options)

    def process(self, document: Document) -> Iterator[tuple[Partition, Block]]:
        yield from self._store(self._buffer.add(identified(document, self._options.language)))

    def finish_bundle(self) -> Iterator[Any]:
        window = GlobalWindow()
        for block in self._store(self._buffer.flush()):
            yield WindowedValue(block, window.max_timestamp(), [window])

    def _store(self, blocks: Iterator[tuple[Partition, bytes]]) -> Iterator[tuple[Partition, Block]]:
        if not self._directory:
            yield from blocks
        elif first := next(blocks, None):
            # The name has no influence on the result.
            path = f"{self._directory}/{uuid.uuid4().hex}"
            yield from write_block_file(path, itertools.chain([first], blocks))


@beam.ptransform_fn
def GroupByPartition(blocks: beam.PCollection, options: CorpusOptions) -> beam.PCollection:
    """Group blocks by partition, with the results of corpus-wide deduplication if the options enable it.

    Args:
        blocks: results of `ToBlocks`.
        options: options of the corpus.

    Returns:
        (partition, grouped blocks and results), for `deduplicate_partition`.
    """
    num_groups = max(64, options.num_partitions)
    collections = {_BLOCKS: blocks}
    # Each step sees the documents and paragraphs that the steps before it keep.
    if options.duplicate_urls:
        collections[_DUPLICATE_URLS] = (
            collections
            | "PartitionForUrls" >> beam.CoGroupByKey()
            | "HashUrls" >> beam.FlatMap(url_batches, num_groups)
            | "GroupByUrl" >> beam.GroupByKey()
            | "FindDuplicateUrls" >> beam.FlatMap(find_duplicate_urls, options)
        )
    if options.domain_lines:
        collections[_DOMAIN_LINES] = (
            collections
            | "PartitionForLines" >> beam.CoGroupByKey()
            | "HashLines" >> beam.FlatMap(domain_line_batches, num_groups)
            | "GroupByLine" >> beam.GroupByKey()
            | "FindDomainLines" >> beam.FlatMap(find_domain_lines, options)
        )
    if options.near_duplicates:
        sketched = (
            collections
            | "PartitionForSketches" >> beam.CoGroupByKey()
            | "SketchKept" >> beam.FlatMap(sketch_kept_batches, num_groups)
            if options.duplicate_urls or options.domain_lines
            else blocks | "Sketch" >> beam.FlatMap(sketch_batches, num_groups)
        )
        collections[_NEAR_DUPLICATES] = (
            sketched
            | "GroupByBand" >> beam.GroupByKey()
            | "FindNearDuplicates" >> beam.FlatMap(find_near_duplicates, options)
        )
    if options.repeated_paragraphs:
        collections[_REPEATED_PARAGRAPHS] = (
            collections
            | "PartitionForParagraphs" >> beam.CoGroupByKey()
            | "HashParagraphs" >> beam.FlatMap(paragraph_batches, num_groups)
            | "GroupByParagraph" >> beam.GroupByKey()
            | "FindRepeatedParagraphs" >> beam.FlatMap(find_repeated_paragraphs, options)
        )
    return collections | "Partition" >> beam.CoGroupByKey()


class GroupDocuments(beam.PTransform):
    """Group documents by partition, for `deduplicate_partition`. Use `group_documents`, which applies it once.

    Args:
        options: options of the corpus.
    """

    def __init__(self, options: CorpusOptions) -> None:
        super().__init__()
        self._options = options

    def groups_as(self, options: CorpusOptions) -> bool:
        """Return whether the result is the same with other options."""
        names = ("language", "num_partitions", "validation_fraction", *DEDUPLICATION_OPTIONS)
        return all(getattr(self._options, name) == getattr(options, name) for name in names)

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        """Return (partition, grouped blocks)."""
        blocks = documents | "ToBlocks" >> ToBlocks(self._options)
        return blocks | "GroupByPartition" >> GroupByPartition(self._options)


def group_documents(documents: beam.PCollection, options: CorpusOptions) -> beam.PCollection:
    """Return documents by partition, for `deduplicate_partition`.

    Transforms of the same documents share a shuffle, which has the text of all documents.
    """
    pending = [documents.pipeline.transforms_stack[0]]
    while pending:
        applied = pending.pop()
        transform = applied.transform
        if isinstance(transform, GroupDocuments) and documents in applied.inputs and transform.groups_as(options):
            return applied.outputs[None]
        pending += applied.parts
    return documents | "GroupDocuments" >> GroupDocuments(options)


def upstream_of(documents: beam.PCollection) -> Iterator[AppliedPTransform]:
    """Yield the applied transforms that a collection comes from, from the last to the first."""
    pending, seen = [documents], set()
    while pending:
        applied = pending.pop(0).producer
        while applied is not None and applied not in seen:
            seen.add(applied)
            if applied.transform is not None:
                yield applied
            pending += [*applied.inputs, *(side_input.pvalue for side_input in applied.side_inputs)]
            applied = applied.parent


def deduplicate_partition(element: tuple[Partition, Grouped]) -> DeduplicationResult:
    """Return the documents of a partition after all rules; warn if the partition is too large for its purpose."""
    (split, number), grouped = element
    result = deduplicate(read_partition(grouped), collect_duplicates(grouped))
    characters = sum(sum(map(len, document.paragraphs)) for document in result.kept)
    if characters > _MAX_CHARACTERS:
        _warn(
            "partition %s %d has %.1f GB of text, which is held in memory; divide the documents into %d times as many "
            "partitions with num_partitions",
            split,
            number,
            characters / 1e9,
            -(-characters // PARTITION_BYTES),
        )
    return result


def read_partition(grouped: Grouped) -> Iterator[Document]:
    """Yield all documents of a partition, in any order."""
    return read_blocks(grouped[_BLOCKS])


def collect_duplicates(grouped: Grouped) -> Duplicates:
    """Return the results of corpus-wide deduplication for a partition."""
    near_duplicate_of: dict[str, str] = {}
    for batch in grouped.get(_NEAR_DUPLICATES, ()):
        for dropped, kept in batch:
            near_duplicate_of[dropped] = min(kept, near_duplicate_of.get(dropped, kept))
    duplicate_url_of = dict(pair for batch in grouped.get(_DUPLICATE_URLS, ()) for pair in batch)
    repeated = _numbers_by_document(grouped.get(_REPEATED_PARAGRAPHS, ()))
    domain_lines = _numbers_by_document(grouped.get(_DOMAIN_LINES, ()))
    return Duplicates(near_duplicate_of, repeated, duplicate_url_of, domain_lines)


def _numbers_by_document(batches: Iterable[list[tuple[str, int]]]) -> dict[str, set[int]]:
    """Return the numbers of paragraphs by document ID."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for batch in batches:
        for document_id, number in batch:
            numbers[document_id].add(number)
    return numbers


def _kept_documents(grouped: Grouped) -> Iterator[Document]:
    """Yield the documents of a partition that exact and corpus-wide deduplication keep so far, in order of their IDs.

    Documents with equal sentences may differ in paragraphs and URL; only the first one is kept.
    """
    duplicates = collect_duplicates(grouped)
    before = ""
    for document in in_order(read_partition(grouped)):
        if not document.rejected and document.id != before:
            before = document.id
            if not duplicates.rule_of(document.id):
                yield document


def _to_words(ids: list[str]) -> np.ndarray:
    """Return hexadecimal document IDs of 16 bytes as uint64 [N, 2], which sort in the same order."""
    return np.frombuffer(bytes.fromhex("".join(ids)), ">u8").reshape(-1, 2).astype(np.uint64)


def _to_hex(words: np.ndarray) -> str:
    """Return the document ID of uint64 [2] from `_to_words`."""
    return words.astype(">u8").tobytes().hex()


def sketch_batches(element: tuple[Partition, Block], num_groups: int) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yield (hash group, (band keys, document IDs, sketches)) of a block, for `find_near_duplicates`."""
    yield from _sketch(read_blocks([element[1]]), num_groups)


def sketch_kept_batches(
    element: tuple[Partition, Grouped], num_groups: int
) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yield the same of a partition, for the documents and lines that are kept so far."""
    dropped = collect_duplicates(element[1]).domain_lines
    kept = (
        dataclasses.replace(
            document,
            paragraphs=[
                paragraph
                for number, paragraph in enumerate(document.paragraphs)
                if number not in dropped.get(document.id, ())
            ],
        )
        for document in _kept_documents(element[1])
    )
    yield from _sketch(kept, num_groups)


def _sketch(documents: Iterable[Document], num_groups: int) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    ids: list[str] = []
    signatures: list[np.ndarray] = []
    for document in documents:
        signature = None if document.rejected else deduplication.signature(document.text)
        if signature is not None:
            ids.append(document.id)
            signatures.append(signature)
    if not ids:
        return
    stacked = np.stack(signatures)
    keys = deduplication.band_keys(stacked)  # [D, bands]
    words, sketches = _to_words(ids), deduplication.sketch(stacked)
    group_of_key = keys % np.uint64(num_groups)
    for group in np.unique(group_of_key):
        row, band = np.nonzero(group_of_key == group)
        yield int(group), (keys[row, band], words[row], sketches[row])


def find_near_duplicates(
    element: tuple[int, Iterable[tuple[np.ndarray, ...]]], options: CorpusOptions
) -> Iterator[tuple[Partition, list[tuple[str, str]]]]:
    """Yield (partition, [(ID to drop, ID of its near-duplicate)]) for (hash group, batches)."""
    keys, ids, sketches = (np.concatenate(column) for column in zip(*element[1], strict=True))
    duplicates: dict[Partition, list[tuple[str, str]]] = defaultdict(list)
    for dropped, kept in zip(*deduplication.near_duplicates(keys, ids, sketches), strict=True):
        document_id = _to_hex(ids[dropped])
        duplicates[partition_of_document(document_id, options)].append((document_id, _to_hex(ids[kept])))
    yield from duplicates.items()


# (keys, document IDs, paragraph numbers) of a hash group.
Keys = tuple[np.ndarray, np.ndarray, np.ndarray]


def _by_group(entries: Iterable[tuple[int, str, int]], num_groups: int) -> Iterator[tuple[int, Keys]]:
    """Yield (hash group, arrays) of (key, document ID, paragraph number)."""
    columns = list(zip(*entries, strict=True))
    if not columns:
        return
    keys, ids, numbers = np.array(columns[0], np.uint64), _to_words(list(columns[1])), np.array(columns[2], np.int32)
    group_of_key = keys % np.uint64(num_groups)
    for group in np.unique(group_of_key):
        in_group = group_of_key == group
        yield int(group), (keys[in_group], ids[in_group], numbers[in_group])


def url_batches(element: tuple[Partition, Grouped], num_groups: int) -> Iterator[tuple[int, Keys]]:
    """Yield (hash group, keys of the normalized URLs) of a partition; the paragraph numbers are 0."""
    normalized = (
        (normalize_url(document.metadata.get(URL, "")), document.id) for document in _kept_documents(element[1])
    )
    yield from _by_group(((deduplication.text_key(url), name, 0) for url, name in normalized if url), num_groups)


def find_duplicate_urls(
    element: tuple[int, Iterable[Keys]], options: CorpusOptions
) -> Iterator[tuple[Partition, list[tuple[str, str]]]]:
    """Yield (partition, [(ID to drop, ID of the document with its URL)]) for (hash group, batches)."""
    keys, ids, _ = (np.concatenate(column) for column in zip(*element[1], strict=True))
    duplicates: dict[Partition, list[tuple[str, str]]] = defaultdict(list)
    for dropped, kept in zip(*deduplication.duplicate_keys(keys, ids), strict=True):
        document_id = _to_hex(ids[dropped])
        duplicates[partition_of_document(document_id, options)].append((document_id, _to_hex(ids[kept])))
    yield from duplicates.items()


def domain_line_batches(element: tuple[Partition, Grouped], num_groups: int) -> Iterator[tuple[int, Keys]]:
    """Yield (hash group, keys of domain and paragraph) of the documents of a partition that have a URL."""
    yield from _by_group(
        (
            (deduplication.text_key(domain, paragraph), document.id, number)
            for document in _kept_documents(element[1])
            if (domain := domain_of(document.metadata.get(URL, "")))
            for number, paragraph in enumerate(document.paragraphs)
        ),
        num_groups,
    )


def find_domain_lines(
    element: tuple[int, Iterable[Keys]], options: CorpusOptions
) -> Iterator[tuple[Partition, list[tuple[str, int]]]]:
    """Yield (partition, [(document ID, number of a paragraph to drop)]) for (hash group, batches)."""
    keys, ids, numbers = (np.concatenate(column) for column in zip(*element[1], strict=True))
    yield from _by_partition(deduplication.frequent_keys(keys, ids, options.domain_lines), ids, numbers, options)


def paragraph_batches(element: tuple[Partition, Grouped], num_groups: int) -> Iterator[tuple[int, Keys]]:
    """Yield (hash group, keys of paragraphs) of a partition's remaining paragraphs."""
    dropped = collect_duplicates(element[1]).domain_lines
    yield from _by_group(
        (
            (key, document.id, number)
            for document in _kept_documents(element[1])
            for number, paragraph in enumerate(document.paragraphs)
            if number not in dropped.get(document.id, ())
            and (key := deduplication.paragraph_key(paragraph)) is not None
        ),
        num_groups,
    )


def find_repeated_paragraphs(
    element: tuple[int, Iterable[Keys]], options: CorpusOptions
) -> Iterator[tuple[Partition, list[tuple[str, int]]]]:
    """Yield (partition, [(document ID, number of a paragraph to drop)]) for (hash group, batches)."""
    keys, ids, numbers = (np.concatenate(column) for column in zip(*element[1], strict=True))
    yield from _by_partition(deduplication.repeated_paragraphs(keys, ids), ids, numbers, options)


def _by_partition(
    is_dropped: np.ndarray, ids: np.ndarray, numbers: np.ndarray, options: CorpusOptions
) -> Iterator[tuple[Partition, list[tuple[str, int]]]]:
    """Yield (partition, [(document ID, paragraph number)]) of the entries to drop."""
    dropped: dict[Partition, list[tuple[str, int]]] = defaultdict(list)
    for index in np.flatnonzero(is_dropped):
        document_id = _to_hex(ids[index])
        dropped[partition_of_document(document_id, options)].append((document_id, int(numbers[index])))
    yield from dropped.items()
