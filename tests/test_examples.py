"""Test that the pipelines in examples/ run as their first lines describe, and write the same as the commands."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from beambert import cli
from tests.conftest import ROOT
from tests.every_output import corpus_rows, digests

TEXTS = [
    f"The {adjective} dog number {number} sleeps.\nIt writes to dog{number}@example.org every day."
    for number in range(40)
    for adjective in ("old", "young", "black")
]


def run(*command: object) -> None:
    result = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.slow
def test_documents_of_ones_own_give_the_bytes_of_build(tmp_path):
    """Test a table of which some titles are null, also those of equal texts, and one text."""
    texts = [*TEXTS, TEXTS[0], TEXTS[1]]
    titles = [str(number) if number % 5 else None for number in range(len(texts))]
    table = pyarrow.table({"text": [*texts, None], "title": [*titles, "a title"]})
    pyarrow.parquet.write_table(table, tmp_path / "table.parquet")
    data = tmp_path / "data"
    run("examples/own_documents.py", "--input", tmp_path / "*.parquet", "--output", data, "--vocab_size", 100)
    redacted = [re.sub(r"\S+@example\.org", "[address]", text) for text in texts]
    lines = [json.dumps({"text": text, "title": title}) for text, title in zip(redacted, titles, strict=True)]
    (tmp_path / "redacted.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    flags = ["--input", str(tmp_path / "redacted.jsonl"), "--vocab_size", "100", "--num_partitions", "16"]
    assert cli.main(["build", *flags, "--output", str(tmp_path / "built")]) == 0
    assert digests(data, "vocab.txt", "shards/*") == digests(tmp_path / "built", "vocab.txt", "shards/*")
    assert "address" in (data / "vocab.txt").read_text(encoding="utf-8").split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    argv = ["corpus", "--input", str(folder / "texts.jsonl"), "--output", str(folder / "corpus"), "--vocab_size", "100"]
    assert cli.main(argv) == 0
    return folder


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("tf2onnx") is None, reason="tf2onnx is not installed")
def test_labels_of_a_corpus_are_those_of_predict(corpus, tmp_path):
    model, exported = ROOT / "tests/fixtures/hugging_face/classification", tmp_path / "onnx"
    assert cli.main(["export", str(model), str(exported), "--to", "onnx"]) == 0
    labels = tmp_path / "labels.jsonl"
    flags = ["--corpus", corpus / "corpus", "--model", exported, "--output", labels, "--max_seq_length", 18]
    run("examples/predict_corpus.py", *flags)
    found = {line["id"]: line["label"] for line in map(json.loads, labels.read_text().splitlines())}

    from beambert.trainers.inference.model_loading import load_model
    from beambert.trainers.inference.predictor import Predictor

    rows = corpus_rows(corpus / "corpus")
    assert found.keys() == {row["id"] for row in rows}
    opened = load_model(model)
    answers = Predictor(opened, top_k=1).answers([" ".join(row["sentences"][:5]) for row in rows], [""] * len(rows))
    wanted = {
        row["id"]: opened.labels.index(answer["labels"][0]["label"]) for row, answer in zip(rows, answers, strict=True)
    }
    assert found == wanted


@pytest.mark.slow
def test_beam_yaml_gives_the_bytes_of_build(corpus, tmp_path):
    pytest.importorskip("pandas", reason="Beam YAML needs pandas, of the extra [yaml]")
    pytest.importorskip("jsonschema", reason="Beam YAML needs jsonschema, of the extra [yaml]")
    variables = {"input": str(corpus / "texts.jsonl"), "output": str(tmp_path / "data"), "vocab_size": 100}
    flags = ["--yaml_pipeline_file", "examples/pretraining_data.yaml", "--jinja_variables", json.dumps(variables)]
    run("-m", "apache_beam.yaml.main", *flags, "--runner", "FnApiRunner")
    flags = ["--input", variables["input"], "--vocab_size", "100", "--num_partitions", "16"]
    assert cli.main(["build", *flags, "--output", str(tmp_path / "built")]) == 0
    assert digests(tmp_path / "data", "vocab.txt", "shards/*") == digests(tmp_path / "built", "vocab.txt", "shards/*")


@pytest.mark.slow
def test_rows_of_beam_yaml_become_documents(tmp_path):
    pytest.importorskip("pandas", reason="Beam YAML needs pandas, of the extra [yaml]")
    pytest.importorskip("jsonschema", reason="Beam YAML needs jsonschema, of the extra [yaml]")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    rows = [
        {"key": 1, "article": {"body": "The river rose.\nThe town slept."}},
        {"key": 2, "article": {"body": "Rain."}},
    ]
    config = {"output": str(tmp_path / "corpus"), "vocab_file": str(tmp_path / "vocab.txt")}
    steps = [
        {"type": "Create", "config": {"elements": rows}},
        {"type": "RowsToDocuments", "config": {"text": "article.body", "id": "key"}},
        {"type": "SegmentSentences", "config": {"language": "en"}},
        {"type": "WriteCorpus", "config": config},
    ]
    pipeline = {
        "pipeline": {"type": "chain", "transforms": steps},
        "providers": [{"include": str(ROOT / "examples/beambert_providers.yaml")}],
    }
    (tmp_path / "rows.yaml").write_text(json.dumps(pipeline))
    run("-m", "apache_beam.yaml.main", "--yaml_pipeline_file", str(tmp_path / "rows.yaml"), "--runner", "FnApiRunner")
    assert len(corpus_rows(tmp_path / "corpus")) == 2


def test_the_provider_file_names_every_transform():
    """Check that each name exists, and that every public transform has a name."""
    import apache_beam as beam

    from beambert.pipelines import transforms

    (provider,) = yaml.safe_load((ROOT / "examples/beambert_providers.yaml").read_text(encoding="utf-8"))
    public = {
        name
        for name in transforms.__all__
        if isinstance(getattr(transforms, name), type) and issubclass(getattr(transforms, name), beam.PTransform)
    }
    assert provider["transforms"].keys() == public
    for path in provider["transforms"].values():
        module, _, name = path.rpartition(".")
        assert issubclass(getattr(importlib.import_module(module), name), beam.PTransform)
