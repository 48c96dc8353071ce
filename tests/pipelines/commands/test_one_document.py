"""Tests of a single document: enough for a corpus, and for objectives without random next sentences."""

import json
import random
from pathlib import Path

from beambert import cli
from beambert.pipelines import dataset


def book(folder: Path) -> Path:
    rng = random.Random(2)
    words = ["".join(rng.choices("abdegiklmnorstu", k=rng.randrange(3, 9))) for _ in range(200)]
    path = folder / "book.txt"
    path.write_text(" ".join(" ".join(rng.choices(words, k=9)).capitalize() + "." for _ in range(80)))
    return path


def run(command: str, *flags: object) -> int:
    return cli.main([command, *map(str, flags), "--direct_num_workers", "1"])


def build(path: Path, output: Path, objective: str, *flags: object) -> int:
    argv = ["--input", path, "--output", output, "--objective", objective, "--vocab_size", 100]
    return run("build", *argv, "--validation_fraction", 0, "--dupe_factor", 2, *flags)


def test_one_document_is_enough(tmp_path):
    assert build(book(tmp_path), tmp_path / "out", "sop") == 0
    counts = dataset.load(tmp_path / "out").counts
    assert counts["documents"] == {"train": 1, "validation": 0}
    assert counts["train"]["sentences"] == 80
    assert counts["train"]["instances"] > 2


def test_next_sentence_prediction_is_refused_before_the_file_is_read(tmp_path, capsys):
    assert build(book(tmp_path), tmp_path / "out", "nsp") == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "--objective nsp requires at least 2 training documents for random next sentences" in captured.err
    assert "but --input has 1; give more files" in captured.err
    assert "--objective mlm or sop" in captured.err
    assert captured.out == ""
    assert not (tmp_path / "out/corpus.json").exists()


def test_a_file_whose_documents_must_be_counted_is_refused_by_the_second_job(tmp_path, capsys):
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps({"text": book(tmp_path).read_text()}) + "\n")
    assert build(path, tmp_path / "out", "nsp") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "--objective nsp requires at least 2 training documents" in error
    # The corpus of the failed command is reused.
    assert build(path, tmp_path / "out", "mlm") == 0
    assert "is up to date" in capsys.readouterr().out
