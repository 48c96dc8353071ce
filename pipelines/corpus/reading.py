"""The first half of job 1: a part of an input file -> documents -> cleaned, segmented records -> blocks by bucket."""

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
from pipelines.corpus.options import Bucket, CorpusOptions, bucket_of_document
from pipelines.corpus.records import BlockPlace, Record, read_block_file, to_block, write_block_file
from pipelines.corpus.removed_text import Loss
from pipelines.corpus.segmentation import document_sentences, truncate_sentences
from pipelines.io.manifest_schemas import Split, UnitSummary
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
        weight: how often its documents are to be seen.
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
        """How much of the file it is."""
        return (self.input.bytes if self.stop is None else self.stop) - self.start

    def name(self) -> str:
        """Names the unit by what it reads."""
        return hashlib.blake2b(json.dumps(self).encode("utf-8"), digest_size=12).hexdigest()


def split_inputs(inputs: list[Input], options: CorpusOptions) -> list[FileSplit]:
    """The units of all files."""
    return [FileSplit(each, *part[1:]) for each in inputs for part in split_file(each.path, each.bytes, options.read)]


def to_record(document: Document, options: CorpusOptions, origin: str = "", weight: float = 1.0) -> Record:
    """Cleans one document and splits it into sentences."""
    if document.rejected:
        return _rejected_record(document, options, origin, weight)
    counts: Counter[str] = Counter()
    dropped: list[tuple[str, str]] = []
    lost: Counter[str] = Counter()
    paragraphs = rules.clean_paragraphs(document.paragraphs, options.cleaning, counts, dropped, lost)
    language = document.language or options.language
    split = [
        found
        for paragraph in paragraphs
        if (found := document_sentences([paragraph], language, document.segmented, options.segmenter))
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
    # Last, so that noise moves no document to another bucket and hides no duplicate.
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
    """What the list of rejected documents shows of one that its reader rejects; its text is not cleaned."""
    return Record(
        # It may hold no text: its title spreads it over the buckets.
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
    """The first few texts that each rule dropped from a document, cut to snippets."""
    seen: Counter[str] = Counter()
    sample = []
    for rule, text in dropped:
        seen[rule] += 1
        if seen[rule] <= _DROPPED_A_DOCUMENT:
            sample.append((rule, text[:SNIPPET_CHARACTERS]))
    return sample


def _documents_of(unit: FileSplit, options: ReadOptions) -> Iterator[Document]:
    """Yields the documents of a unit, and makes sure that the file is still the one that the manifest will describe.

    Raises:
        SourceError: it cannot be read, or changed since the job started.
    """
    path, size, changed = unit.input[:3]
    try:
        yield from read_file(path, options, unit.start, unit.stop)
    except SourceError:
        # A file that is being written looks damaged: report the change instead.
        _require_unchanged(path, size, changed, options)
        raise
    _require_unchanged(path, size, changed, options)


def _require_unchanged(path: str, size: int, changed: Any, options: ReadOptions) -> None:
    if options.input_format != "language_reference":
        require_unchanged(path, size, changed)


class ReadUnit(beam.DoFn):
    """Read a file split into (partition, block of records).

    Side outputs: the number of documents read, for the manifest, and the text that cleaning removed from its file.

    Args:
        options: what to do.
        work: directory to leave the blocks in, whence only their places are passed on and where a unit that was read
            before is found again; or "", to pass on the blocks themselves.
    """

    COUNT = "documents_read"
    LOSSES = "losses"
    # For whoever watches the job; what the manifest says is counted from the data.
    _SO_FAR = Metrics.counter("beambert", "documents_read")

    def __init__(self, options: CorpusOptions, work: str) -> None:
        self._options = options
        self._work = work

    def process(self, unit: FileSplit) -> Iterator[Any]:
        """Reads one unit."""
        summary: dict[str, Any] = {"documents": 0}
        if not self._work:
            yield from self._blocks(unit, summary)
        else:
            path = f"{self._work}/{unit.name()}"
            found = read_block_file(path)
            if found is None or not self._fits(*found):
                write_block_file(path, self._blocks(unit, summary), summary)
                found = read_block_file(path)
                assert found is not None
            places, summary = found
            yield from (((split, number), place) for (split, number), place in places)
        self._SO_FAR.inc(summary["documents"])
        yield beam.pvalue.TaggedOutput(self.COUNT, summary["documents"])
        # What an older version left unfinished does not say.
        loss = Loss(summary.get("bytes_kept", 0), Counter(summary.get("bytes_lost", {})))
        is_whole = unit.stop is None and not unit.start
        yield beam.pvalue.TaggedOutput(self.LOSSES, (unit.input.path, unit.input.origin, is_whole, loss))

    def _fits(self, places: list[tuple[Any, BlockPlace]], summary: dict[str, Any]) -> bool:
        """Return whether keys and summary of a file of blocks are such as `_blocks` gives."""
        try:
            keys = convert([key for key, _ in places], list[tuple[Split, Count]])
            require(summary, UnitSummary)
        except JsonError:
            return False
        return all(number < self._options.num_buckets_of(split) for split, number in keys)

    def _blocks(self, unit: FileSplit, summary: dict[str, Any]) -> Iterator[tuple[Bucket, bytes]]:
        held: dict[Bucket, list[Record]] = {}
        loss = Loss()
        characters = 0
        for document in _documents_of(unit, self._options.read):
            record = to_record(document, self._options, unit.input.origin, unit.input.weight)
            held.setdefault(bucket_of_document(record.id, self._options), []).append(record)
            summary["documents"] += 1
            loss.add(record)
            characters += len(record.text)
            if characters > _FLUSH_CHARACTERS:
                yield from ((bucket, to_block(records)) for bucket, records in held.items())
                held, characters = {}, 0
        summary.update(bytes_kept=loss.kept, bytes_lost=dict(loss.lost))
        yield from ((bucket, to_block(records)) for bucket, records in held.items())
