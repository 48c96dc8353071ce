"""Test that file splits do not change the bytes of a corpus, and that errors and counts refer to files."""

import bz2
import json
import random
import re
from collections.abc import Iterator

import zstandard

from beambert import cli
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources import readers
from beambert.pipelines.sources.readers import Input, read_file, split_inputs
from tests.pipelines.test_job_size import OPTIONS

WORDS = ["Hund", "Katze", "Maus", "Vogel", "Fisch", "Baum", "Haus", "Weg", "Licht", "Wasser", "Bär", "Öl"]


def records(count: int) -> list[bytes]:
    """Return JSON lines with bad records and equal documents among them."""
    generator = random.Random(0)
    lines = []
    for number in range(count):
        text = ". ".join(" ".join(generator.choices(WORDS, k=7)) for _ in range(9))
        lines.append(json.dumps({"text": f"Satz {number}. {text}.", "key": number}).encode())
    lines[5::40] = [lines[1]] * len(lines[5::40])
    lines[7::40] = [b'{"text": null}'] * len(lines[7::40])
    lines[9::40] = [b""] * len(lines[9::40])
    lines[11::40] = [b'{"text": "x', b'{"body": 1}', b'{"text": "B\xe4r"}'] * (len(lines[11::40]) // 3)
    return lines


RECORDS = records(240)
FLAGS = ["--on_bad_record", "skip", "--id_field", "key"]


def build(path, output, *flags: str) -> tuple[dict, dict]:
    """Return the bytes of the files of a corpus, and its counts."""
    argv = ["corpus", "--input", str(path), "--output", str(output), "--vocab_size", "60", "--num_partitions", "3"]
    assert cli.main([*argv, "--min_words", "1", *flags]) == 0
    files = [*output.glob("corpus/*.parquet"), *output.glob("rejected/*.jsonl"), output / "vocab.txt"]
    # A file that is read in ranges has offsets instead of numbers of lines.
    contents = {file.name: re.sub(rb'"(?:line|byte)": \d+, ', b"", file.read_bytes()) for file in files}
    return contents, corpus_manifest.load(str(output)).counts


def test_a_corpus_is_the_same_however_its_file_is_split(tmp_path, monkeypatch, capsys):
    path = tmp_path / "a.jsonl.bz2"
    content = b"\n".join(RECORDS)
    path.write_bytes(b"".join(bz2.compress(content[at : at + 3000]) for at in range(0, len(content), 3000)))
    whole = build(path, tmp_path / "whole", *FLAGS)
    assert "1 file split," in capsys.readouterr().out
    step = path.stat().st_size // 9
    monkeypatch.setattr(readers, "_LINE_RANGE_BYTES", dict.fromkeys(readers._LINE_RANGE_BYTES, step))
    assert build(path, tmp_path / "one", *FLAGS) == whole
    assert "10 file splits," in capsys.readouterr().out
    assert whole[1]["documents_rejected"]["null_text"] == 6


def test_an_error_names_the_byte_of_the_file(tmp_path, monkeypatch, capsys):
    lines = [json.dumps({"text": f"Satz {n}."}).encode() for n in range(400)]
    lines[357] = b"{broken"
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines))
    monkeypatch.setattr(readers, "_LINE_RANGE_BYTES", {"": 1000})
    assert cli.main(["corpus", "--input", str(path), "--output", str(tmp_path / "out")]) == 1
    assert f"a.jsonl, byte {path.read_bytes().index(b'{broken'):,}: not valid JSON" in capsys.readouterr().err


def test_a_file_that_loses_most_of_its_text_is_counted_as_one_file(tmp_path, monkeypatch):
    """Test a file that loses more than half of its text, although half of its ranges lose nothing."""
    kept = [json.dumps({"text": f"Dies ist der Satz {n} von vielen mit vielen Wörtern darin."}) for n in range(100)]
    lost = [json.dumps({"text": f"Ein kurzer Satz mit der Nummer {n}."}) for n in range(300)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([*kept, *lost]))
    (tmp_path / "b.jsonl").write_text("\n".join(kept).replace("Satz", "Wert"))
    flags = ["--min_words", "9"]
    whole = build(tmp_path / "*.jsonl", tmp_path / "whole", *flags)
    monkeypatch.setattr(readers, "_LINE_RANGE_BYTES", {"": 2000})
    assert build(tmp_path / "*.jsonl", tmp_path / "split", *flags) == whole
    assert [file["file"] for file in whole[1]["files_mostly_rejected"]] == [str(path)]


def test_a_stopped_command_resumes_in_the_middle_of_a_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(RECORDS))
    whole = build(path, tmp_path / "whole", *FLAGS)
    monkeypatch.setattr(readers, "_LINE_RANGE_BYTES", {"": path.stat().st_size // 9})
    starts: list[int] = []

    def read_at_most(count: int):
        def read(path: str, options: ReadOptions, start: int, stop: int | None, **flags) -> Iterator[Document]:
            starts.append(start)
            for number, document in enumerate(read_file(path, options, start, stop, **flags)):
                if len(starts) > count and number == 20:
                    raise SourceError("The disk is full.")
                yield document

        return read

    monkeypatch.setattr(readers, "read_file", read_at_most(4))
    argv = ["corpus", "--input", str(path), "--output", str(tmp_path / "out"), "--vocab_size", "60", *FLAGS]
    argv += ["--num_partitions", "3", "--min_words", "1"]
    assert cli.main(argv) == 1
    complete = set(starts[:-1])
    assert len(complete) == 4
    starts.clear()
    monkeypatch.setattr(readers, "read_file", read_at_most(99))
    assert build(path, tmp_path / "out", *FLAGS) == whole
    assert "resuming an earlier run" in capsys.readouterr().out
    assert len(starts) == 6
    assert not complete & set(starts)


def test_local_files_that_are_read_whole_are_one_split(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_LINE_RANGE_BYTES", dict.fromkeys(readers._LINE_RANGE_BYTES, 100))
    content = b'{"text": "One sentence."}\n' * 40
    noise = random.Random(0).randbytes(300).hex().encode()
    contents = {
        "lines.jsonl": (content, 11),
        "lines.txt": (content, 11),
        "array.json": (b"[" + content.replace(b"\n", b",")[:-1] + b"]", 1),
        "text.txt": (b"One sentence.\n\n" * 40, 1),
        "one.jsonl.zst": (zstandard.compress(content + noise), 1),
        "many.jsonl.zst": (zstandard.compress(content) * 10, None),
        "binary.jsonl": (bytes(1000), 1),
    }
    for name, (stored, count) in contents.items():
        path = tmp_path / name
        path.write_bytes(stored)
        splits = split_inputs([Input(str(path), len(stored), 0, "", 1.0)], OPTIONS.read)
        assert len(splits) == (count or -(-len(stored) // 100)), name
    # Files in an object store are not opened here, because the job itself detects their format.
    assert len(split_inputs([Input("gs://none/text.txt", 1000, 0, "", 1.0)], OPTIONS.read)) == 10


def test_a_large_input_has_a_bounded_number_of_splits():
    inputs = [Input(f"gs://none/{n}.jsonl", size, 0, "", 1.0) for n, size in enumerate((10**12, 10**8, 10**9))]
    splits = split_inputs(inputs, OPTIONS.read)
    assert 4000 < len(splits) < readers._MAX_RANGES + len(inputs)
    for file in inputs:
        own = [split for split in splits if split.input == file]
        assert [split.start for split in own[1:]] == [split.stop for split in own[:-1]]
        assert (own[0].start, own[-1].stop) == (0, None)
