"""Tests of equal texts and weights under other file names: the same documents, vocabulary and shards."""

import hashlib
import json
import random
from pathlib import Path

import pyarrow.parquet

import beambert


def built(folder: Path, light: str, heavy: str) -> tuple[list[dict], dict[str, str]]:
    """Build a dataset from two files that share some texts.

    Returns:
        The documents without the names of their files, and the SHA-256 of vocab.txt and of every shard.
    """
    rng = random.Random(7)
    words = ["".join(rng.choices("abdegiklmnorstu", k=rng.randrange(2, 9))) for _ in range(300)]
    texts = [". ".join(" ".join(rng.choices(words, k=12)).capitalize() for _ in range(8)) + "." for _ in range(60)]
    folder.mkdir()
    for name, chosen in ((light, texts[:40]), (heavy, texts[20:])):
        (folder / name).write_text("".join(json.dumps({"text": text}) + "\n" for text in chosen))
    argv = ["build", "--input", folder / light, folder / heavy, "--input_weights", 1, 3, "--output", folder / "data"]
    argv += ["--vocab_size", 200, "--dupe_factor", 2, "--max_seq_length", 32, "--validation_fraction", 0.1]
    assert beambert.main([str(word) for word in [*argv, "--direct_num_workers", 1]]) == 0
    rows = [
        row
        for path in sorted((folder / "data/corpus").iterdir())
        for row in pyarrow.parquet.read_table(path).drop_columns(["source"]).to_pylist()
    ]
    files = [folder / "data/vocab.txt", *sorted((folder / "data/shards").iterdir())]
    return rows, {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_duplicate_with_the_larger_weight_is_kept_for_any_file_names(tmp_path):
    rows, digests = built(tmp_path / "one", "a.jsonl", "b.jsonl")
    assert (rows, digests) == built(tmp_path / "two", "b.jsonl", "a.jsonl")
    # The file with the larger weight has 40 texts, of which 20 are in both files.
    assert sorted(row["weight"] for row in rows) == [1.0] * 20 + [3.0] * 40
