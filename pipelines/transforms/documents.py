"""Transforms that read documents, and transforms of single documents."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import msgspec
from apache_beam.coders import Coder, registry
from apache_beam.metrics import Metrics

from beambert.common.command_line.options import from_mapping
from beambert.pipelines.cleaning import quality_model
from beambert.pipelines.cleaning.rules import CleaningOptions, fold_whitespace
from beambert.pipelines.corpus import document_steps as steps
from beambert.pipelines.corpus.blocks import read_block_marker, write_block_file, write_block_marker
from beambert.pipelines.corpus.counts import Loss
from beambert.pipelines.corpus.options import CorpusOptions, Partition
from beambert.pipelines.documents import Document, identified
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.io.job_progress import READING, WorkCounter
from beambert.pipelines.segmentation.own_abbreviations import read_abbreviations
from beambert.pipelines.sources.files import match_files, read_position
from beambert.pipelines.sources.readers import FileSplit, Input, read_documents, split_inputs
from beambert.pipelines.transforms.partitions import BlockBuffer, corpus_options

_NAMESPACE = "beambert"
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DECODER = msgspec.msgpack.Decoder(Document)


class DocumentCoder(Coder):
    """Encode a `Document` as MessagePack."""

    def encode(self, document: Document) -> bytes:
        """Return the bytes of a document, the same for equal documents."""
        return _ENCODER.encode(document)

    def decode(self, encoded: bytes) -> Document:
        """Return the document of these bytes."""
        return _DECODER.decode(encoded)

    def is_deterministic(self) -> bool:
        """Return True: documents can be keys."""
        return True


registry.register_coder(Document, DocumentCoder)


@beam.typehints.with_output_types(Document)
class ReadDocuments(beam.PTransform):
    """Read documents from files of any format that `beambert corpus` reads.

    A large file of lines or a large dump is read by several workers. The counter `documents_read` has the number of
    documents.

    >>> from pathlib import Path
    >>> _ = Path("two.txt").write_text("First text.\\n\\nSecond text.\\n", encoding="utf-8")
    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | ReadDocuments("two.txt", format="sentences")
    ...     _ = documents | beam.Map(lambda document: print(document.paragraphs, document.line))
    ['First text.'] 1
    ['Second text.'] 3

    Args:
        pattern: a glob pattern, or several. A file that several patterns match is read once.
        format: input format as of `--input_format`; "auto" recognizes each file.
        weight: sampling weight of the documents.
        line_paragraphs: whether each line of the format "text" is a paragraph, as `beambert corpus --segmenter lines`
            reads it. By default, consecutive lines of a file with empty lines are joined.
        **options: other fields of `beambert.pipelines.transforms.ReadOptions`, such as encoding or text_field.

    Raises:
        SourceError: an option or the weight is invalid; when the pipeline runs: no file matches, or a file cannot be
            read or has changed.
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        format: str = "auto",
        *,
        weight: float = 1.0,
        line_paragraphs: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self._patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        self._weight = weight
        self._line_paragraphs = line_paragraphs
        self._options = ReadOptions(format, **options)
        self.recorded = {"read": self._options}
        corpus_options(**self.recorded)
        # The check of a document.
        Document([], weight=weight)

    def expand(self, pipeline: beam.pvalue.PBegin) -> beam.PCollection:
        """Return the documents."""
        patterns = pipeline | "Patterns" >> beam.Create([self._patterns])
        inputs = patterns | "Inputs" >> MatchInputs(self._weight)
        splits = inputs | "Splits" >> beam.FlatMap(split_inputs, self._options)
        read = _Read(self._options, self._line_paragraphs)
        return splits | "Spread" >> beam.Reshuffle() | "Read" >> beam.ParDo(read)


@beam.typehints.with_output_types(list[Input])
class MatchInputs(beam.PTransform):
    """Return the list of the files that glob patterns match; `WriteCorpus` records it too.

    Args:
        weight: sampling weight of the documents of the files.
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self._weight = weight

    def expand(self, patterns: beam.PCollection) -> beam.PCollection:
        """Return one list, sorted by path."""
        return patterns | beam.Map(_match_inputs, self._weight)


def _match_inputs(patterns: list[str], weight: float) -> list[Input]:
    inputs: dict[str, Input] = {}
    for pattern in patterns:
        for file in match_files([pattern], "ReadDocuments", absolute_paths=False):
            found = Input(file.path, file.size_in_bytes, file.last_updated_in_seconds, pattern, weight)
            inputs.setdefault(file.path, found)
    return [file for _, file in sorted(inputs.items())]


class _Read(beam.DoFn):
    _READ = Metrics.counter(_NAMESPACE, "documents_read")

    def __init__(self, options: ReadOptions, line_paragraphs: bool) -> None:
        self._options, self._line_paragraphs = options, line_paragraphs

    def process(self, file_split: FileSplit) -> Iterator[Document]:
        """Yield the documents of a file split."""
        for document in read_documents(file_split, self._options, line_paragraphs=self._line_paragraphs):
            self._READ.inc()
            yield document


@beam.typehints.with_input_types(Document)
@beam.typehints.with_output_types(Document)
class DocumentTransform(beam.PTransform):
    """Apply a function to every document, and count the documents that it rejects in `documents_rejected_RULE`.

    Args:
        function: from a document and keyword arguments to the changed document.
        **arguments: the keyword arguments.

    Attributes:
        recorded: fields of `CorpusOptions` that describe the transform, for the manifest of a corpus.
    """

    recorded: Mapping[str, Any] = {}

    def __init__(self, function: Callable[..., Document], /, **arguments: Any) -> None:
        super().__init__()
        self.step = functools.partial(function, **arguments)

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        """Return the changed documents."""
        return documents | beam.ParDo(_Apply(self.step))


class _Apply(beam.DoFn):
    def __init__(self, step: Callable[..., Document]) -> None:
        self._step = step

    def process(self, document: Document, **side_inputs: Any) -> Iterator[Document]:
        if not isinstance(document, Document):
            raise SourceError(
                f"an element is a {type(document).__name__}, not a beambert.pipelines.transforms.Document"
            )
        changed = self._step(document, **side_inputs)
        if changed.rejected and not document.rejected:
            Metrics.counter(_NAMESPACE, f"documents_rejected_{changed.rejected}").inc()
        yield changed


class CleanDocuments(DocumentTransform):
    """Clean the paragraphs: markup, control characters, boilerplate.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["A  text[1] with&nbsp;markup.", "* * *"])])
    ...     _ = documents | CleanDocuments() | beam.Map(lambda document: print(document.paragraphs))
    ['A text with markup.']

    Args:
        rules: active rules, or a mapping of fields of `CleaningOptions`; None for the defaults of `beambert corpus`.
            Rules for whole documents are those of `RejectDocuments`.
    """

    def __init__(self, rules: CleaningOptions | Mapping[str, Any] | None = None) -> None:
        super().__init__(steps.clean_document, options=_cleaning_options(rules))


def _cleaning_options(rules: CleaningOptions | Mapping[str, Any] | None) -> CleaningOptions:
    return from_mapping(CleaningOptions, rules, "rules", SourceError)


class RejectUrls(DocumentTransform):
    """Reject documents by the URL in their metadata: those on lists that block, and those not on lists that allow.

    >>> from pathlib import Path
    >>> _ = Path("blocked.txt").write_text("example.org\\n.pdf\\ncasino\\n", encoding="utf-8")
    >>> urls = ["https://www.example.org/a", "http://x.net/a.pdf", "http://x.net/best-casino", "http://x.net/a"]
    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["A text."], metadata={"url": url}) for url in urls])
    ...     found = documents | RejectUrls(block=["blocked.txt"])
    ...     _ = found | beam.Map(lambda document: print(document.metadata["url"], document.rejected or "kept"))
    https://www.example.org/a blocked_url
    http://x.net/a.pdf blocked_url
    http://x.net/best-casino blocked_url
    http://x.net/a kept

    Args:
        block: paths of files as of `--block_urls`, on any Beam filesystem.
        allow: paths of files as of `--allow_urls`.

    Raises:
        SourceError: the files are no list; when the pipeline runs: a file cannot be read, or is invalid.
    """

    def __init__(self, block: Sequence[str] = (), allow: Sequence[str] = ()) -> None:
        block, allow = (paths if isinstance(paths, str) else list(paths) for paths in (block, allow))
        self.recorded = {"block_urls": block, "allow_urls": allow}
        corpus_options(**self.recorded)
        super().__init__(steps.reject_by_url, block=block, allow=allow)


class SegmentSentences(DocumentTransform):
    """Segment the paragraphs into sentences, one a line, and compute the ID of the document.

    A document that states its language is segmented by the rules of that language.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["Dr. Ross sat. He rose.", "The end."])])
    ...     _ = documents | SegmentSentences("en") | beam.Map(lambda document: print(document.sentences))
    ['Dr. Ross sat.', 'He rose.', 'The end.']

    Args:
        language: ISO 639 code.
        segmenter: "rules", "lines" (a sentence per line, see `line_paragraphs` of `ReadDocuments`) or "sentencex".
        abbreviations: for the segmenter "rules", path of a file as of `--abbreviations`, on any Beam filesystem, which
            is read when the pipeline runs; or a list of abbreviations.

    Raises:
        SourceError: the language or the segmenter is unknown, or another segmenter than "rules" has abbreviations; when
            the pipeline runs: the file cannot be read, or a line is no abbreviation.
    """

    def __init__(self, language: str = "en", segmenter: str = "rules", abbreviations: str | Sequence[str] = ()) -> None:
        self._path, own = (abbreviations, ()) if isinstance(abbreviations, str) else ("", abbreviations)
        corpus_options(language=language, segmenter=segmenter, abbreviations=self._path or "\n".join(own))
        super().__init__(
            steps.segment_document, language=language, segmenter=segmenter, abbreviations=_join_abbreviations(own)
        )
        self.recorded = self.step.keywords

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        """Return the segmented documents."""
        if not self._path:
            return super().expand(documents)
        paths = documents.pipeline | "AbbreviationsFile" >> beam.Create([self._path])
        own = paths | "Abbreviations" >> ReadAbbreviations()
        return documents | beam.ParDo(_Apply(self.step), abbreviations=beam.pvalue.AsSingleton(own))


class ReadAbbreviations(beam.PTransform):
    """Return the content of a file of abbreviations; `WriteCorpus` records it too."""

    def expand(self, paths: beam.PCollection) -> beam.PCollection:
        """Return the result of `read_abbreviations` of each path."""
        return paths | beam.Map(read_abbreviations)


class RejectDocuments(DocumentTransform):
    """Reject segmented documents without text, and by the document rules: length, symbols, repetition.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["Too short."])]) | SegmentSentences()
    ...     rejected = documents | RejectDocuments(CleaningOptions(min_words=50))
    ...     _ = rejected | beam.Map(lambda document: print(document.rejected))
    too_short

    Args:
        rules: active rules and their thresholds, as for `CleanDocuments`.
    """

    def __init__(self, rules: CleaningOptions | Mapping[str, Any] | None = None) -> None:
        super().__init__(steps.reject_document, options=_cleaning_options(rules))


class IdentifyLanguage(DocumentTransform):
    """Identify the language of documents of at least 200 characters (needs the extra `[clean]`).

    >>> text = "Das ist ein Satz in deutscher Sprache, wie man ihn in einer Zeitung lesen kann. " * 3
    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document([text])])
    ...     _ = documents | IdentifyLanguage() | beam.Map(lambda document: print(document.language))
    de

    Args:
        keep: language whose documents are kept; those in other languages are rejected. "" sets the field `language`
            of documents that state none, and rejects nothing; apply it before `SegmentSentences`, which segments by
            that language.

    Raises:
        SourceError: the language is unknown; when the pipeline runs, without `keep`: a document is segmented by the
            rules of a language.
    """

    def __init__(self, keep: str = "") -> None:
        if keep:
            corpus_options(language=keep)
            super().__init__(steps.reject_other_language, language=keep)
            self.recorded = {"identify_language": True}
        else:
            super().__init__(steps.identify_language)


class RejectContaminated(DocumentTransform):
    """Reject segmented documents that share a 13-gram with evaluation data.

    >>> from pathlib import Path
    >>> text = "the quick brown fox jumps over the lazy dog and then sleeps all day long"
    >>> _ = Path("evaluation.txt").write_text(text + "\\n", encoding="utf-8")
    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document([text])]) | SegmentSentences()
    ...     rejected = documents | RejectContaminated(["evaluation.txt"])
    ...     _ = rejected | beam.Map(lambda document: print(document.rejected))
    contaminated

    Args:
        evaluation_files: paths of the files.
        action: "drop" to reject such documents, "report" to keep and list them.

    Raises:
        SourceError: the files are no list, or the action is unknown.
    """

    def __init__(self, evaluation_files: Sequence[str], action: str = "drop") -> None:
        paths = evaluation_files if isinstance(evaluation_files, str) else list(evaluation_files)
        self.recorded = {"decontaminate": paths, "decontaminate_action": action}
        corpus_options(**self.recorded)
        super().__init__(steps.decontaminate, evaluation_files=paths, action=action)


class RejectLowQuality(DocumentTransform):
    """Reject segmented documents by a model of `beambert quality train`.

    >>> from pathlib import Path
    >>> from beambert.pipelines.cleaning.quality_model import TextSample, train
    >>> good, bad = TextSample(), TextSample()
    >>> for number in range(20):
    ...     good.add(f"Cat {number} sleeps.")
    ...     bad.add(f"Buy {number} cats now.")
    >>> _ = Path("model").write_bytes(train(good.examples(), bad.examples()).model.to_bytes())
    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["Buy now."])]) | SegmentSentences()
    ...     rejected = documents | RejectLowQuality("model", min_quality=0.5)
    ...     _ = rejected | beam.Map(lambda document: print(document.rejected))
    low_quality

    Args:
        model: path of the model, on any Beam filesystem that the workers can read.
        min_quality: minimum probability of a good text, above 0.
        sha256: hex SHA-256 that the model must have; "" reads and records it when the pipeline is built.

    Raises:
        SourceError: the model cannot be read, or the minimum is out of range; when the pipeline runs: the model has
            changed.
    """

    def __init__(self, model: str, min_quality: float, sha256: str = "") -> None:
        sha256 = sha256 or quality_model.checksum(model)
        self.recorded = {"quality_model": model, "min_quality": min_quality, "quality_model_sha256": sha256}
        corpus_options(**self.recorded)
        super().__init__(steps.reject_low_quality, model=model, min_quality=min_quality, sha256=sha256)


class TruncateSentences(DocumentTransform):
    """Truncate a random fraction of the sentences at a random word; the random draws depend on the document only.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["One two three four."])]) | SegmentSentences()
    ...     _ = documents | TruncateSentences(1.0) | beam.Map(lambda document: print(document.sentences))
    ['One two']

    Args:
        share: fraction of the sentences, from 0 to 1.

    Raises:
        SourceError: the fraction is out of range.
    """

    def __init__(self, share: float) -> None:
        self.recorded = {"truncation_noise": share}
        corpus_options(**self.recorded)
        super().__init__(steps.truncate_document, share=share)


class RejectIf(DocumentTransform):
    """Reject documents by a function of yours, counted and listed as those of our rules.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["A recipe."]), Document(["A poem."])])
    ...     found = documents | RejectIf(lambda document: "recipe" in document.text, name="recipe")
    ...     _ = found | beam.Map(lambda document: print(document.text, document.rejected or "kept"))
    A recipe. recipe
    A poem. kept

    Args:
        function: gets a `Document`, and returns False to keep it, True to reject it, or the name of the rule that
            rejects it; or its name, "package.module:function", which the workers import.
        name: name of the rule, if the function returns True; "" for the name of the function.

    Raises:
        SourceError: the function has no name, or cannot be imported; when the pipeline runs: it returns something else.
    """

    def __init__(self, function: Callable[[Document], bool | str] | str, name: str = "") -> None:
        super().__init__(steps.reject_if, function=function, rule=name or _name_of(function))
        self.recorded = {"filters": [function if isinstance(function, str) else self.step.keywords["rule"]]}

    def default_label(self) -> str:
        """Return the label, with the name of the rule, so that a pipeline can have several."""
        return f"RejectIf({self.step.keywords['rule']})"


class CleanParagraphs(DocumentTransform):
    """Clean paragraphs by a function of yours, counted and listed as those of our rules; apply it before segmentation.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["(C) me", "A poem. (C) me"])])
    ...     cleaned = documents | CleanParagraphs(lambda text: text.replace("(C) me", "").strip(), "copyright")
    ...     _ = cleaned | beam.Map(lambda document: print(document.paragraphs, document.removed.counts))
    ['A poem.'] {'copyright': 2}

    Args:
        function: gets a paragraph, and returns the cleaned one, or "" to drop it; or its name, as for `RejectIf`.
        name: name of the rule; "" for the name of the function.

    Raises:
        SourceError: as of `RejectIf`.
    """

    def __init__(self, function: Callable[[str], str] | str, name: str = "") -> None:
        super().__init__(steps.clean_with, function=function, rule=name or _name_of(function))

    def default_label(self) -> str:
        """Return the label, with the name of the rule, so that a pipeline can have several."""
        return f"CleanParagraphs({self.step.keywords['rule']})"


def _join_abbreviations(own: Sequence[str]) -> str:
    """Return abbreviations as `read_abbreviations` does."""
    return "\n".join(sorted({fold_whitespace(abbreviation).removesuffix(".") for abbreviation in own}))


def _name_of(function: Callable[..., Any] | str) -> str:
    if isinstance(function, str):
        steps.load_function(function)
        return function.partition(":")[2]
    name = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>":
        raise SourceError("a rule of a lambda has no name; give it with name")
    return name


@beam.typehints.with_input_types(Document)
class PartitionRejected(beam.PTransform):
    """Divide documents into those that are kept and those that some rule has rejected, for a sink of your own.

    `WriteCorpus`, `LearnWordPieceVocabulary` and `CreatePretrainingExamples` take both together, and use the kept ones.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["A poem."]), Document(["Spam."], rejected="spam")])
    ...     found = documents | PartitionRejected()
    ...     _ = found.kept | "Kept" >> beam.Map(lambda document: print("kept", document.text))
    ...     _ = found.rejected | "Rejected" >> beam.Map(lambda document: print(document.rejected, document.text))
    kept A poem.
    spam Spam.
    """

    def expand(self, documents: beam.PCollection) -> Any:
        """Return the outputs `kept` and `rejected`."""
        return documents | beam.ParDo(_divide).with_outputs("rejected", main="kept")


def _divide(document: Document) -> Iterator[Any]:
    yield beam.pvalue.TaggedOutput("rejected", document) if document.rejected else document


def corpus_transforms(options: CorpusOptions) -> list[DocumentTransform]:
    """Return the transforms of single documents that `beambert corpus` applies, in their order."""
    transforms: list[DocumentTransform] = []
    if options.block_urls or options.allow_urls:
        transforms.append(RejectUrls(options.block_urls, options.allow_urls))
    transforms += [
        CleanDocuments(options.cleaning),
        SegmentSentences(options.language, options.segmenter, options.abbreviations.splitlines()),
        RejectDocuments(options.cleaning),
    ]
    transforms += map(RejectIf, options.filters)
    if options.identify_language:
        transforms.append(IdentifyLanguage(keep=options.language))
    if options.decontaminate:
        transforms.append(RejectContaminated(options.decontaminate, options.decontaminate_action))
    if options.quality_model:
        transforms.append(RejectLowQuality(options.quality_model, options.min_quality, options.quality_model_sha256))
    if options.truncation_noise:
        # Last, so that truncation affects neither the partition of a document nor the detection of duplicates.
        transforms.append(TruncateSentences(options.truncation_noise))
    return transforms


def corpus_step(options: CorpusOptions) -> Callable[[Document], Document]:
    """Return the function of a document that applies `corpus_transforms` and sets its ID."""
    return functools.partial(_prepare, [transform.step for transform in corpus_transforms(options)], options.language)


def _prepare(functions: list[Callable[[Document], Document]], language: str, document: Document) -> Document:
    for function in functions:
        document = function(document)
    return identified(document, language)


@beam.ptransform_fn
def ReadBlocks(splits: beam.PCollection, options: CorpusOptions, work: str = "") -> Any:
    """Read file splits into blocks of documents by partition, after `corpus_transforms`; a job resumes from the blocks.

    Args:
        splits: the file splits, from `split_inputs`.
        options: options of the corpus.
        work: work directory for block files, for a runner that shuffles in memory: only the locations of blocks are
            shuffled, and splits read by an earlier job are reused. "" shuffles the blocks themselves.

    Returns:
        The outputs `blocks`, `documents_read` (a number for each split) and `losses`: (path, --input pattern, whether
        the split is the complete file, loss).
    """
    read = _ReadBlocks(options, work)
    spread = splits | "Spread" >> beam.Reshuffle()
    return spread | "Read" >> beam.ParDo(read).with_outputs(read.COUNT, read.LOSSES, main="blocks")


class _ReadBlocks(beam.DoFn):
    COUNT, LOSSES = "documents_read", "losses"
    # For monitoring only; the counts of the manifest are computed from the data.
    _READ = Metrics.counter(_NAMESPACE, "documents_read")

    def __init__(self, options: CorpusOptions, work: str) -> None:
        self._options, self._work = options, work
        self._prepare = corpus_step(options)

    def process(self, file_split: FileSplit) -> Iterator[Any]:
        summary: dict[str, Any] = {"documents": 0}
        counter = WorkCounter(READING, file_split.bytes)
        if not self._work:
            yield from self._blocks(file_split, summary, counter)
        else:
            path = f"{self._work}/{file_split.name()}"
            finished = read_block_marker(path)
            if finished is None:
                locations = write_block_file(path, self._blocks(file_split, summary, counter))
                write_block_marker(path, locations, summary)
            else:
                locations, summary = finished
            yield from locations
        counter.finish(summary["documents"])
        self._READ.inc(summary["documents"])
        yield beam.pvalue.TaggedOutput(self.COUNT, summary["documents"])
        loss = Loss(summary["bytes_kept"], Counter(summary["bytes_lost"]))
        file, is_complete = file_split.input, file_split.is_whole_file
        yield beam.pvalue.TaggedOutput(self.LOSSES, (file.path, file.origin, is_complete, loss))

    def _blocks(
        self, file_split: FileSplit, summary: dict[str, Any], counter: WorkCounter
    ) -> Iterator[tuple[Partition, bytes]]:
        buffer, loss = BlockBuffer(self._options), Loss()
        line_paragraphs = self._options.segmenter == "lines"
        for document in read_documents(file_split, self._options.read, line_paragraphs=line_paragraphs):
            document = self._prepare(document)
            summary["documents"] += 1
            counter.add(1, read_position(file_split.input.path) - file_split.start)
            loss.add(document)
            yield from buffer.add(document)
        summary.update(bytes_kept=loss.kept, bytes_lost=dict(loss.lost))
        yield from buffer.flush()
