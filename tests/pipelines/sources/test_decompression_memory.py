"""Test that the memory of decompression depends on the blocks of a format, not on the size of the text."""

import bz2
import contextlib
import lzma
import resource
import zlib
from pathlib import Path

import pyarrow
import pyarrow.parquet
import zstandard

from beambert.deploy.plan import text_sample
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import find_format, read_file
from tests import forked

LINE = b'{"text": "' + b"a" * 20_000 + b'"}\n'
# 100 MB of text in files of 0.5 to 110 KB.
BLOCK, BLOCKS = LINE * 500, 10
# Peak memory may grow by this much.
LIMIT_BYTES = 50 << 20
COMPRESSORS = {
    "a.jsonl.gz": lambda: zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS + 16),
    "a.jsonl.bz2": bz2.BZ2Compressor,
    "a.jsonl.xz": lambda: lzma.LZMACompressor(preset=1),
    "a.jsonl.zst": lambda: zstandard.ZstdCompressor(level=3).compressobj(),
}


def sample(path: str) -> None:
    # Of larger files, only the first bytes are read.
    text_sample._WHOLE_BYTES = Path(path).stat().st_size - 1
    with contextlib.suppress(SourceError):  # The cleaning rules reject the documents.
        text_sample.sample_text([path], "auto", "text", "en", 8000, None)


WAYS = {
    "check": lambda path: find_format(path, ReadOptions()),
    "file": lambda path: sum(1 for _ in read_file(path, ReadOptions())),
    "range": lambda path: sum(1 for _ in read_file(path, ReadOptions(), 0, 1 << 30)),
    "plan": sample,
}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def read_in_every_way(folder: Path) -> None:
    for name in COMPRESSORS:
        for way, read in WAYS.items():
            before = peak()
            count = read(str(folder / name))
            assert peak() - before < LIMIT_BYTES, f"{way} {name}: {peak() - before:,} bytes"
            assert count == 500 * BLOCKS or way in ("check", "plan")


def read_parquet(path: Path) -> None:
    before = peak()
    assert sum(1 for _ in read_file(str(path), ReadOptions())) == 200
    # 16 rows as Arrow, 16 as Python, and what Arrow's allocator keeps.
    assert peak() - before < 2 * LIMIT_BYTES, f"{peak() - before:,} bytes"


def test_a_parquet_file_that_repeats_a_long_text_is_read_a_few_rows_at_a_time(tmp_path):
    # 100 MB of text in a file of 1 KB.
    table = pyarrow.table({"text": ["a" * 500_000] * 200})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", compression="zstd")
    assert forked.run(tmp_path / "log", read_parquet, tmp_path / "a.parquet") == 0, (tmp_path / "log").read_text()


def test_a_small_file_with_much_text_is_read_in_blocks(tmp_path):
    for name, new_compressor in COMPRESSORS.items():
        compressor = new_compressor()
        stored = [compressor.compress(BLOCK) for _ in range(BLOCKS)]
        (tmp_path / name).write_bytes(b"".join([*stored, compressor.flush()]))
    # A process of its own, because the peak of a process never falls.
    assert forked.run(tmp_path / "log", read_in_every_way, tmp_path) == 0, (tmp_path / "log").read_text()
