"""Tests of data jobs whose files are deleted while they run: a one-line error, and no manifest of missing files."""

import hashlib
import shutil

import pytest

import beambert
import pipelines.build_pretraining_data
from pipelines.corpus import corpus_manifest, reading
from pipelines.corpus.records import write_block_file
from pipelines.errors import DatasetError
from pipelines.io.written_files import require_written

FLAGS = ["--input_format", "language_reference", "--vocab_size", "500", "--num_partitions", "2"]


def digests(output):
    files = [*output.glob("corpus/*"), output / "vocab.txt", output / "corpus.json"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    output = tmp_path_factory.mktemp("whole") / "data"
    assert beambert.main(["corpus", *FLAGS, "--output", str(output)]) == 0
    return output


def test_the_first_file_that_is_missing_or_has_another_size_is_named(tmp_path):
    (tmp_path / "a").write_text("12345")
    require_written(str(tmp_path), {"a": 5})
    require_written(str(tmp_path), {"a": None})
    with pytest.raises(DatasetError, match=f"^{tmp_path}/a has 5 bytes instead of 6: .*; run the same command again"):
        require_written(str(tmp_path), {"a": 6, "b": 1})
    with pytest.raises(DatasetError, match=f"^{tmp_path}/b is missing: it was removed .*; build it again$"):
        require_written(str(tmp_path), {"a": 5, "b": None}, "build it again")


def test_a_corpus_shard_is_deleted(corpus, tmp_path, monkeypatch, capsys):
    argv = ["corpus", *FLAGS, "--output", str(tmp_path)]
    write_shard = corpus_manifest.write_shard
    deleted = []

    def write_and_delete(path, *rest):
        written = write_shard(path, *rest)
        if not deleted:
            (tmp_path / path).unlink()
            deleted.append(path)
        return written

    with monkeypatch.context() as patch:
        patch.setattr(corpus_manifest, "write_shard", write_and_delete)
        assert beambert.main(argv) == 1
    error = capsys.readouterr().err
    assert f"{deleted[0]} is missing: it was removed after it was written" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "corpus.json").exists()
    # The remedy of the message works: the same command rebuilds the corpus with the same bytes.
    assert beambert.main(argv) == 0
    assert digests(tmp_path) == digests(corpus)


def test_the_output_directory_is_deleted_before_a_block_file_is_read_again(tmp_path, monkeypatch, capsys):
    output = tmp_path / "data"
    paths = []

    def write_and_delete(path, *rest):
        write_block_file(path, *rest)
        shutil.rmtree(output)
        paths.append(path)

    monkeypatch.setattr(reading, "write_block_file", write_and_delete)
    assert beambert.main(["corpus", *FLAGS, "--output", str(output), "--direct_num_workers", "1"]) == 1
    line = f"beambert corpus: error: {paths[0]} was removed while the command ran; run the same command again\n"
    assert capsys.readouterr().err == line


def test_a_dataset_shard_is_deleted(corpus, tmp_path, monkeypatch, capsys):
    write_shards = pipelines.build_pretraining_data.write_shards

    def write_and_delete(*args):
        written = write_shards(*args)
        for shard in written[0]:
            (tmp_path / shard.name).unlink()
        return written

    monkeypatch.setattr(pipelines.build_pretraining_data, "write_shards", write_and_delete)
    argv = ["pretraining-data", "--input", str(corpus), "--output", str(tmp_path), "--dupe_factor", "1"]
    assert beambert.main(argv) == 1
    error = capsys.readouterr().err
    assert f"{tmp_path}/shards/train-copy-000-00000-of-00002.tfrecord is missing" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "dataset.json").exists()


def test_a_finished_corpus_without_its_shards_is_not_up_to_date(corpus, tmp_path, capsys):
    output = shutil.copytree(corpus, tmp_path / "data")
    next(output.glob("corpus/train-*.parquet")).unlink()
    assert beambert.main(["corpus", *FLAGS, "--output", str(output)]) == 1
    assert f"delete {output} and run the same command again" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "manifest"), [("corpus", "corpus.json"), ("build", "dataset.json")])
def test_an_empty_manifest_is_an_error_with_a_remedy(command, manifest, corpus, tmp_path, capsys):
    output = shutil.copytree(corpus, tmp_path / "data")
    (output / manifest).write_bytes(b"")
    assert beambert.main([command, *FLAGS, "--output", str(output)]) == 1
    error = capsys.readouterr().err
    assert f"{manifest}: the file is empty; restore it from a copy, or delete {output} and run the same" in error


def test_a_vocabulary_never_replaces_what_it_is_learned_from(corpus, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("One sentence. Another.\n" * 5)
    (tmp_path / "link.txt").symlink_to(text)
    other = tmp_path / "other.vocab"
    other.write_bytes((corpus / "vocab.txt").read_bytes())
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    common = ["--input", f"{tmp_path}/*.txt", "--vocab_size", "100", "--compare_vocab", str(other), "--overwrite"]
    for output, flag in ((text, "--input"), (tmp_path / "link.txt", "--input"), (other, "--compare_vocab")):
        assert beambert.main(["vocab", *common, "--output", str(output)]) == 1
        error = capsys.readouterr().err
        assert f"--output {output} is the same file as {flag}" in error
        assert error.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
