"""Transforms that read documents, and transforms of single documents."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.coders import Coder, registry
from apache_beam.metrics import Metrics

from beambert.pipelines.cleaning.language_codes import require_language
from beambert.pipelines.cleaning.rules import CleaningOptions
from beambert.pipelines.corpus import document_steps as steps
from beambert.pipelines.corpus.reading import FileSplit, Input, read_documents, split_inputs
from beambert.pipelines.documents import Document, Removed
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.segmentation.own_abbreviations import read_abbreviations
from beambert.pipelines.segmentation.segmenters import SEGMENTERS
from beambert.pipelines.sources.files import match_files

_NAMESPACE = "beambert"
_NAMES = [field.name for field in dataclasses.fields(Document) if field.name != "removed"]


class DocumentCoder(Coder):
    """Encode a `Document` as a JSON array of its fields."""

    def encode(self, document: Document) -> bytes:
        """Return the JSON array."""
        values = [getattr(document, name) for name in _NAMES]
        return json.dumps([*values, dataclasses.astuple(document.removed)]).encode("ascii")

    def decode(self, encoded: bytes) -> Document:
        """Return the document of a JSON array."""
        *values, (counts, dropped, *others) = json.loads(encoded)
        removed = Removed(counts, list(map(tuple, dropped)), *others)
        return Document(**dict(zip(_NAMES, values, strict=True)), removed=removed)

    def is_deterministic(self) -> bool:
        """Return False, because equal documents may have rules in different order."""
        return False


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
        **options: other fields of `beambert.pipelines.sources.ReadOptions`, such as encoding or text_field.

    Raises:
        SourceError: when the pipeline runs: no file matches, or a file cannot be read or has changed.
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

    def expand(self, pipeline: beam.pvalue.PBegin) -> beam.PCollection:
        """Return the documents."""
        splits = pipeline | "Patterns" >> beam.Create([self._patterns]) | "Splits" >> beam.FlatMap(self._splits)
        read = _Read(self._options, self._line_paragraphs)
        return splits | "Spread" >> beam.Reshuffle() | "Read" >> beam.ParDo(read)

    def _splits(self, patterns: list[str]) -> list[FileSplit]:
        origins: dict[str, Input] = {}
        for pattern in patterns:
            for file in match_files([pattern], "ReadDocuments", absolute_paths=False):
                found = Input(file.path, file.size_in_bytes, file.last_updated_in_seconds, pattern, self._weight)
                origins.setdefault(file.path, found)
        return split_inputs([file for _, file in sorted(origins.items())], self._options)


class _Read(beam.DoFn):
    _READ = Metrics.counter(_NAMESPACE, "documents_read")

    def __init__(self, options: ReadOptions, line_paragraphs: bool) -> None:
        self._options, self._line_paragraphs = options, line_paragraphs

    def process(self, file_split: FileSplit) -> Iterator[Document]:
        """Yield the documents of a file split."""
        for document in read_documents(file_split, self._options, line_paragraphs=self._line_paragraphs):
            self._READ.inc()
            yield document


class _Step(beam.DoFn):
    """Apply a function to a document, and count the documents that it rejects."""

    def __init__(self, step: Callable[..., Document], *arguments: Any) -> None:
        self._step, self._arguments = step, arguments

    def process(self, document: Document) -> Iterator[Document]:
        """Yield the result."""
        if not isinstance(document, Document):
            raise SourceError(
                f"an element is a {type(document).__name__}, not a beambert.pipelines.transforms.Document"
            )
        changed = self._step(document, *self._arguments)
        if changed.rejected and not document.rejected:
            Metrics.counter(_NAMESPACE, f"documents_rejected_{changed.rejected}").inc()
        yield changed


class _SegmentStep(_Step):
    """Segment documents with the abbreviations of a file."""

    def __init__(self, language: str, segmenter: str, path: str) -> None:
        self._options = language, segmenter, path

    def setup(self) -> None:
        """Read the file."""
        language, segmenter, path = self._options
        super().__init__(steps.segment_document, language, segmenter, read_abbreviations(path))


@beam.typehints.with_input_types(Document)
@beam.typehints.with_output_types(Document)
class _DocumentTransform(beam.PTransform):
    """Apply a function of `beambert.pipelines.corpus.document_steps` to every document."""

    def __init__(self, step: Callable[..., Document], *arguments: Any) -> None:
        super().__init__()
        self._step = _Step(step, *arguments)

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        """Return the changed documents."""
        return documents | beam.ParDo(self._step)


class CleanDocuments(_DocumentTransform):
    """Clean the paragraphs: markup, control characters, boilerplate.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["A  text[1] with&nbsp;markup.", "* * *"])])
    ...     _ = documents | CleanDocuments() | beam.Map(lambda document: print(document.paragraphs))
    ['A text with markup.']

    Args:
        rules: active rules; None for the defaults of `beambert corpus`. Rules for whole documents are those of
            `RejectDocuments`.
    """

    def __init__(self, rules: CleaningOptions | None = None) -> None:
        super().__init__(steps.clean_document, rules or CleaningOptions())


class SegmentSentences(_DocumentTransform):
    """Segment the paragraphs into sentences, and compute the ID of the document.

    A document that states its language is segmented by the rules of that language.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["Dr. Ross sat. He rose.", "The end."])])
    ...     _ = documents | SegmentSentences("en") | beam.Map(lambda document: print(document.sentences))
    [['Dr. Ross sat.', 'He rose.'], ['The end.']]

    Args:
        language: ISO 639 code.
        segmenter: "rules", "lines" (a sentence per line, see `line_paragraphs` of `ReadDocuments`) or "sentencex".
        abbreviations: path of a file as of `--abbreviations`, on any Beam filesystem, for the segmenter "rules"; "" for
            none. Each worker reads it.

    Raises:
        SourceError: the language or the segmenter is unknown; when the pipeline runs: the file cannot be read, or a
            line is no abbreviation.
    """

    def __init__(self, language: str = "en", segmenter: str = "rules", abbreviations: str = "") -> None:
        require_language(language)
        if segmenter not in SEGMENTERS:
            raise SourceError(f"invalid segmenter {segmenter}: must be one of {', '.join(SEGMENTERS)}")
        super().__init__(steps.segment_document, language, segmenter, "")
        if abbreviations:
            self._step = _SegmentStep(language, segmenter, abbreviations)


class RejectDocuments(_DocumentTransform):
    """Reject segmented documents without text, and by the document rules: length, symbols, repetition.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["Too short."])]) | SegmentSentences()
    ...     rejected = documents | RejectDocuments(CleaningOptions(min_words=50))
    ...     _ = rejected | beam.Map(lambda document: print(document.rejected))
    too_short

    Args:
        rules: active rules and their thresholds; None for the defaults of `beambert corpus`.
    """

    def __init__(self, rules: CleaningOptions | None = None) -> None:
        super().__init__(steps.reject_document, rules or CleaningOptions())


class IdentifyLanguage(_DocumentTransform):
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
        SourceError: when the pipeline runs, without `keep`: a document is segmented by the rules of a language.
    """

    def __init__(self, keep: str = "") -> None:
        super().__init__(*(steps.reject_other_language, keep) if keep else (steps.identify_language,))


class RejectContaminated(_DocumentTransform):
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
    """

    def __init__(self, evaluation_files: Sequence[str], action: str = "drop") -> None:
        super().__init__(steps.decontaminate, list(evaluation_files), action)


class TruncateSentences(_DocumentTransform):
    """Truncate a random fraction of the sentences at a random word; the random draws depend on the document only.

    >>> with beam.Pipeline() as pipeline:
    ...     documents = pipeline | beam.Create([Document(["One two three four."])]) | SegmentSentences()
    ...     _ = documents | TruncateSentences(1.0) | beam.Map(lambda document: print(document.sentences))
    [['One two']]

    Args:
        share: fraction of the sentences, from 0 to 1.
    """

    def __init__(self, share: float) -> None:
        super().__init__(steps.truncate_document, share)
