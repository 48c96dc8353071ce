"""Job 1: files -> documents -> sentences -> buckets -> Parquet parts, word counts and a vocabulary.

This file only composes; rules live in `sources/`, `cleaning.py`, `segmentation.py` and the `tokenizer` package.
Counts come from the data that is written, never from Beam's counters, which count retried work twice.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from pipelines import cleaning, corpus_files
from pipelines.cleaning import CleaningOptions
from pipelines.corpus_files import Corpus, Part
from pipelines.decontamination import is_contaminated, load_keys
from pipelines.documents import Document, bucket_of, identity, is_validation
from pipelines.language_identification import is_other_language
from pipelines.segmentation import document_sentences, truncate_sentences
from pipelines.sources import ReadOptions, SourceError, read_file, split_file
from pipelines.versions import require_same_rules, versions
from pipelines.vocabulary import VocabularyOptions, make_vocabulary, num_word_groups, word_batches
from pipelines.writing import write_text

_REJECTED_A_PART = 1000
_SNIPPET_CHARACTERS = 200

# Of each rule in each document; a document of many dropped lines must not weigh more in the shuffle than its text.
_DROPPED_A_DOCUMENT = 3

# (16-byte identity, title, source, sentences joined by line ends, reason of rejection or "",
#  JSON of the paragraph rules' work on it or "": {"counts": {rule: paragraphs}, "dropped": [[rule, snippet]],
#  "reported": [rule for which it would have been left out]})
Record = tuple[bytes, str, str, str, str, str]
# (split, number within the split)
Bucket = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class CorpusOptions(VocabularyOptions):
    """What job 1 does, its vocabulary included.

    Attributes:
        read: how files are read.
        language: ISO 639 code, for sentence segmentation.
        segmenter: a name of `pipelines.segmentation.SEGMENTERS`.
        truncation_noise: share of sentences that are cut off at a random word.
        num_buckets: parts of the train split; a bucket is sampled and shuffled in memory as a whole.
        validation_fraction: share of documents held out.
        cleaning: which cleaning rules run, and their thresholds.
        identify_language: whether documents in another language than `language` are left out.
        decontaminate: evaluation files whose text is looked for in the documents.
        decontaminate_action: "drop" or "report": what becomes of a document that shares text with them.
    """

    read: ReadOptions
    language: str
    segmenter: str
    truncation_noise: float
    num_buckets: int
    validation_fraction: float
    cleaning: CleaningOptions = dataclasses.field(default_factory=CleaningOptions)
    identify_language: bool = False
    decontaminate: list[str] = dataclasses.field(default_factory=list)
    decontaminate_action: str = "drop"

    def num_buckets_of(self, split: str) -> int:
        """Parts of a split; those of the held-out documents are about as large as the others."""
        return self.num_buckets if split == "train" else max(1, round(self.num_buckets * self.validation_fraction))


def choose_num_buckets(input_bytes: int) -> int:
    """Buckets for a corpus of so many bytes of text.

    At most 64 MiB a bucket, so that one fits in memory with its instances; below that up to 16, of at least 2 MiB
    each, so that several processes have work while every document still finds many others to be paired with.
    """
    return max(-(-input_bytes // (64 << 20)), min(16, -(-input_bytes // (2 << 20))), 1)


class ReadDocuments(beam.DoFn):
    """(path, start, stop) -> documents; on the side (number of documents,) for the balance in the manifest."""

    COUNT = "documents_read"

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def process(self, part: tuple[str, int, int | None]) -> Iterator[Any]:
        """Reads one file, or one part of it."""
        count = 0
        for document in read_file(part[0], self._options, *part[1:]):
            count += 1
            yield document
        yield beam.pvalue.TaggedOutput(self.COUNT, count)


class SegmentAndKey(beam.DoFn):
    """Document -> ((split, bucket), record), cleaned."""

    def __init__(self, options: CorpusOptions) -> None:
        self._options = options

    def process(self, document: Document) -> Iterator[tuple[Bucket, Record]]:
        """Cleans one document, splits it into sentences and finds its bucket."""
        options = self._options
        counts: Counter[str] = Counter()
        dropped: list[tuple[str, str]] = []
        paragraphs = cleaning.clean_paragraphs(document.paragraphs, options.cleaning, counts, dropped)
        language = document.language or options.language
        sentences = document_sentences(paragraphs, language, document.segmented, options.segmenter)
        # What a reader rejects may hold no text: its title spreads it over the buckets.
        document_id = identity([document.rejected, document.title] if document.rejected else sentences)
        split = "validation" if is_validation(document_id, options.validation_fraction) else "train"
        bucket = (split, bucket_of(document_id, options.num_buckets_of(split)))
        reason = document.rejected or cleaning.rejection_reason(sentences, options.cleaning) or ""
        if not reason and options.identify_language and is_other_language(sentences, options.language):
            reason = cleaning.LANGUAGE
        reported: list[str] = []
        if not reason and self._contaminated(sentences):
            if options.decontaminate_action == "drop":
                reason = cleaning.CONTAMINATED
            else:
                reported.append(cleaning.CONTAMINATED)
        # Last, so that noise moves no document to another bucket and hides no duplicate.
        sentences = truncate_sentences(sentences, options.truncation_noise, document_id)
        work = ""
        if counts or reported:
            work = json.dumps({"counts": counts, "dropped": _sample(dropped), "reported": reported}, sort_keys=True)
        yield bucket, (document_id, document.title, document.source, "\n".join(sentences), reason, work)

    def _contaminated(self, sentences: list[str]) -> bool:
        files = self._options.decontaminate
        return bool(files) and is_contaminated(sentences, load_keys(tuple(files)))


def _sample(dropped: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The first few texts that each rule dropped from a document, cut to snippets."""
    seen: Counter[str] = Counter()
    sample = []
    for rule, text in dropped:
        seen[rule] += 1
        if seen[rule] <= _DROPPED_A_DOCUMENT:
            sample.append((rule, text[:_SNIPPET_CHARACTERS]))
    return sample


class _RejectedLines:
    """What a part leaves out, documents and paragraphs, as JSON lines: at most `_REJECTED_A_PART` of each rule.

    Records come sorted by identity, a hash, so that those under the cap are a random sample, the same in every run.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._lines: list[str] = []

    def add(self, record: Record, rule: str, text: str) -> None:
        self._seen[rule] += 1
        if self._seen[rule] <= _REJECTED_A_PART:
            line = {
                "id": record[0].hex(),
                "reason": rule,
                "title": record[1],
                "source": record[2],
                "text": text[:_SNIPPET_CHARACTERS],
            }
            self._lines.append(json.dumps(line, ensure_ascii=False) + "\n")

    def write(self, path: str) -> None:
        if self._lines:
            write_text(path, "".join(self._lines))


def drop_duplicates(records: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """The records of a bucket that stay, sorted, none with the text of another, and those that are rejected."""
    kept: list[Record] = []
    rejected: list[Record] = []
    # Sorting by all fields makes the copy that stays independent of the order of arrival.
    for record in sorted(records):
        if record[4]:
            rejected.append(record)
        elif kept and kept[-1][0] == record[0]:
            rejected.append((*record[:4], cleaning.DUPLICATE, record[5]))
        else:
            kept.append(record)
    return kept, rejected


def count_part(split: str, kept: list[Record], options: CorpusOptions) -> Iterator[Any]:
    """The word counts of one part, as `pipelines.vocabulary.make_vocabulary` takes them."""
    texts = (record[3] for record in kept)
    return word_batches(split, texts, options, num_word_groups(options.num_buckets))


class CountPart(beam.DoFn):
    """((split, bucket), records) -> its word counts: what `WritePart` has on the side, without the files."""

    def __init__(self, options: CorpusOptions) -> None:
        self._options = options

    def setup(self) -> None:
        """Checks, once a worker thread, that it is a worker like the others."""
        require_same_rules(self._options.character_rules, "the machine that started the job")

    def process(self, element: tuple[Bucket, Iterable[Record]]) -> Iterator[Any]:
        """Drops equal texts and counts the words of the others."""
        (split, _), records = element
        return count_part(split, drop_duplicates(records)[0], self._options)


class WritePart(beam.DoFn):
    """((split, bucket), records) -> its Parquet file, and a Part with counts; on the side its word counts by group."""

    WORDS = "words"

    def __init__(self, output: str, options: CorpusOptions) -> None:
        self._output = output
        self._options = options

    def setup(self) -> None:
        """Checks, once a worker thread, that it is a worker like the others."""
        require_same_rules(self._options.character_rules, "the machine that started the job")

    def process(self, element: tuple[Bucket, Iterable[Record]]) -> Iterator[Any]:
        """Drops equal texts, writes one part and what was rejected from it."""
        (split, bucket), records = element
        buckets = self._options.num_buckets_of(split)
        name = f"{split}-{bucket:05d}-of-{buckets:05d}"
        kept, rejected = drop_duplicates(records)
        cleaned: Counter[str] = Counter()
        reported: Counter[str] = Counter()
        lines = _RejectedLines()
        for record in [*rejected, *kept]:
            if record[4]:
                lines.add(record, record[4], record[3])
            if not record[5]:
                continue
            work = json.loads(record[5])
            cleaned.update(work["counts"])
            if not record[4]:
                reported.update(work["reported"])
                for rule in work["reported"]:
                    lines.add(record, f"{rule}, kept", record[3])
            for rule, snippet in work["dropped"]:
                lines.add(record, rule, snippet)
        lines.write(f"{self._output}/rejected/{name}.jsonl")
        counts: dict[str, Any] = {
            "rejected": dict(Counter(record[4] for record in rejected)),
            "reported": dict(reported),
            "cleaned": dict(cleaned),
        }
        part: Part | None = None
        if kept:
            documents = [
                (document_id.hex(), title, source, self._options.language, text.split("\n"))
                for document_id, title, source, text, *_ in kept
            ]
            path = f"corpus/{name}.parquet"
            size, sha256 = corpus_files.write_part(f"{self._output}/{path}", documents)
            sentences = sum(len(document[4]) for document in documents)
            counts["characters"] = sum(len(record[3]) for record in kept)
            part = Part(path, split, bucket, buckets, len(kept), sentences, size, sha256)
            for batch in count_part(split, kept, self._options):
                yield beam.pvalue.TaggedOutput(self.WORDS, batch)
        yield part, counts


class WriteCorpusManifest(beam.DoFn):
    """Everything is on disk: checks that no document got lost, then writes corpus.json."""

    def __init__(self, output: str, options: dict[str, Any], files: list[list[Any]]) -> None:
        self._output = output
        self._options = options
        self._files = files

    def process(
        self,
        _: None,
        written_parts: Iterable[tuple[Part | None, dict[str, Any]]],
        vocab: dict[str, Any],
        read: Iterable[int],
    ) -> Iterator[str]:
        """Writes the manifest and yields its path."""
        parts = list(written_parts)
        written = sorted((item[0] for item in parts if item[0]), key=lambda part: part.name)
        rejected: Counter[str] = Counter()
        reported: Counter[str] = Counter()
        cleaned: Counter[str] = Counter()
        for item in parts:
            rejected.update(item[1]["rejected"])
            reported.update(item[1]["reported"])
            cleaned.update(item[1]["cleaned"])
        documents_read = sum(read)
        documents = {
            split: sum(part.documents for part in written if part.split == split) for split in ("train", "validation")
        }
        if sum(documents.values()) + rejected.total() != documents_read:
            raise RuntimeError(f"{documents_read} documents read, but {documents} kept and {dict(rejected)} rejected")
        if documents["train"] < 2:
            raise SourceError(
                f"--input holds {documents['train']} document(s) to train on and next sentence prediction needs two; "
                "give more files, or name the --input_format that tells where documents end (such as sentences)"
            )
        counts = {
            "documents_read": documents_read,
            "documents": documents,
            "documents_rejected": dict(sorted(rejected.items())),
            "documents_reported": dict(sorted(reported.items())),
            "paragraphs_cleaned": dict(sorted(cleaned.items())),
            "sentences": {
                split: sum(part.sentences for part in written if part.split == split)
                for split in ("train", "validation")
            },
            "characters": sum(item[1].get("characters", 0) for item in parts),
        }
        path = f"{self._output}/{corpus_files.FILE_NAME}"
        write_text(path, Corpus(self._options, self._files, counts, vocab, written, versions()).to_json())
        yield path


def build_corpus(
    pipeline: beam.Pipeline, inputs: list[list[Any]], files: list[list[Any]], options: CorpusOptions, output: str
) -> None:
    """Composes job 1.

    Args:
        pipeline: to add the steps to.
        inputs: [path, bytes, time last changed] of every file to read.
        files: the same of every file the result hangs on, for the manifest.
        options: what to do.
        output: the corpus directory, on any Beam filesystem.
    """
    buckets, read = _read_into_buckets(pipeline, inputs, options)
    parts = buckets | "WritePart" >> beam.ParDo(WritePart(output, options)).with_outputs(WritePart.WORDS, main="parts")
    start = pipeline | "Start" >> beam.Create([None])
    vocab = make_vocabulary(start, parts.words, options, num_word_groups(options.num_buckets), f"{output}/vocab.txt")
    _ = start | "Manifest" >> beam.ParDo(
        WriteCorpusManifest(output, dataclasses.asdict(options), files),
        written_parts=beam.pvalue.AsIter(parts.parts),
        vocab=beam.pvalue.AsSingleton(vocab),
        read=beam.pvalue.AsIter(read),
    )


def build_vocabulary(
    pipeline: beam.Pipeline, inputs: list[list[Any]], options: CorpusOptions, output: str, report: str
) -> None:
    """Composes the part of job 1 that makes vocab.txt, with the same bytes, and writes nothing else.

    Args:
        pipeline: to add the steps to.
        inputs: [path, bytes, time last changed] of every file to read.
        options: what to do.
        output: the vocabulary file, on any Beam filesystem.
        report: file for what `corpus.json` would have as "vocab", as JSON.
    """
    buckets, _ = _read_into_buckets(pipeline, inputs, options)
    words = buckets | "CountPart" >> beam.ParDo(CountPart(options))
    start = pipeline | "Start" >> beam.Create([None])
    vocab = make_vocabulary(start, words, options, num_word_groups(options.num_buckets), output)
    _ = vocab | "ToJson" >> beam.Map(json.dumps) | "Report" >> beam.Map(lambda text: write_text(report, text))


def _read_into_buckets(
    pipeline: beam.Pipeline, inputs: list[list[Any]], options: CorpusOptions
) -> tuple[beam.PCollection, beam.PCollection]:
    """((split, bucket), records), and the number of documents of each file."""
    documents = (
        pipeline
        | "Files" >> beam.Create([part for path, size, *_ in inputs for part in split_file(path, size, options.read)])
        | "Spread" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(ReadDocuments(options.read)).with_outputs(ReadDocuments.COUNT, main="documents")
    )
    buckets = documents.documents | "Segment" >> beam.ParDo(SegmentAndKey(options)) | "Bucket" >> beam.GroupByKey()
    return buckets, documents[ReadDocuments.COUNT]
