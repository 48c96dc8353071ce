"""Test the samples of files for `beambert plan` against the counts of all files and of a build."""

import bz2
import gzip
import json
import random

import pyarrow
import pyarrow.parquet
import pytest

from beambert import cli
from beambert.deploy.plan import text_sample
from beambert.deploy.plan.data import DUMP_SECONDS, plan_data
from beambert.deploy.plan.text_sample import sample_text
from beambert.pipelines.errors import SourceError
from beambert.pipelines.instances.options import PretrainingDataOptions


def look(*patterns: object, vocab_file: str | None = None):
    return sample_text([str(pattern) for pattern in patterns], "auto", "text", "en", 8000, vocab_file)


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """2,000 documents of very different lengths, without duplicates."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randint(2, 9))) for _ in range(5000)]
    return [
        " ".join("Then " + " ".join(rng.choices(words, k=12)) + "." for _ in range(1 + number % 20))
        for number in range(2000)
    ]


def write_json(path, texts: list[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def test_files_read_whole_are_counted(tmp_path, lines):
    write_json(tmp_path / "a.jsonl", lines[:300])
    write_json(tmp_path / "b.jsonl", lines[300:400] + lines[:50])
    text = look(tmp_path / "*.jsonl")
    # The 50 documents that are in both files are detected as duplicates only if both files are read.
    assert text.documents == 400
    assert text.words == sum(len(line.split()) for line in lines[:400])
    assert text.files == 2


def test_of_a_large_file_the_beginning_is_enough(tmp_path, lines, monkeypatch):
    write_json(tmp_path / "a.jsonl", lines)
    size = (tmp_path / "a.jsonl").stat().st_size
    monkeypatch.setattr(text_sample, "_WHOLE_BYTES", size // 4)
    text = look(tmp_path / "a.jsonl")
    assert len(text.document_bytes) < 600
    assert text.words == pytest.approx(sum(len(line.split()) for line in lines), rel=0.02)
    assert text.documents == pytest.approx(2000, rel=0.02)


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_of_a_large_compressed_file_the_decompressed_part_is_extrapolated(suffix, tmp_path, lines, monkeypatch):
    rng = random.Random(2)
    shuffled = (" ".join(rng.sample(line.split(), len(line.split()))) for line in lines * 3)
    content = "".join(json.dumps({"text": text}) + "\n" for text in shuffled).encode()
    compressors = {".gz": gzip.compress, ".bz2": bz2.compress}
    stored = compressors[suffix](content)
    (tmp_path / f"a.jsonl{suffix}").write_bytes(stored)
    monkeypatch.setattr(text_sample, "_WHOLE_BYTES", len(stored) * 9 // 20)
    text = look(tmp_path / f"a.jsonl{suffix}")
    assert len(text.document_bytes) < 3000
    assert text.words == pytest.approx(3 * sum(len(line.split()) for line in lines), rel=0.02)


def test_of_a_large_parquet_file_the_first_rows_are_enough(tmp_path, lines, monkeypatch):
    pyarrow.parquet.write_table(pyarrow.table({"text": lines}), tmp_path / "a.parquet", row_group_size=150)
    monkeypatch.setattr(text_sample, "_WHOLE_BYTES", sum(map(len, lines)) // 4)
    text = look(tmp_path / "a.parquet")
    assert len(text.document_bytes) < 600
    assert text.words == pytest.approx(sum(len(line.split()) for line in lines), rel=0.02)


def test_a_single_large_document_is_read_to_its_end(tmp_path, lines, monkeypatch):
    monkeypatch.setattr(text_sample, "_WHOLE_BYTES", 1000)
    (tmp_path / "b.txt").write_text("\n\n".join(lines[:20]))
    assert look(tmp_path / "b.txt").documents == 1


def test_each_kind_of_file_is_extrapolated_separately(tmp_path, lines, monkeypatch):
    monkeypatch.setattr(text_sample, "_ENOUGH_TEXT", 100_000)
    for number in range(6):
        some = lines[number * 300 : number * 300 + 300]
        write_json(tmp_path / f"{number}.jsonl", some)
        content = "".join(json.dumps({"text": f"{text} Again."}) + "\n" for text in some)
        (tmp_path / f"{number}.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    text = look(tmp_path / "*")
    read = 2 * sum(len(line.split()) for line in lines[:1800]) + 1800
    assert "read in 2 of 12" in text.origin
    assert text.words == pytest.approx(read, rel=0.05)


@pytest.mark.parametrize(("suffix", "compress"), [("", bytes), (".bz2", bz2.compress), (".gz", gzip.compress)])
def test_a_dump_takes_longer_than_its_text(suffix, compress, tmp_path, lines):
    """Test that a plan has the time to decompress a dump and to extract its text, besides that of its text."""
    pages = "".join(
        f"<page><title>{number}</title><ns>0</ns><revision><text>{text}</text></revision></page>\n"
        for number, text in enumerate(lines[:300])
    )
    xml = f'<mediawiki xml:lang="en">\n{pages}</mediawiki>\n'.encode()
    path = tmp_path / f"a.xml{suffix}"
    path.write_bytes(compress(xml))
    write_json(tmp_path / "a.jsonl", lines[:300])
    dump, text = look(path), look(tmp_path / "a.jsonl")
    assert (dump.words, dump.documents) == (text.words, text.documents)
    assert dump.dump_bytes == pytest.approx(len(xml))
    assert text.dump_bytes == 0
    seconds = [plan_data(each, [PretrainingDataOptions()], 8000).cpu_seconds for each in (dump, text)]
    assert seconds[0] == pytest.approx(seconds[1] + dump.dump_bytes / 1e6 * DUMP_SECONDS)


@pytest.mark.parametrize("pages_per_stream", [40, 2000], ids=["streams as long as splits", "one stream"])
def test_of_a_large_dump_the_sampled_streams_are_extrapolated(pages_per_stream, tmp_path, lines, monkeypatch, caplog):
    rng = random.Random(3)
    pages = [
        f"<page><title>{number}</title><ns>0</ns><revision><text>{' '.join(rng.sample(words, len(words)))}</text>"
        "</revision></page>\n"
        for number, words in enumerate(map(str.split, lines))
    ]
    parts = ["".join(pages[first : first + pages_per_stream]) for first in range(0, len(pages), pages_per_stream)]
    stored = b"".join(
        bz2.compress(part.encode(), 1) for part in ['<mediawiki xml:lang="en">\n', *parts, "</mediawiki>\n"]
    )
    (tmp_path / "a.xml.bz2").write_bytes(stored)
    monkeypatch.setattr(text_sample, "_WHOLE_BYTES", len(stored) // 2)
    step = len(stored) // 30

    def split(path, size, options):
        return [(path, start, start + step if start + step < size else None) for start in range(0, size, step)]

    monkeypatch.setattr(text_sample, "split_file", split)
    text = look(tmp_path / "a.xml.bz2")
    assert text.words == pytest.approx(sum(len(line.split()) for line in lines), rel=0.1)
    assert 0 < len(text.document_bytes) < 1200
    assert not caplog.messages


def test_a_vocabulary_file_determines_the_number_of_tokens(tmp_path, lines):
    write_json(tmp_path / "a.jsonl", lines[:300])
    alphabet = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *alphabet, *(f"##{letter}" for letter in alphabet)]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab) + "\n")
    text = look(tmp_path / "a.jsonl", vocab_file=str(tmp_path / "vocab.txt"))
    assert text.tokens == sum(len(line.replace(" ", "")) for line in lines[:300])


def test_invalid_inputs_are_errors(tmp_path):
    with pytest.raises(SourceError, match="matches no files"):
        look(tmp_path / "*.jsonl")
    (tmp_path / "empty.jsonl").write_text('{"text": ""}\n')
    with pytest.raises(SourceError, match="no document in 1 sampled file"):
        look(tmp_path / "empty.jsonl")


@pytest.mark.slow
def test_sixty_megabytes_of_wikipedia(shared_data, capsys, monkeypatch):
    """Sample one of six files, and compare with the counts of `beambert build --dupe_factor 5` of all six."""
    monkeypatch.setattr(text_sample, "_ENOUGH_TEXT", 5_000_000)
    flags = ["--input", f"{shared_data}/wiki-extracted/*.bz2", "--dupe_factor", "5", "--json"]
    assert cli.main(["plan", *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    text, data = found["Input"], found["Data"]
    assert text["bytes"] == pytest.approx(61_168_879, rel=0.02)
    assert text["words"] == pytest.approx(9_752_661, rel=0.02)
    assert text["documents"] == pytest.approx(3_956, rel=0.15)
    assert text["tokens"] * 0.98 == pytest.approx(12_315_021, rel=0.03)
    assert data["instances"] == pytest.approx(663_623 / 5, rel=0.03)
    assert data["shard bytes"] == pytest.approx(667_433_767, rel=0.03)
    assert data["shards"] == 81
