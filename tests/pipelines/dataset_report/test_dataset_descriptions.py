"""Test the dataset card and croissant.json: libraries read them, and files of another origin are kept."""

import dataclasses
import importlib.util
import json
import re
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest
import tensorflow as tf
from huggingface_hub import DatasetCard

from beambert import cli
from beambert.pipelines import dataset
from beambert.pipelines.dataset_report.dataset_descriptions import FILE_NAMES, render_card, render_croissant

SHAPE = ["--max_seq_length", "64", "--max_predictions_per_seq", "10", "--dupe_factor", "2"]
KINDS = {
    "padded": "",
    "gzip, ragged, order": "--compression gzip --ragged --objective sop --feature_names model_garden",
    "bins, no labels": "--length_bins 32,64 --objective mlm",
    "packed": "--pack --masking dynamic",
    "parquet": "--format parquet",
    "parquet, packed": "--format parquet --pack --feature_names model_garden",
    "array_record": "--format array_record",
}


def build(corpus, output, *flags: str) -> int:
    return cli.main(["pretraining-data", "--input", str(corpus), "--output", str(output), *flags])


@pytest.fixture(scope="module")
def directory_of(built, tmp_path_factory):
    """A function that returns a dataset of a kind, built at the first call; tests must not change it."""
    directories: dict[str, Path] = {}

    def directory_of(kind: str) -> Path:
        if "array_record" in kind:
            pytest.importorskip("array_record")
        if kind not in directories:
            output = tmp_path_factory.mktemp("kinds") / "data"
            assert build(built, output, *SHAPE, *KINDS[kind].split()) == 0
            directories[kind] = output
        return directories[kind]

    return directory_of


def parquet_rows(output: Path, split: str) -> list[dict]:
    paths = sorted((output / "shards").glob(f"{split}-*.parquet"))
    return [row for path in paths for row in pyarrow.parquet.read_table(path).to_pylist()]


# croissant.json


@pytest.mark.parametrize("kind", KINDS)
def test_mlcroissant_finds_no_error(kind, directory_of, caplog):
    mlcroissant = pytest.importorskip("mlcroissant")
    output = directory_of(kind)
    loaded = mlcroissant.Dataset(str(output / "croissant.json"))
    issues = loaded.metadata.ctx.issues
    assert not issues.errors
    # Only the publisher can give these properties.
    unknown = {re.search(r'Property "[^"]*/(\w+)" is recommended', warning)[1] for warning in issues.warnings}
    assert unknown == {"citeAs", "datePublished", "license", "version"}
    assert "not standard" not in caplog.text


@pytest.mark.parametrize("kind", ["parquet", "parquet, packed"])
@pytest.mark.parametrize("split", dataset.SPLITS)
def test_mlcroissant_reads_the_records(kind, split, directory_of):
    mlcroissant = pytest.importorskip("mlcroissant")
    output = directory_of(kind)
    records = list(mlcroissant.Dataset(str(output / "croissant.json")).records(split))
    rows = parquet_rows(output, split)
    assert len(records) == len(rows) == dataset.load(output).num_examples(split)
    for record, row in zip(records, rows, strict=True):
        read = {name.partition("/")[2]: value for name, value in record.items()}
        assert {
            name: [int(number) for number in value] if isinstance(value, list) else int(value)
            for name, value in read.items()
        } == row


@pytest.mark.parametrize("kind", KINDS)
def test_croissant_patterns_match_the_shards_of_their_split(kind, directory_of):
    output = directory_of(kind)
    manifest = dataset.load(output)
    content = json.loads((output / "croissant.json").read_text(encoding="utf-8"))
    for split in dataset.SPLITS:
        (pattern,) = [entry["includes"] for entry in content["distribution"] if entry["@id"] == f"{split}-shards"]
        matched = {str(path.relative_to(output)) for path in output.glob(pattern)}
        assert matched == {shard.name for shard in manifest.shards if shard.split == split}
    assert content["distribution"][0]["sha256"] == manifest.vocab_sha256
    assert content["inLanguage"] == ["en"]


# README.md


@pytest.mark.parametrize("kind", KINDS)
def test_card_header_is_valid_for_hugging_face(kind, directory_of):
    output = directory_of(kind)
    data = DatasetCard((output / "README.md").read_text(encoding="utf-8")).data
    assert data.language == ["en"]
    assert data.size_categories == ["1K<n<10K"]
    assert data.task_categories == ["fill-mask"]
    configs = getattr(data, "config_names", None) or data.to_dict().get("configs")
    if "parquet" not in kind:
        assert configs is None
        assert data.to_dict()["viewer"] is False
        return
    (config,) = configs
    assert {file["split"]: file["path"] for file in config["data_files"]} == {
        "train": "shards/train-*.parquet",
        "validation": "shards/validation-*.parquet",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_card_code_loads_the_first_example(kind, directory_of, tmp_path):
    output = directory_of(kind)
    if "parquet" in kind:
        pytest.importorskip("datasets")
    elif "array_record" in kind:
        pytest.importorskip("grain")
    text = (output / "README.md").read_text(encoding="utf-8")
    example = loaded_by(text, output, tmp_path)
    assert isinstance(example, dict)
    assert example.keys() == set(dataset.load(output).features.values())
    for name, (kind_of_value, content) in table_of(text, "Features").items():
        value = example[name]
        if isinstance(value, tf.Tensor):
            assert kind_of_value == f"list of {value.dtype.name}", content
        else:
            assert isinstance(value, list) == kind_of_value.startswith("list of ")


def loaded_by(text: str, output: Path, cache: Path) -> object:
    """Return the example that the code of a card loads."""
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    # Nothing is written into the home directory.
    block = block.replace('load_dataset("PATH")', f'load_dataset("PATH", cache_dir={str(cache)!r})')
    exec(block.replace("PATH", str(output)), names)
    return names["example"]


def test_card_code_loads_rows_of_the_shorter_length_bin_only(directory_of, tmp_path):
    output = directory_of("bins, no labels")
    manifest = dataset.load(output)
    shards = [shard for shard in manifest.shards if shard.max_seq_length == 32]
    assert 0 < len(shards) < len(manifest.shards)
    for shard in shards:
        (tmp_path / shard.name).parent.mkdir(exist_ok=True)
        (tmp_path / shard.name).write_bytes((output / shard.name).read_bytes())
    example = loaded_by(render_card(dataclasses.replace(manifest, shards=shards)), tmp_path, tmp_path)
    assert len(example["input_ids"]) == 32


def table_of(text: str, section: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of the first table of a section by their first cell."""
    content = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*) \|$", content, re.MULTILINE)[2:]
    cells = [tuple(re.split(r" (?<!\\)\| ", row)) for row in rows]
    return {first.strip("`"): tuple(others) for first, *others in cells}


def test_card_numbers_are_those_of_the_shards(directory_of):
    output = directory_of("parquet")
    splits = table_of((output / "README.md").read_text(encoding="utf-8"), "Splits")
    assert splits.keys() == set(dataset.SPLITS)
    for split, (examples, documents, _, shards, size) in splits.items():
        paths = list((output / "shards").glob(f"{split}-*"))
        assert examples == f"{sum(pyarrow.parquet.read_metadata(path).num_rows for path in paths):,}"
        assert shards == f"{len(paths):,}"
        assert size == f"{sum(path.stat().st_size for path in paths):,}"
        assert documents == f"{dataset.load(output).counts['documents'][split]:,}"


def test_card_names_the_rate_of_masks_where_they_are_fixed(directory_of):
    def masking(kind):
        card = (directory_of(kind) / "README.md").read_text(encoding="utf-8")
        return re.search(r"\| *masking *\|(.*)\|", card, re.IGNORECASE)[1].strip()

    assert masking("packed") == "dynamic"
    most = dataset.load(directory_of("parquet")).max_predictions_per_seq
    assert masking("parquet").endswith(f", 0.15 of the tokens, at most {most} per row")


def test_card_warnings_are_those_of_the_manifest(directory_of):
    output = directory_of("padded")
    section = (output / "README.md").read_text(encoding="utf-8").partition("\n## Warnings\n")[2]
    lines = [line.removeprefix("- ").replace("\\", "") for line in section.splitlines() if line]
    assert lines == dataset.load(output).counts["warnings"]
    assert lines


def test_names_of_files_and_languages_are_escaped(directory_of):
    manifest = dataset.load(directory_of("padded"))
    size = {"documents": 1, "words": 7, "bytes": 40}
    hostile = "texts/a|b <script>`x`\n## Splits *.txt"
    counts = {**manifest.counts, "inputs": {hostile: size}, "languages": {"no": size, "": size, "de": size}}
    text = render_card(dataclasses.replace(manifest, counts=counts))
    assert DatasetCard(text).data.language == ["de", "no"]
    assert text.count("\n## Splits") == 1
    assert "<script>" not in text
    sources = table_of(text, "Sources")
    assert sources["texts/a\\|b &lt;script>\\`x\\` ## Splits \\*.txt"] == ("1", "7", "40")
    assert sources["unknown"] == ("1", "7", "40")


# Both files


def test_descriptions_are_made_from_the_manifest_alone(directory_of):
    for kind in ("padded", "parquet, packed"):
        output = directory_of(kind)
        manifest = dataset.load(output)
        assert render_card(manifest).encode() == (output / "README.md").read_bytes()
        assert render_croissant(manifest).encode() == (output / "croissant.json").read_bytes()


# Parquet shards in the library of Hugging Face


@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="datasets is not installed")
@pytest.mark.parametrize("kind", ["parquet", "parquet, packed"])
def test_datasets_loads_files_and_directory(kind, directory_of, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from datasets import load_dataset

    output = directory_of(kind)
    files = {split: str(output / "shards" / f"{split}-*.parquet") for split in dataset.SPLITS}
    by_files = load_dataset("parquet", data_files=files, cache_dir=str(tmp_path))
    by_directory = load_dataset(str(output), cache_dir=str(tmp_path))
    streamed = load_dataset("parquet", data_files=files, cache_dir=str(tmp_path), streaming=True)
    assert set(by_directory) == set(dataset.SPLITS)
    for split in dataset.SPLITS:
        expected = parquet_rows(output, split)
        assert by_files[split].to_list() == by_directory[split].to_list() == expected
        assert list(streamed[split]) == expected
    features = by_files["train"].features
    names = dataset.load(output).features
    assert features[names["input_ids"]].feature.dtype == "int32"
    assert features[names["segment_ids"]].feature.dtype == "uint8"


NAMES = sorted(FILE_NAMES)


def descriptions(output: Path) -> dict[str, bytes]:
    return {name: (output / name).read_bytes() for name in NAMES}


@pytest.fixture(scope="module")
def finished(built, tmp_path_factory) -> Path:
    """A dataset of one copy."""
    output = tmp_path_factory.mktemp("finished") / "data"
    assert build(built, output, "--dupe_factor", "1") == 0
    return output


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    return shutil.copytree(finished, tmp_path / "data")


@pytest.mark.parametrize("lost", [False, True], ids=["up to date", "repair"])
def test_missing_files_are_written_again_and_edited_ones_are_kept(built, copied, lost):
    before = descriptions(copied)
    for name in NAMES:
        (copied / name).unlink()
    if lost:
        (copied / dataset.load(copied).shards[0].name).unlink()
    assert build(built, copied, "--dupe_factor", "1") == 0
    assert descriptions(copied) == before
    (copied / "README.md").write_text("# Our data\n", encoding="utf-8")
    (copied / "croissant.json").unlink()
    assert build(built, copied, "--dupe_factor", "1") == 0
    assert descriptions(copied) == {**before, "README.md": b"# Our data\n"}


def test_files_of_a_stopped_job_are_replaced(built, finished, tmp_path):
    """Simulate a job that was killed between the card and the manifest, and then another command."""
    expected = descriptions(finished)
    output = tmp_path / "other"
    assert build(built, output, "--dupe_factor", "2") == 0
    assert descriptions(output) != expected
    (output / "dataset.json").unlink()
    (output / "unfinished").mkdir()
    (output / "unfinished" / "started.json").write_text('{"command": "pretraining-data"}\n')
    assert build(built, output, "--dupe_factor", "1") == 0
    assert descriptions(output) == expected


def test_notes_that_were_added_to_a_stopped_job_are_kept(built, finished, tmp_path):
    output = tmp_path / "other"
    (output / "unfinished").mkdir(parents=True)
    (output / "unfinished" / "started.json").write_text('{"command": "pretraining-data"}\n')
    (output / "README.md").write_text("# Mine\n", encoding="utf-8")
    assert build(built, output, "--dupe_factor", "1") == 0
    assert descriptions(output) == {**descriptions(finished), "README.md": b"# Mine\n"}


@pytest.mark.parametrize("name", NAMES)
def test_files_of_another_program_beside_a_corpus_are_kept(built, corpus, capsys, name):
    (corpus / name).write_text("mine\n", encoding="utf-8")
    before = (corpus / name).stat()
    for _ in range(2):
        assert build(corpus, corpus, "--dupe_factor", "3") == 0
        assert (corpus / name).read_text(encoding="utf-8") == "mine\n"
        assert (corpus / name).stat().st_mtime_ns == before.st_mtime_ns
    assert f"{corpus}/{name} is kept: beambert did not write it\n" in capsys.readouterr().out
    (other,) = set(NAMES) - {name}
    assert (corpus / other).read_bytes() == (built / other).read_bytes()


def test_a_directory_of_that_name_is_kept(corpus):
    (corpus / "README.md").mkdir()
    (corpus / "README.md" / "mine").write_text("mine\n")
    assert build(corpus, corpus, "--dupe_factor", "1") == 0
    assert (corpus / "README.md" / "mine").read_text() == "mine\n"


@pytest.mark.parametrize("name", NAMES)
def test_files_of_a_deleted_dataset_are_refused(built, corpus, capsys, name):
    """Test that a card, which may be edited, is neither replaced nor left to describe another dataset."""
    shutil.copy(built / name, corpus)
    assert build(corpus, corpus, "--dupe_factor", "1") == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"contains {name}, which beambert pretraining-data did not write" in error
    assert (corpus / name).read_bytes() == (built / name).read_bytes()
