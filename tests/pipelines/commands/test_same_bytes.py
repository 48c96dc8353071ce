"""Tests that equal text, options and seed give equal bytes, for any workers, interruptions and file names."""

import json
import random
import shutil
from pathlib import Path

import pytest

from beambert import cli
from beambert.pipelines import dataset
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.transforms import examples
from tests.conftest import SMALL
from tests.every_output import corpus_rows, digests

FILES = ("shards/*", "corpus/*", "rejected/*", "README.md", "croissant.json", "vocab.txt")


def kept(output: Path) -> dict[str, int]:
    """Return the modification time of each shard, in nanoseconds, by file name."""
    return {path.name: path.stat().st_mtime_ns for path in output.glob("shards/*")}


def test_repeated_bundles(built, articles, tmp_path):
    output = tmp_path / "out"
    argv = ["build", "--input", f"{articles}/*.jsonl", "--output", str(output), *SMALL]
    assert cli.main([*argv, "--direct_runner_bundle_repeat=1"]) == 0
    assert digests(output, *FILES) == digests(built, *FILES)
    assert (output / "dataset.json").read_bytes() == (built / "dataset.json").read_bytes()
    assert {path.name for path in output.iterdir()} == {
        *("corpus", "rejected", "shards", "corpus.json", "dataset.json", "report.html", "vocab.txt"),
        *("README.md", "croissant.json"),
    }
    assert not list(tmp_path.rglob("*.tmp"))


def test_two_worker_processes(built, articles, tmp_path, capfd):
    """Compare the corpus; the slow tests compare the examples too."""
    flags = [*SMALL[:2], *SMALL[4:], "--direct_num_workers", "2"]
    assert cli.main(["corpus", "--input", f"{articles}/*.jsonl", "--output", str(tmp_path), *flags]) == 0
    assert "Traceback" not in capfd.readouterr().err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        assert path.read_bytes() == (built / path.relative_to(tmp_path)).read_bytes(), path


@pytest.mark.slow
def test_more_workers_than_corpus_shards(articles, tmp_path):
    """Distribute the copies of a single corpus shard over several workers."""
    argv = ["corpus", "--input", f"{articles}/*", "--output", str(tmp_path / "corpus"), "--vocab_size", "2000"]
    assert cli.main([*argv, "--num_partitions", "1", "--validation_fraction", "0"]) == 0
    argv = ["pretraining-data", "--input", str(tmp_path / "corpus"), "--dupe_factor", "3", "--output"]
    assert cli.main([*argv, str(tmp_path / "one")]) == 0
    assert cli.main([*argv, str(tmp_path / "two"), "--direct_num_workers", "2"]) == 0
    assert digests(tmp_path / "two", *FILES) == digests(tmp_path / "one", *FILES)
    manifests = [dataset.load(tmp_path / name) for name in ("one", "two")]
    assert manifests[0] == manifests[1]


def test_a_shard_deleted_and_another_cut_are_made_again(built, tmp_path, capsys):
    output = tmp_path / "out"
    argv = ["pretraining-data", "--input", str(built), "--output", str(output), "--dupe_factor", "2"]
    argv += ["--length_bins", "32,128"]
    assert cli.main(argv) == 0
    before, manifest, times = digests(output, *FILES), (output / "dataset.json").read_bytes(), kept(output)
    train, validation = (dataset.load(output).shards_of(split)[0].name for split in ("train", "validation"))
    (output / train).unlink()
    with (output / validation).open("r+b") as file:
        file.truncate(100)
    (output / "vocab.txt").unlink()
    capsys.readouterr()
    assert cli.main(argv) == 0
    assert f"rebuilding 2 missing or truncated of {len(times)} shards" in capsys.readouterr().out
    assert digests(output, *FILES) == before
    assert (output / "dataset.json").read_bytes() == manifest
    made = {name for name, changed in kept(output).items() if changed != times[name]}
    assert made == {Path(train).name, Path(validation).name}
    assert cli.main(argv) == 0
    assert "up to date" in capsys.readouterr().out
    assert not (output / "unfinished").exists()


def test_a_rebuilt_shard_with_another_checksum_is_an_error(built, tmp_path, capsys):
    output = shutil.copytree(built, tmp_path / "out")
    shard = dataset.load(output).shards_of("train")[0]
    manifest = (output / "dataset.json").read_text().replace(shard.sha256, "0" * 64)
    (output / "dataset.json").write_text(manifest.replace('"numpy": "', '"numpy": "0'))
    (output / shard.name).unlink()
    capsys.readouterr()
    assert cli.main(["pretraining-data", "--input", str(output), "--output", str(output), *SMALL[2:4]]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{shard.name} was rebuilt, but its checksum differs from" in error
    assert "numpy 0" in error
    assert not (output / shard.name).exists()


def test_a_failed_job_resumes_with_the_same_result(built, tmp_path, monkeypatch, capsys):
    """Lose a shard of a stopped job that has a completion marker, resume the job and compare it with a whole one."""
    write_shards = examples.write_shards
    copies = 0

    def write_five(*args):
        nonlocal copies
        copies += 1
        if copies > 5:
            raise DatasetError("the disk is full")
        return write_shards(*args)

    argv = ["pretraining-data", "--input", str(built), *SMALL[2:4], "--output", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(examples, "write_shards", write_five)
        assert cli.main(argv) == 1
    assert not (tmp_path / "build.lock").exists()
    assert not (tmp_path / "dataset.json").exists()
    with pytest.raises(DatasetError, match="its build has not finished"):
        dataset.load(tmp_path)
    notes = [json.loads(json.loads(path.read_text())["content"]) for path in tmp_path.glob("unfinished/*/*.json")]
    finished = {Path(shard["name"]).name for _, shards, _ in notes for shard in shards}
    assert 5 <= len(finished) < len(kept(built))
    before = {name: changed for name, changed in kept(tmp_path).items() if name in finished}
    lost = sorted(finished)[0]
    (tmp_path / "shards" / lost).unlink()
    del before[lost]
    capsys.readouterr()
    assert cli.main(argv) == 0
    assert f"resuming an earlier run ({len(notes)} complete)" in capsys.readouterr().out
    assert before.items() <= kept(tmp_path).items()
    assert digests(tmp_path, *FILES).items() <= digests(built, *FILES).items()
    assert (tmp_path / "dataset.json").read_bytes() == (built / "dataset.json").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {
        *("shards", "dataset.json", "report.html", "vocab.txt", "README.md", "croissant.json")
    }


def test_files_of_a_job_with_other_options_are_removed(built, tmp_path):
    output = tmp_path / "out"
    (output / "unfinished/0123456789abcdef01234567").mkdir(parents=True)
    (output / "unfinished/0123456789abcdef01234567/train-00000-of-00003-copy-000.json").write_text("[[], {}]")
    (output / "shards").mkdir()
    for name in ("train-copy-009-00000-of-00003.tfrecord", "train-copy-009-00000-of-00003.parquet"):
        (output / "shards" / name).write_text("stale")
    argv = ["pretraining-data", "--input", str(built), "--output", str(output), "--dupe_factor", "3"]
    assert cli.main(argv) == 0
    assert kept(output).keys() == kept(built).keys()
    assert not (output / "unfinished").exists()


def build_from(folder: Path, light: str, heavy: str) -> tuple[list[dict], dict[str, str]]:
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
    assert cli.main([str(word) for word in [*argv, "--direct_num_workers", 1]]) == 0
    rows = [{**row, "source": ""} for row in corpus_rows(folder / "data")]
    return rows, digests(folder / "data", "vocab.txt", "shards/*")


def test_duplicate_with_the_larger_weight_is_kept_for_any_file_names(tmp_path):
    rows, digests = build_from(tmp_path / "one", "a.jsonl", "b.jsonl")
    assert (rows, digests) == build_from(tmp_path / "two", "b.jsonl", "a.jsonl")
    # The file with the larger weight has 40 texts, of which 20 are in both files.
    assert sorted(row["weight"] for row in rows) == [1.0] * 20 + [3.0] * 40
