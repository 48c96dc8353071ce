"""Job 1: files -> documents -> sentences -> buckets -> Parquet parts, word counts and a vocabulary.

This file only composes; rules live in `sources/`, `cleaning.py`, `segmentation.py` and the `tokenizer` package.
Counts come from the data that is written, never from Beam's counters, which count retried work twice.
"""

import dataclasses
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from pipelines import cleaning, corpus_files
from pipelines.corpus_files import Corpus, Part
from pipelines.documents import Document, bucket_of, identity, is_validation
from pipelines.segmentation import document_sentences
from pipelines.sources import ReadOptions, SourceError, read_file, split_file
from pipelines.versions import versions
from pipelines.writing import read_bytes, write_atomically, write_text
from tokenizer.learner import count_words, learn_vocabulary
from tokenizer.vocabulary import Vocabulary

# Word counts are merged in this many groups; enough for any cluster, few enough to cost nothing on a laptop.
_WORD_GROUPS = 64
_REJECTED_A_PART = 1000
_SNIPPET_CHARACTERS = 200

# (16-byte identity, title, source, sentences joined by line ends, reason of rejection or "")
Record = tuple[bytes, str, str, str, str]
# (split, number within the split)
Bucket = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class CorpusOptions:
    """What job 1 does.

    Attributes:
        read: how files are read.
        language: ISO 639 code, for sentence segmentation.
        do_lower_case: whether the vocabulary is learnt from lower-cased text without accents.
        vocab_size: pieces to learn; 0 where vocab_file is given.
        vocab_file: a vocabulary to take over instead, or "".
        num_buckets: parts of the train split; a bucket is sampled and shuffled in memory as a whole.
        validation_fraction: share of documents held out.
    """

    read: ReadOptions
    language: str
    do_lower_case: bool
    vocab_size: int
    vocab_file: str
    num_buckets: int
    validation_fraction: float

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
    """Document -> ((split, bucket), record)."""

    def __init__(self, options: CorpusOptions) -> None:
        self._options = options

    def process(self, document: Document) -> Iterator[tuple[Bucket, Record]]:
        """Splits one document into sentences and finds its bucket."""
        options = self._options
        sentences = document_sentences(document.paragraphs, options.language, document.segmented)
        # What a reader rejects may hold no text: its title spreads it over the buckets.
        document_id = identity([document.rejected, document.title] if document.rejected else sentences)
        split = "validation" if is_validation(document_id, options.validation_fraction) else "train"
        bucket = (split, bucket_of(document_id, options.num_buckets_of(split)))
        reason = document.rejected or cleaning.rejection_reason(sentences) or ""
        yield bucket, (document_id, document.title, document.source, "\n".join(sentences), reason)


class WritePart(beam.DoFn):
    """((split, bucket), records) -> its Parquet file, and a Part with counts; on the side its word counts by group."""

    WORDS = "words"

    def __init__(self, output: str, options: CorpusOptions) -> None:
        self._output = output
        self._options = options

    def process(self, element: tuple[Bucket, Iterable[Record]]) -> Iterator[Any]:
        """Drops equal texts, writes one part and what was rejected from it."""
        (split, bucket), records = element
        buckets = self._options.num_buckets_of(split)
        name = f"{split}-{bucket:05d}-of-{buckets:05d}"
        kept: list[Record] = []
        rejected: list[Record] = []
        # Sorting by all fields makes the copy that stays independent of the order of arrival.
        for record in sorted(records):
            if record[4]:
                rejected.append(record)
            elif kept and kept[-1][0] == record[0]:
                rejected.append((*record[:4], cleaning.DUPLICATE))
            else:
                kept.append(record)
        self._write_rejected(name, rejected)
        counts: dict[str, Any] = {"rejected": dict(Counter(record[4] for record in rejected))}
        part: Part | None = None
        if kept:
            documents = [
                (document_id.hex(), title, source, self._options.language, text.split("\n"))
                for document_id, title, source, text, _ in kept
            ]
            path = f"corpus/{name}.parquet"
            size, sha256 = corpus_files.write_part(f"{self._output}/{path}", documents)
            sentences = sum(len(document[4]) for document in documents)
            counts["characters"] = sum(len(record[3]) for record in kept)
            part = Part(path, split, bucket, buckets, len(kept), sentences, size, sha256)
            if split == "train" and self._options.vocab_size:
                yield from self._word_counts(record[3] for record in kept)
        yield part, counts

    def _write_rejected(self, name: str, rejected: list[Record]) -> None:
        if not rejected:
            return
        lines = [
            {
                "id": record[0].hex(),
                "reason": record[4],
                "title": record[1],
                "source": record[2],
                "text": record[3][:_SNIPPET_CHARACTERS],
            }
            for record in rejected[:_REJECTED_A_PART]
        ]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        write_text(f"{self._output}/rejected/{name}.jsonl", text)

    def _word_counts(self, texts: Iterable[str]) -> Iterator[beam.pvalue.TaggedOutput]:
        groups: list[tuple[list[str], list[int]]] = [([], []) for _ in range(_WORD_GROUPS)]
        for word, count in count_words(texts, self._options.do_lower_case).items():
            words, counts = groups[zlib.crc32(word.encode("utf-8")) % _WORD_GROUPS]
            words.append(word)
            counts.append(count)
        for group, (words, counts) in enumerate(groups):
            if words:
                yield beam.pvalue.TaggedOutput(self.WORDS, (group, (" ".join(words), counts)))


def merge_word_counts(element: tuple[int, Iterable[tuple[str, list[int]]]]) -> dict[str, int]:
    """Sums the counts of one group of words."""
    total: Counter[str] = Counter()
    for words, counts in element[1]:
        for word, count in zip(words.split(" "), counts, strict=True):
            total[word] += count
    return dict(total)


class WriteVocabulary(beam.DoFn):
    """Learns or takes over the vocabulary; yields its size and SHA-256 for the manifest."""

    def __init__(self, output: str, options: CorpusOptions) -> None:
        self._output = output
        self._options = options

    def process(self, _: None, word_counts: Iterable[dict[str, int]]) -> Iterator[dict[str, Any]]:
        """Writes vocab.txt."""
        if self._options.vocab_file:
            vocab = Vocabulary.from_bytes(read_bytes(self._options.vocab_file), self._options.vocab_file)
        else:
            merged = {word: count for group in word_counts for word, count in group.items()}
            if not merged:
                raise SourceError(
                    "no document of --input holds a word to learn a vocabulary from; give files with text"
                )
            vocab = Vocabulary(tuple(learn_vocabulary(merged, self._options.vocab_size)))
        with write_atomically(f"{self._output}/vocab.txt") as file:
            file.write(vocab.to_bytes())
        yield {"size": len(vocab), "sha256": file.sha256}


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
        for item in parts:
            rejected.update(item[1]["rejected"])
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
    start = pipeline | "Start" >> beam.Create([None])
    documents = (
        pipeline
        | "Files" >> beam.Create([part for path, size, *_ in inputs for part in split_file(path, size, options.read)])
        | "Spread" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(ReadDocuments(options.read)).with_outputs(ReadDocuments.COUNT, main="documents")
    )
    parts = (
        documents.documents
        | "Segment" >> beam.ParDo(SegmentAndKey(options))
        | "Bucket" >> beam.GroupByKey()
        | "WritePart" >> beam.ParDo(WritePart(output, options)).with_outputs(WritePart.WORDS, main="parts")
    )
    word_counts = parts.words | "WordGroups" >> beam.GroupByKey() | "MergeWordCounts" >> beam.Map(merge_word_counts)
    vocab = start | "Vocabulary" >> beam.ParDo(
        WriteVocabulary(output, options), word_counts=beam.pvalue.AsIter(word_counts)
    )
    _ = start | "Manifest" >> beam.ParDo(
        WriteCorpusManifest(output, dataclasses.asdict(options), files),
        written_parts=beam.pvalue.AsIter(parts.parts),
        vocab=beam.pvalue.AsSingleton(vocab),
        read=beam.pvalue.AsIter(documents[ReadDocuments.COUNT]),
    )
