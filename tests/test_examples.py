"""Test that the pipelines in examples/ run as their first lines describe, and write the same as the commands."""

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import yaml

from beambert import cli
from beambert.bert_model.config import BertConfig
from tests.conftest import ROOT, with_slow
from tests.every_output import corpus_rows, digests

TEXTS = [
    f"The {adjective} dog number {number} sleeps.\nIt writes to dog{number}@example.org every day."
    for number in range(40)
    for adjective in ("old", "young", "black")
]


def run(*command: object) -> str:
    result = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        # On a cluster, gRPC can block the end of an interpreter whose job has finished.
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


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


@pytest.mark.parametrize("backend", with_slow(["tensorflow", "jax"], ["jax"]))
def test_the_minimal_pretraining_and_the_command_train_alike(built, tmp_path, backend):
    """Test 20 steps from the same weights on the same batches, without dropout: losses and final weights."""
    import jax

    spec = importlib.util.spec_from_file_location("minimal_pretraining", ROOT / "examples/minimal_pretraining.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    tokenizer = example.Tokenizer.load(built)
    vocab_size = len(tokenizer.vocabulary.tokens)
    initial = example.initial_parameters(jax.random.key(0), 2, 128, vocab_size)
    # Biases and gains are not those that training starts with, 0 and 1, so that their weight decay would be seen.
    noise = np.random.default_rng(0)
    initial |= {
        name: value + noise.normal(0, 0.1, value.shape).astype("f")
        for name, value in initial.items()
        if value.ndim == 1
    }
    example.save(tmp_path / "initial", initial, tokenizer, built / "vocab.txt")
    final, losses = example.train(initial, example.read_batches(built, 4, seed=7), 20, 1e-3, 5, None)

    config = BertConfig.preset("tiny", vocab_size)
    config = dataclasses.replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (tmp_path / "model.json").write_text(config.to_json())
    paths = ["--data", built, "--init_checkpoint", tmp_path / "initial", "--model", tmp_path / "model.json"]
    steps = ["--num_train_steps", 20, "--num_warmup_steps", 5, "--learning_rate", 1e-3, "--train_batch_size", 4]
    flags = ["--output", tmp_path / "run", "--seed", 7, "--backend", backend, "--do_train"]
    run("-m", "beambert", "pretrain", *paths, *steps, *flags)

    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert len(lines) == len(losses) == 20
    for line, of_step in zip(lines, losses, strict=True):
        for name in ("masked_lm_loss", "next_sentence_loss"):
            assert line[name] == pytest.approx(of_step[name], abs=1e-4), (line["step"], name)

    assert cli.main(["convert", str(tmp_path / "run"), str(tmp_path / "converted"), "--to", "huggingface"]) == 0
    converted = example.load(tmp_path / "converted")
    assert converted.keys() == final.keys()
    for name, value in converted.items():
        # The gradient of the bias of the keys is 0: softmax ignores a term that all scores of a position share.
        if not name.endswith("key.bias"):
            difference = np.linalg.norm(value - final[name]) / np.linalg.norm(final[name] - initial[name])
            assert difference < 1e-4, name


@pytest.mark.slow
def test_the_minimal_pretraining_learns_a_model_that_commands_read(built, tmp_path, capsys):
    flags = ["--data", built, "--output", tmp_path / "model", "--steps", 200, "--batch_size", 8]
    printed = run("examples/minimal_pretraining.py", *flags)
    first, last = (float(loss) for loss in re.findall(r"masked_lm_loss ([\d.]+)", printed))
    assert last < first - 0.1
    assert cli.main(["fill-mask", str(tmp_path / "model"), "The [MASK] is a function."]) == 0
    assert "%" in capsys.readouterr().out
