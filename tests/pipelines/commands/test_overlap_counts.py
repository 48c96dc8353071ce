"""Tests of validation documents that share sentences with training documents: their counts, report and warning."""

import json
import random
from pathlib import Path

import pyarrow.parquet

import beambert
from pipelines import dataset


def sentences(rng: random.Random, number: int) -> list[str]:
    words = ["".join(rng.choices("abdegiklmnorstu", k=rng.randrange(3, 9))) for _ in range(12 * number)]
    return [" ".join(words[12 * i : 12 * i + 12]).capitalize() + "." for i in range(number)]


def build(folder: Path, documents: list[list[str]]) -> dict:
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": "\n".join(each)}) + "\n" for each in documents))
    argv = ["build", "--input", folder / "text.jsonl", "--output", folder / "data", "--vocab_size", 100]
    argv += ["--validation_fraction", 0.3, "--dupe_factor", 1, "--direct_num_workers", 1, "--num_partitions", 2]
    assert beambert.main(list(map(str, argv))) == 0
    return dataset.load(folder / "data").counts


def texts(data: Path, split: str) -> list[list[str]]:
    paths = sorted(data.glob(f"corpus/{split}-*"))
    return [row["sentences"] for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]


def test_nearly_equal_documents_are_counted_and_warned_of(tmp_path, capsys):
    rng = random.Random(3)
    pages = [sentences(rng, 6) for _ in range(40)]
    # `copies` share five of six sentences with a page, `cousins` two.
    copies = [[*page[:5], *sentences(rng, 1)] for page in pages[:20]]
    cousins = [[*page[:2], *sentences(rng, 4)] for page in pages[20:]]
    overlap = build(tmp_path, [*pages, *copies, *cousins])["overlap"]
    held_out = texts(tmp_path / "data", "validation")
    training = {sentence for document in texts(tmp_path / "data", "train") for sentence in document}
    shares = [sum(sentence in training for sentence in document) / 6 for document in held_out]
    assert set(shares) == {0, 2 / 6, 5 / 6}
    assert overlap["documents_found"] == shares.count(5 / 6) >= 5
    assert overlap["documents"] == len(held_out)
    assert overlap["sentences_found"] == sum(round(share * 6) for share in shares)
    counted = f"{shares.count(5 / 6)} of {len(held_out)}"
    assert f"<td>{counted}</td>" in (tmp_path / "data/report.html").read_text()
    assert f"{counted} validation documents have at least half of their longer sentences" in capsys.readouterr().out
