"""Looks into the files of `--input`: reads some of each, as the corpus job would, and reckons up the rest.

Needs the data extra, as reading does.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from deploy.plan.text_estimate import Text, tokens_per_word
from pipelines.commands import corpus
from pipelines.commands.corpus_config import corpus_config
from pipelines.corpus.options import CorpusOptions
from pipelines.corpus.reading import Input, to_record
from pipelines.io.atomic_files import read_bytes
from pipelines.sources import FORMATS, SourceError, read_file, split_file
from pipelines.sources.documents import Document
from pipelines.sources.wikipedia import dump
from pipelines.sources.wikipedia.dump_pages import is_dump
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary

# Files up to this size are read whole, of larger ones this much: the beginning, or of a dump some parts.
_WHOLE_BYTES = 4 << 20
_PARTS_OF_A_DUMP = 2
# No more files are opened when so much text has been read.
_ENOUGH_TEXT = 16_000_000
_SEED = 20181011


def sample_text(
    patterns: list[str], input_format: str, text_field: str, language: str, vocab_size: int, vocab_file: str | None
) -> Text:
    """Read a sample, cleaned and segmented as by `beambert corpus` with default flags.

    Args:
        patterns: file patterns, as of --input.
        input_format, text_field, language: flags of the corpus job.
        vocab_size: number of tokens in the vocabulary, where no file is given.
        vocab_file: vocabulary to count tokens with; None for the ratio of English text at that size.

    Raises:
        SourceError: no such file, none that can be read, or no document in what was read.
    """
    options, inputs = _corpus_job(patterns, input_format, text_field, language)
    tokenizer = None
    if vocab_file:
        vocabulary = Vocabulary.from_bytes(read_bytes(vocab_file), vocab_file)
        tokenizer = Tokenizer(vocabulary, options.do_lower_case and not vocabulary.has_capitals())
    total = np.zeros(3)  # bytes, words, documents
    sample = _Sample()
    num_read = 0
    kinds: dict[tuple[str, str], list[Input]] = {}
    for file in inputs:
        kinds.setdefault((file.origin, Path(file.path).suffix), []).append(file)
    # Text expands by kind of file, so each kind is reckoned up by itself.
    for files in kinds.values():
        kind_sample, of_bytes = _Sample(), 0
        for number in np.random.default_rng(_SEED).permutation(len(files)):
            num_read += 1
            for documents, stored in _read_parts(files[number], options):
                kind_sample.add(documents, options)
                of_bytes += stored
            if sum(kind_sample.document_bytes) >= _ENOUGH_TEXT / len(kinds):
                break
        total += kind_sample.size() * (sum(file.bytes for file in files) / of_bytes)
        sample.extend(kind_sample)
    if not sample.document_bytes:
        raise SourceError(f"--input {patterns[0]} holds no document in {num_read} file(s) that were looked into")
    words = np.array([len(sentence.split()) for sentence in sample.sentences])
    if tokenizer:
        tokens = np.diff(tokenizer.encode_batch(sample.sentences)[1])
    else:
        tokens = np.maximum(1, np.rint(words * tokens_per_word(vocab_size)))
    return Text(
        bytes=float(total[0]),
        words=float(total[1]),
        documents=float(total[2]),
        files=len(inputs),
        stored_bytes=sum(file.bytes for file in inputs),
        num_partitions=options.num_partitions,
        document_bytes=np.array(sample.document_bytes, np.int64),
        document_sentences=np.array(sample.document_sentences, np.int64),
        sentence_tokens=tokens.astype(np.int64),
        sample_words=int(words.sum()),
        origin=f"{sum(sample.document_bytes) / 1e6:,.1f} MB read in {num_read:,} of {len(inputs):,} file(s)",
    )


class _Sample:
    """Documents that were read, cleaned and segmented, equal ones once."""

    def __init__(self) -> None:
        self.document_bytes: list[int] = []
        self.document_sentences: list[int] = []
        self.sentences: list[str] = []
        self._words = 0
        self._seen: set[bytes] = set()

    def add(self, documents: Iterator[Document], options: CorpusOptions) -> None:
        for document in documents:
            record = to_record(document, options)
            if record.reason or record.id in self._seen:
                continue
            self._seen.add(record.id)
            self.document_bytes.append(len(record.text.encode("utf-8")))
            self.document_sentences.append(sum(record.paragraphs))
            self.sentences += record.text.split("\n")
            self._words += len(record.text.split())

    def extend(self, other: "_Sample") -> None:
        self.document_bytes += other.document_bytes
        self.document_sentences += other.document_sentences
        self.sentences += other.sentences

    def size(self) -> np.ndarray:
        """Return bytes, words and documents, float64 [3]."""
        return np.array([sum(self.document_bytes), self._words, len(self.document_bytes)], np.float64)


def _corpus_job(
    patterns: list[str], input_format: str, text_field: str, language: str
) -> tuple[CorpusOptions, list[Input]]:
    """Return the options of `beambert corpus` and the files that it would read."""
    if input_format not in FORMATS:
        raise SourceError(f"--input_format {input_format} is not known; choose from {', '.join(FORMATS)}")
    parser = argparse.ArgumentParser()
    corpus.add_arguments(parser)
    flags = ["--output", "-", "--input_format", input_format, "--text_field", text_field, "--language", language]
    # An estimate need not end at a bad record.
    flags += ["--on_bad_record", "skip"]
    args = parser.parse_args([*flags, "--input", *patterns])
    config = corpus_config(args)
    return config.options, config.inputs


def _read_parts(file: Input, options: CorpusOptions) -> Iterator[tuple[Iterator[Document], int]]:
    """Yield (documents, bytes of the file that they represent): all of a small file, parts of a large one."""
    if file.bytes <= _WHOLE_BYTES:
        yield read_file(file.path, options.read), file.bytes
    elif dump.can_split(file.path) and is_dump(dump.read_head(file.path)):
        parts = split_file(file.path, file.bytes, options.read)
        for number in np.random.default_rng(_SEED).permutation(len(parts))[:_PARTS_OF_A_DUMP]:
            _, start, stop = parts[number]
            stop = file.bytes if stop is None else stop
            yield read_file(file.path, options.read, start, stop), stop - start
    else:
        beginning = list(_first_documents(file, options))
        if len(beginning) > 1:
            yield iter(beginning), _WHOLE_BYTES
        else:
            # A file that is one document, or that cannot be understood without its end.
            yield read_file(file.path, options.read), file.bytes


def _first_documents(file: Input, options: CorpusOptions) -> Iterator[Document]:
    """Yield the documents in the first bytes of a file; the last may be cut off."""
    with FileSystems.open(file.path, compression_type=CompressionTypes.UNCOMPRESSED) as stream:
        head = stream.read(_WHOLE_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / file.path.rsplit("/", 1)[-1]
        copy.write_bytes(head)
        try:
            yield from read_file(str(copy), options.read)
        except SourceError:
            # Compressed data or a record ends in its middle.
            return
