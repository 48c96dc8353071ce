"""Sample the files of `--input` as the corpus job reads them, and extrapolate by file size.

Requires the `data` extra.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beambert_common.quantities import counted
from beambert_common.word_rules import WordRules
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

# Smaller files are read completely; of larger files, the first bytes, or some file splits of a dump.
_WHOLE_BYTES = 4 << 20
_SPLITS_OF_A_DUMP = 2
# Sampling stops after this many bytes of text.
_ENOUGH_TEXT = 16_000_000
_SEED = 20181011


def sample_text(
    patterns: list[str], input_format: str, text_field: str, language: str, vocab_size: int, vocab_file: str | None
) -> Text:
    """Read a sample, cleaned and segmented as by `beambert corpus` with default flags.

    Args:
        patterns: file patterns of --input.
        input_format, text_field, language: flags of the corpus job.
        vocab_size: vocabulary size, used without `vocab_file`.
        vocab_file: vocabulary that counts tokens; None for the tokens per word of English at `vocab_size`.

    Raises:
        SourceError: no file matches or can be read, or the sample contains no document.
    """
    options, inputs = _corpus_job(patterns, input_format, text_field, language, vocab_file)
    tokenizer = None
    if vocab_file:
        vocabulary = Vocabulary.from_bytes(read_bytes(vocab_file), vocab_file)
        tokenizer = Tokenizer(vocabulary, **asdict(WordRules.of(options)))
    total = np.zeros(3)  # bytes, words, documents
    sample = _Sample()
    num_read = 0
    kinds: dict[tuple[str, str], list[Input]] = {}
    for file in inputs:
        kinds.setdefault((file.origin, Path(file.path).suffix), []).append(file)
    # The ratio of text to stored bytes depends on the kind of file, so each kind is extrapolated separately.
    for files in kinds.values():
        kind_sample, of_bytes = _Sample(), 0
        for number in np.random.default_rng(_SEED).permutation(len(files)):
            num_read += 1
            for documents, stored in _read_sample(files[number], options):
                kind_sample.add(documents, options)
                of_bytes += stored
            if sum(kind_sample.document_bytes) >= _ENOUGH_TEXT / len(kinds):
                break
        total += kind_sample.size() * (sum(file.bytes for file in files) / of_bytes)
        sample.extend(kind_sample)
    if not sample.document_bytes:
        raise SourceError(f"--input {patterns[0]}: no document in {counted(num_read, 'sampled file')}")
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
        origin=f"from {sum(sample.document_bytes) / 1e6:,.1f} MB read in {num_read:,} of "
        f"{counted(len(inputs), 'file')}",
    )


class _Sample:
    """Sampled documents, cleaned, segmented and without exact duplicates."""

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
    patterns: list[str], input_format: str, text_field: str, language: str, vocab_file: str | None
) -> tuple[CorpusOptions, list[Input]]:
    """Return the options of `beambert corpus` and its input files."""
    if input_format not in FORMATS:
        raise SourceError(f"unknown --input_format {input_format}; choose from {', '.join(FORMATS)}")
    parser = argparse.ArgumentParser()
    corpus.add_arguments(parser)
    flags = ["--output", "-", "--input_format", input_format, "--text_field", text_field, "--language", language]
    # A bad record does not invalidate an estimate.
    flags += ["--on_bad_record", "skip"]
    # The vocabulary determines the word rules.
    flags += ["--vocab_file", vocab_file] if vocab_file else []
    args = parser.parse_args([*flags, "--input", *patterns])
    config = corpus_config(args)
    return config.options, config.inputs


def _read_sample(file: Input, options: CorpusOptions) -> Iterator[tuple[Iterator[Document], int]]:
    """Yield (documents, bytes of the file that they represent): all of a small file, splits of a large one."""
    if file.bytes <= _WHOLE_BYTES:
        yield read_file(file.path, options.read), file.bytes
    elif dump.can_split(file.path) and is_dump(dump.read_head(file.path)):
        splits = split_file(file.path, file.bytes, options.read)
        for number in np.random.default_rng(_SEED).permutation(len(splits))[:_SPLITS_OF_A_DUMP]:
            _, start, stop = splits[number]
            stop = file.bytes if stop is None else stop
            yield read_file(file.path, options.read, start, stop), stop - start
    else:
        beginning = list(_first_documents(file, options))
        if len(beginning) > 1:
            yield iter(beginning), _WHOLE_BYTES
        else:
            # The file is a single document, or its format cannot be read without the end of the file.
            yield read_file(file.path, options.read), file.bytes


def _first_documents(file: Input, options: CorpusOptions) -> Iterator[Document]:
    """Yield the documents in the first bytes of a file; the last one may be incomplete."""
    with FileSystems.open(file.path, compression_type=CompressionTypes.UNCOMPRESSED) as stream:
        head = stream.read(_WHOLE_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / file.path.rsplit("/", 1)[-1]
        copy.write_bytes(head)
        try:
            yield from read_file(str(copy), options.read)
        except SourceError:
            # The cut may fall inside compressed data or a record.
            return
