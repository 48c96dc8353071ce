"""The first half of job 1: an input file split -> documents -> cleaned, segmented records -> blocks by partition."""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics

from beambert_common.typed_json import Count, JsonError, convert, require
from pipelines.cleaning import rules
from pipelines.cleaning.decontamination import find_run, load_evaluation
from pipelines.cleaning.document_rules import rejection_reason
from pipelines.cleaning.language_identification import is_other_language
from pipelines.cleaning.tag_density import HTML_TAGS, has_html
from pipelines.corpus.options import CorpusOptions, Partition, partition_of_document
from pipelines.corpus.records import BlockPlace, Record, read_block_file, to_block, write_block_file
from pipelines.corpus.removed_text import Loss
from pipelines.corpus.segmentation import document_sentences, truncate_sentences
from pipelines.io.manifest_schemas import Split, SplitSummary
from pipelines.sources import ReadOptions, SourceError, read_file, split_file
from pipelines.sources.documents import Document, identity
from pipelines.sources.files import require_unchanged

SNIPPET_CHARACTERS = 200
# Of each rule in each document; a document of many dropped lines must not weigh more in the shuffle than its text.
_DROPPED_A_DOCUMENT = 3
# Characters of text held before they are written out as blocks.
_FLUSH_CHARACTERS = 32 << 20


class Input(NamedTuple):
    """A file to read.

    Attributes:
        path, bytes, changed: the file, its size, and when it was last changed.
        origin: the --input pattern that it was found by.
        weight: how often its documents are packed.
    """

    path: str
    bytes: int
    changed: Any
    origin: str
    weight: float


class FileSplit(NamedTuple):
    """A part of a file, read by one worker: `start` and `stop` as `pipelines.sources.split_file` gives them."""

    input: Input
    start: int
    stop: int | None

    @property
    def bytes(self) -> int:
        """Return the number of the file's bytes in the split."""
        return (self.input.bytes if self.stop is None else self.stop) - self.start

    def name(self) -> str:
        """Return a name made of what the split covers."""
        return hashlib.blake2b(json.dumps(self).encode("utf-8"), digest_size=12).hexdigest()


def split_inputs(inputs: list[Input], options: CorpusOptions) -> list[FileSplit]:
    """Return the splits of all files."""
    return [FileSplit(file, *part[1:]) for file in inputs for part in split_file(file.path, file.bytes, options.read)]


def to_record(document: Document, options: CorpusOptions, origin: str = "", weight: float = 1.0) -> Record:
    """Clean one document and split it into sentences."""
    if document.rejected:
        return _rejected_record(document, options, origin, weight)
    counts: Counter[str] = Counter()
    dropped: list[tuple[str, str]] = []
    lost: Counter[str] = Counter()
    paragraphs = rules.clean_paragraphs(document.paragraphs, options.cleaning, counts, dropped, lost)
    language = document.language or options.language
    split = [
        segmented
        for paragraph in paragraphs
        if (segmented := document_sentences([paragraph], language, document.segmented, options.segmenter))
    ]
    sentences = list(itertools.chain.from_iterable(split))
    document_id = identity(sentences)
    reason = rejection_reason(sentences, options.cleaning) or ""
    if not reason and options.identify_language and is_other_language(sentences, options.language):
        reason = rules.LANGUAGE
    reported: list[str] = []
    contamination: dict[str, str] = {}
    if not reason and options.decontaminate:
        evaluation = load_evaluation(tuple(options.decontaminate))
        run = find_run(sentences, evaluation.keys)
        contamination = evaluation.describe(run) if run else {}
    if contamination and options.decontaminate_action == "drop":
        reason = rules.CONTAMINATED
    elif contamination:
        reported.append(rules.CONTAMINATED)
    if not reason and has_html(document.paragraphs):
        reported.append(HTML_TAGS)
    # Last, so that noise moves no document to another partition and hides no equal document.
    sentences = truncate_sentences(sentences, options.truncation_noise, document_id)
    work = ""
    if counts or reported or contamination:
        content = {"counts": counts, "dropped": _sample(dropped), "reported": reported, "lost": +lost}
        work = json.dumps({**content, "contamination": contamination} if contamination else content, sort_keys=True)
    return Record(
        id=document_id,
        title=document.title,
        source=document.source,
        language=language,
        text="\n".join(sentences),
        paragraphs=tuple(map(len, split)),
        origin=origin,
        weight=weight,
        reason=reason,
        work=work,
        line=document.line,
        source_id=document.source_id,
    )


def _rejected_record(document: Document, options: CorpusOptions, origin: str, weight: float) -> Record:
    """Return the entry of a document that its reader rejects; its text is not cleaned."""
    return Record(
        # It may hold no text: its title spreads it over the partitions.
        id=identity([document.rejected, document.title, *document.paragraphs]),
        title=document.title,
        source=document.source,
        language=document.language or options.language,
        text="\n".join(document.paragraphs),
        paragraphs=(),
        origin=origin,
        weight=weight,
        reason=document.rejected,
        work="",
        line=document.line,
        source_id=document.source_id,
    )


def _sample(dropped: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the first few texts that each rule dropped from a document, cut to snippets."""
    seen: Counter[str] = Counter()
    sample = []
    for rule, text in dropped:
        seen[rule] += 1
        if seen[rule] <= _DROPPED_A_DOCUMENT:
            sample.append((rule, text[:SNIPPET_CHARACTERS]))
    return sample


def _documents_of(file_split: FileSplit, options: ReadOptions) -> Iterator[Document]:
    """Yield the documents of a split, and check that the file is still the one that the manifest describes.

    Raises:
        SourceError: it cannot be read, or changed since the job started.
    """
    path, size, changed = file_split.input[:3]
    try:
        yield from read_file(path, options, file_split.start, file_split.stop)
    except SourceError:
        # A file that is being written looks damaged: report the change instead.
        _require_unchanged(path, size, changed, options)
        raise
    _require_unchanged(path, size, changed, options)


def _require_unchanged(path: str, size: int, changed: Any, options: ReadOptions) -> None:
    if options.input_format != "language_reference":
        require_unchanged(path, size, changed)


class ReadSplit(beam.DoFn):
    """Read a file split into (partition, block of records).

    Side outputs: the number of documents read, for the manifest, and the text that cleaning removed from its file.

    Args:
        options: what to do.
        work: directory for the blocks, of which only the places are passed on, and where a split that was read
            before is found again; or "", to pass on the blocks themselves.
    """

    COUNT = "documents_read"
    LOSSES = "losses"
    # For monitoring the job; the manifest's counts are counted from the data.
    _SO_FAR = Metrics.counter("beambert", "documents_read")

    def __init__(self, options: CorpusOptions, work: str) -> None:
        self._options = options
        self._work = work

    def process(self, file_split: FileSplit) -> Iterator[Any]:
        """Read one split."""
        summary: dict[str, Any] = {"documents": 0}
        if not self._work:
            yield from self._blocks(file_split, summary)
        else:
            path = f"{self._work}/{file_split.name()}"
            block_file = read_block_file(path)
            if block_file is None or not self._is_valid(*block_file):
                write_block_file(path, self._blocks(file_split, summary), summary)
                block_file = read_block_file(path)
                assert block_file is not None
            places, summary = block_file
            yield from (((split, number), place) for (split, number), place in places)
        self._SO_FAR.inc(summary["documents"])
        yield beam.pvalue.TaggedOutput(self.COUNT, summary["documents"])
        # What an older version left unfinished does not say.
        loss = Loss(summary.get("bytes_kept", 0), Counter(summary.get("bytes_lost", {})))
        is_whole = file_split.stop is None and not file_split.start
        yield beam.pvalue.TaggedOutput(self.LOSSES, (file_split.input.path, file_split.input.origin, is_whole, loss))

    def _is_valid(self, places: list[tuple[Any, BlockPlace]], summary: dict[str, Any]) -> bool:
        """Return whether keys and summary of a file of blocks are such as `_blocks` gives."""
        try:
            keys = convert([key for key, _ in places], list[tuple[Split, Count]])
            require(summary, SplitSummary)
        except JsonError:
            return False
        return all(number < self._options.num_partitions_of(split) for split, number in keys)

    def _blocks(self, file_split: FileSplit, summary: dict[str, Any]) -> Iterator[tuple[Partition, bytes]]:
        pending: dict[Partition, list[Record]] = {}
        loss = Loss()
        characters = 0
        for document in _documents_of(file_split, self._options.read):
            record = to_record(document, self._options, file_split.input.origin, file_split.input.weight)
            pending.setdefault(partition_of_document(record.id, self._options), []).append(record)
            summary["documents"] += 1
            loss.add(record)
            characters += len(record.text)
            if characters > _FLUSH_CHARACTERS:
                yield from ((partition, to_block(records)) for partition, records in pending.items())
                pending, characters = {}, 0
        summary.update(bytes_kept=loss.kept, bytes_lost=dict(loss.lost))
        yield from ((partition, to_block(records)) for partition, records in pending.items())
