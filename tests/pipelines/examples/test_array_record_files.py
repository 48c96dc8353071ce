"""Test `--format array_record`: Grain reads the examples of the TFRecord shards by random access."""

import importlib.metadata
import importlib.util
import io
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from beambert import cli
from beambert.pipelines import dataset
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples.array_record_files import read_records
from beambert.pipelines.examples.example_reader import read_examples
from beambert.pipelines.examples.shards import create_shard
from beambert.pipelines.instances.options import PretrainingDataOptions
from tests.pipelines.examples.test_example_encoder import random_features
from tests.small_disk import small_disk

needs_array_record = pytest.mark.skipif(
    importlib.util.find_spec("array_record") is None, reason="array-record is not installed"
)
SHAPE = ["--max_seq_length", "64", "--max_predictions_per_seq", "10", "--dupe_factor", "2"]


def build(corpus, output, *flags: str) -> int:
    return cli.main(["pretraining-data", "--input", str(corpus), "--output", str(output), *SHAPE, *flags])


@pytest.fixture(scope="module")
def both(built, tmp_path_factory):
    """Two directories with the same examples, as TFRecord and as ArrayRecord; no temporary file is left."""
    pytest.importorskip("array_record")
    folder = tmp_path_factory.mktemp("both")
    temporary = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(temporary))
        for name in ("tfrecord", "array_record"):
            assert build(built, folder / name, "--format", name) == 0
    assert list(temporary.iterdir()) == []
    return folder / "tfrecord", folder / "array_record"


def paths_of(directory, split="train") -> list[str]:
    return [str(directory / shard.name) for shard in dataset.load(directory).shards_of(split)]


@pytest.mark.parametrize("split", dataset.SPLITS)
def test_grain_reads_the_same_examples_by_index(both, split):
    grain = pytest.importorskip("grain")
    tfrecord, array_record = both
    expected = list(tf.data.TFRecordDataset(paths_of(tfrecord, split)).as_numpy_iterator())
    paths = paths_of(array_record, split)
    assert all(path.endswith(".array_record") for path in paths)
    source = grain.sources.ArrayRecordDataSource(paths)
    assert len(source) == len(expected) == dataset.load(array_record).num_examples(split)
    order = list(range(len(expected)))
    random.Random(0).shuffle(order)
    for index in order:
        assert source[index] == expected[index]


def test_the_manifest_records_the_format_and_the_version_of_its_package(both):
    manifest = dataset.load(both[1])
    assert manifest.versions["array-record"] == importlib.metadata.version("array-record")
    assert manifest.file_format == "array_record"


def test_damage_is_an_error_or_harmless(both, tmp_path):
    path = paths_of(both[1])[0]
    content = Path(path).read_bytes()
    expected = [features["input_ids"].tolist() for features in read_examples(path)]
    damaged = tmp_path / "shard.array_record"
    cuts = [0, 1, 3, 64, 1000, 65536, 65537, 131072, len(content) // 2, len(content) - 1]
    for cut in cuts:
        damaged.write_bytes(content[:cut])
        with pytest.raises(DatasetError, match=rf"^{damaged} is not a(n| complete) ArrayRecord file"):
            list(read_examples(str(damaged)))
    errors = 0
    for offset in range(0, len(content), 5003):
        damaged.write_bytes(content[:offset] + bytes([content[offset] ^ 0x10]) + content[offset + 1 :])
        try:
            read = [features["input_ids"].tolist() for features in read_examples(str(damaged))]
        except DatasetError as error:
            assert "copy it or build it again" in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
            errors += 1
        else:
            assert read == expected  # The changed byte is padding of a block.
    assert errors > 10


@needs_array_record
def test_file_of_another_format_is_not_an_empty_shard(tmp_path):
    path = tmp_path / "text.array_record"
    path.write_bytes(b"hello" * 40_000)
    with pytest.raises(DatasetError, match=r"text\.array_record is not an ArrayRecord file"):
        list(read_examples(str(path)))


def test_records_of_another_program_are_an_error(tmp_path):
    module = pytest.importorskip("array_record.python.array_record_module")
    path = str(tmp_path / "other.array_record")
    writer = module.ArrayRecordWriter(path, "")
    writer.write(b"no example")
    writer.close()
    with pytest.raises(DatasetError, match=r"other\.array_record: record 0 is not a valid tf.train.Example"):
        list(read_examples(path))
    assert list(read_records(io.BytesIO(Path(path).read_bytes()), path)) == [(0, b"no example")]


@needs_array_record
def test_a_full_temporary_disk_is_one_line(tmp_path, monkeypatch):
    options = PretrainingDataOptions(format="array_record")
    features = random_features(np.random.default_rng(0), 2000, 1000, 128, 20, 1)
    with small_disk(tmp_path / "small", "size=200k") as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))

        def write() -> None:
            with create_shard(str(tmp_path / "shard"), options, 128, 1000) as file:
                for _ in range(5):
                    file.write(features)

        with pytest.raises(DatasetError, match="No space left on device") as error:
            write()
        assert f"temporary file {disk}/beambert-" in str(error.value)
        assert "; free some space there, or set TMPDIR" in str(error.value)
        assert list(disk.iterdir()) == []
    assert not (tmp_path / "shard").exists()


def test_gzip_is_for_tfrecord(built, tmp_path, capsys):
    assert build(built, tmp_path / "data", "--format", "array_record", "--compression", "gzip") == 1
    expected = "--compression gzip and --format array_record cannot be combined; remove one of them\n"
    assert capsys.readouterr().err.endswith(expected)
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("without_array_record")
@pytest.mark.parametrize("name", ["build", "pretraining-data"])
def test_missing_package_is_an_error_before_any_work(built, tmp_path, capsys, name):
    (tmp_path / "text.txt").write_text("Some text.\n")
    source = built if name == "pretraining-data" else tmp_path / "text.txt"
    argv = [name, "--input", str(source), "--output", str(tmp_path / "data"), "--format", "array_record"]
    assert cli.main(argv) == 1
    assert capsys.readouterr().err == (
        f"beambert {name}: error: --format array_record requires the package array-record, which is not installed; "
        "pip install 'beambert[array-record]'\n"
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.usefixtures("without_array_record")
def test_reading_without_the_package_is_an_error(both):
    path = paths_of(both[1])[0]
    with pytest.raises(DatasetError, match=f"^{path} requires the package array-record, which is not installed; pip"):
        list(read_examples(path))
