"""Sample the files of `--input` as the corpus job reads them, and extrapolate by file size.

Requires the `data` extra.
"""

import argparse
import bz2
import contextlib
import gzip
import io
import logging
import lzma
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from beambert.common.formatting import counted
from beambert.common.word_rules import WordRules
from beambert.deploy.plan.text_estimate import Text, tokens_per_word
from beambert.pipelines.commands import corpus, corpus_run
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.frames import CODECS, FrameError, FrameReader, codec_of, compression_of, find_frame
from beambert.pipelines.formats.wikipedia.dump import WIKIPEDIA
from beambert.pipelines.io.atomic_files import read_bytes
from beambert.pipelines.sources.files import open_stored
from beambert.pipelines.sources.readers import MAX_FRAME_BYTES, Input, find_format, range_format, read_file, split_file
from beambert.pipelines.transforms.documents import corpus_step
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary

# Smaller files are read completely; of larger files, the first bytes, the first rows, or some file splits of a dump.
_WHOLE_BYTES = 4 << 20
_SPLITS_OF_A_DUMP = 4
_PARQUET_MAGIC = b"PAR1"
_OPENERS: dict[str, Callable[[io.BytesIO], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_BLOCK_BYTES = 1 << 20
# Of a compressed dump, to find how much XML it has: more than one block of bzip2.
_HEAD_BYTES = 1 << 20
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
    dump_bytes = 0.0
    sample = _Sample()
    num_read = 0
    kinds: dict[tuple[str, str], list[Input]] = {}
    for file in inputs:
        kinds.setdefault((file.origin, Path(file.path).suffix), []).append(file)
    # The ratio of text to stored bytes depends on the kind of file, so each kind is extrapolated separately.
    for files in kinds.values():
        kind_sample, of_bytes = _Sample(), 0.0
        for number in np.random.default_rng(_SEED).permutation(len(files)):
            num_read += 1
            for documents, stored in _read_sample(files[number], options):
                kind_sample.add(documents, options)
                of_bytes += stored
            if sum(kind_sample.document_bytes) >= _ENOUGH_TEXT / len(kinds):
                break
        stored_bytes = sum(file.bytes for file in files)
        total += kind_sample.size() * (stored_bytes / of_bytes)
        if find_format(files[0].path, options.read) is WIKIPEDIA:
            dump_bytes += stored_bytes * _expansion(files[0].path)
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
        dump_bytes=dump_bytes,
    )


class _Sample:
    """Sampled documents, cleaned, segmented and without exact duplicates."""

    def __init__(self) -> None:
        self.document_bytes: list[int] = []
        self.document_sentences: list[int] = []
        self.sentences: list[str] = []
        self._words = 0
        self._seen: set[str] = set()

    def add(self, documents: Iterator[Document], options: CorpusOptions) -> None:
        for document in map(corpus_step(options), documents):
            if document.rejected or document.id in self._seen:
                continue
            self._seen.add(document.id)
            text = document.text
            self.document_bytes.append(len(text.encode("utf-8")))
            self.document_sentences.append(document.num_sentences)
            self.sentences += document.sentences
            self._words += len(text.split())

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
    parser = argparse.ArgumentParser()
    corpus.add_arguments(parser)
    flags = ["--output", "-", "--input_format", input_format, "--text_field", text_field, "--language", language]
    # A bad record does not invalidate an estimate.
    flags += ["--on_bad_record", "skip"]
    # The vocabulary determines the word rules.
    flags += ["--vocab_file", vocab_file] if vocab_file else []
    args = parser.parse_args([*flags, "--input", *patterns])
    config = corpus_run.configure(args)
    return config.options, config.inputs


def _read_sample(file: Input, options: CorpusOptions) -> Iterator[tuple[Iterator[Document], float]]:
    """Yield (documents, bytes of the file that they represent): all of a small file, splits of a large one."""
    if file.bytes <= _WHOLE_BYTES:
        yield read_file(file.path, options.read), file.bytes
    elif options.read.input_format in ("auto", "parquet") and _is_parquet(file.path):
        # Many splits of a file with large row groups are empty, so that a few splits are no sample.
        rows = list(_first_rows(file, options))
        yield iter(rows), file.bytes * len(rows) / max(1, _num_rows(file.path))
    elif splits := _sampled_splits(file, options):
        yield from ((iter(documents), stored) for documents, stored in splits)
    else:
        beginning, represented = _first_documents(file, options)
        if len(beginning) > 1:
            yield iter(beginning), represented
        else:
            # The file is a single document, or its format cannot be read without the end of the file.
            yield read_file(file.path, options.read), file.bytes


def _sampled_splits(file: Input, options: CorpusOptions) -> list[tuple[list[Document], int]]:
    """Return (documents, stored bytes) of some splits of a large file; [] if it is not read in ranges.

    A compressed split has the frames that start in it, which may be as long as the split itself.
    """
    input_format = range_format(file.path, options.read)
    if not input_format or not input_format.read_range:
        return []
    splits = split_file(file.path, file.bytes, options.read)
    # A file of one frame, as bzip2 and gzip write it, has all documents in its first split: too many for a sample.
    splits = splits[1:] or splits
    numbers = np.random.default_rng(_SEED).permutation(len(splits))[:_SPLITS_OF_A_DUMP]
    read = [(splits[number][1:], list(read_file(file.path, options.read, *splits[number][1:]))) for number in numbers]
    if not any(documents for _, documents in read):
        return []
    return [(documents, _frame_start(file, stop) - _frame_start(file, start)) for (start, stop), documents in read]


def _frame_start(file: Input, offset: int | None) -> int:
    """Return the offset of the first compressed frame from `offset` on, or the size of the file; None is its end."""
    codec = codec_of(file.path)
    if offset is None or codec is None:
        return file.bytes if offset is None else offset
    with open_stored(file.path) as stream:
        found = find_frame(stream, codec.magic, offset, offset + MAX_FRAME_BYTES)
    return file.bytes if found is None else found


def _is_parquet(path: str) -> bool:
    with open_stored(path) as stream:
        return stream.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC


def _num_rows(path: str) -> int:
    with open_stored(path) as stream:
        return int(pyarrow.parquet.read_metadata(pyarrow.PythonFile(stream, mode="r")).num_rows)


def _first_rows(file: Input, options: CorpusOptions) -> Iterator[Document]:
    """Yield the first rows of a Parquet file."""
    characters = 0
    for document in read_file(file.path, options.read):
        yield document
        characters += sum(map(len, document.paragraphs))
        if characters >= _WHOLE_BYTES:
            return


def _first_documents(file: Input, options: CorpusOptions) -> tuple[list[Document], int]:
    """Return the documents in the first bytes of a file, and the stored bytes that they represent.

    The last document may be incomplete.
    """
    head, represented = _decompressed_head(file.path, _WHOLE_BYTES)
    name, suffix = file.path.rsplit("/", 1)[-1], compression_of(file.path)
    documents: list[Document] = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / name[: len(name) - len(suffix)]
        copy.write_bytes(head)
        # The cut may fall inside a record; readers of some formats only warn of it.
        disabled = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            documents.extend(read_file(str(copy), options.read))
        except SourceError:
            pass
        finally:
            logging.disable(disabled)
    return documents, represented


def _expansion(path: str) -> float:
    """Return the decompressed bytes per stored byte at the start of a file."""
    head, represented = _decompressed_head(path, _HEAD_BYTES)
    return len(head) / max(1, represented)


def _decompressed_head(path: str, size: int) -> tuple[bytes, int]:
    """Return what the first `size` bytes of a file decompress to, and the number of stored bytes that it represents."""
    with open_stored(path) as stream:
        head = stream.read(size)
    suffix = compression_of(path)
    return _decompress(head, suffix) if suffix else (head, len(head))


def _blocks(file: io.BytesIO, suffix: str) -> Iterator[bytes]:
    """Yield the text of a compressed file in blocks, up to where the file is cut."""
    if suffix not in _OPENERS:
        yield from (text for text, _ in FrameReader(file, CODECS[suffix]).chunks(0, None))
        return
    with _OPENERS[suffix](file) as stream:
        while text := stream.read1(_BLOCK_BYTES):
            yield text


def _decompress(head: bytes, suffix: str) -> tuple[bytes, int]:
    """Decompress the first bytes of a file.

    Returns:
        The text, and the number of bytes that it represents: a decompressor keeps the last ones until it has the end
        of their block.
    """
    file, text, represented = io.BytesIO(head), bytearray(), 0
    with contextlib.suppress(OSError, EOFError, zlib.error, lzma.LZMAError, FrameError):
        for block in _blocks(file, suffix):
            text += block
            represented = file.tell()
            if len(text) >= _ENOUGH_TEXT:
                break
    return bytes(text), represented
