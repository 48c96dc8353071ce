"""Test commands with JAX in a process without TensorFlow against the same commands with TensorFlow."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from beambert import cli
from beambert.bert_model.checkpoints import reader
from beambert.trainers.commands.fill_mask import fill_masks
from beambert.trainers.inference.forward import padded_batch_size, padded_length
from tests.conftest import ROOT
from tests.trainers.conftest import CONFIG as RUN_CONFIG
from tests.trainers.finetuning.task_files import write_pairs
from tests.trainers.pretraining_shards import write_dataset
from tests.trainers.random_models import TEXTS, write_model

pytestmark = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")

LABELS = ("no", "perhaps", "yes \u00e9")
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
# Head and labels of each model.
HEADS = {
    "classification": ("classification", LABELS),
    "token_classification": ("token_classification", TAGS),
    "multiple_choice": ("multiple_choice", None),
    "span": ("span", None),
}
SINGLE = ["", "All human beings.", *TEXTS[1:30:3], "a" * 90, " \x01 "]
INPUTS = {
    "multiple_choice": ["all ||| human ||| rights ||| a", f"{TEXTS[2]} ||| {TEXTS[3]} ||| {TEXTS[4]}"],
    "span": [f"all rights ||| {TEXTS[0] * 3}", f"human ||| {TEXTS[5]}", f"{TEXTS[3]} ||| {TEXTS[10] + TEXTS[6]}"],
}
MASKED = ["ba [MASK].", "[MASK] be [MASK] " + "fu " * 20, "[MASK]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with models of every head, texts of every length, shards and the files of a task."""
    folder = tmp_path_factory.mktemp("without")
    for name, (head, labels) in HEADS.items():
        write_model(folder / name, head, labels)
        lines = INPUTS.get(name, SINGLE)
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    write_model(folder / "pretraining")
    texts = ["a " * (number % 70) for number in range(150)]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    (folder / "short.txt").write_text(f"human rights\n{TEXTS[0] * 3}\n", encoding="utf-8")
    (folder / "pairs.tsv").write_text("all human rights\trights human all\nhuman\thumans\n", encoding="utf-8")
    (folder / "model.json").write_text(RUN_CONFIG.to_json(), encoding="utf-8")
    write_dataset(folder / "data")
    (folder / "rte").mkdir()
    write_pairs(folder / "rte", ("sentence1", "sentence2"), ["not_entailment", "entailment"], ("train", "dev"))
    return folder


def predict(folder, name):
    return ["predict", f"{folder}/{name}", "--input_file", f"{folder}/{name}.txt", "--json", "--batch_size", "4"]


def features(folder, backend):
    argv = ["features", "--input_file", f"{folder}/texts.txt", "--output_file", f"{folder}/{backend}-features.npz"]
    return [*argv, "--init_checkpoint", f"{folder}/pretraining", "--max_seq_length", "64", "--layers", "-1,0"]


def evaluate(folder, backend):
    argv = ["evaluate", f"{folder}/pretraining", "--texts", f"{folder}/short.txt", "--pairs", f"{folder}/pairs.tsv"]
    return [*argv, "--output", f"{folder}/{backend}-evaluation.json"]


@pytest.fixture(scope="module")
def results(folder):
    """The result of every command in the process without TensorFlow, by name."""
    pretrain = ["pretrain", "--data", f"{folder}/data", "--output", f"{folder}/run", "--model", f"{folder}/model.json"]
    pretrain += ["--train_batch_size", "4", "--save_checkpoints_steps", "3", "--num_train_steps"]
    finetune = ["finetune", "rte", "--data_dir", f"{folder}/rte", "--init_checkpoint", f"{folder}/pretraining"]
    finetune += ["--output", f"{folder}/rte-model", "--max_seq_length", "60", "--train_batch_size", "4"]
    commands = {
        **{name: predict(folder, name) for name in HEADS},
        "features": features(folder, "jax"),
        "pretrain": [*pretrain, "4", "--backend", "jax"],
        "resume": [*pretrain, "6"],
        "fill_masks": ["fill_masks", f"{folder}/run", *MASKED],
        "evaluate": evaluate(folder, "jax"),
        "finetune": [*finetune, "--num_train_epochs", "1"],
        "fine-tuned": ["predict", f"{folder}/rte-model", "a b ||| c", "--json"],
        "convert": ["convert", f"{folder}/rte-model", f"{folder}/converted", "--to", "huggingface"],
        "tensorflow": ["predict", f"{folder}/span", "a ||| b", "--backend", "tensorflow"],
        "export": ["export", f"{folder}/span", f"{folder}/exported"],
    }
    program = [sys.executable, "-m", "tests.trainers.commands_without_tensorflow"]
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    # Compilation takes most of the time.
    environment |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    lines = json.dumps(list(commands.values()))
    answer = subprocess.run(program, input=lines, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    parsed = [json.loads(line) for line in answer.stdout.splitlines()]
    return dict(zip(commands, parsed, strict=True)) | {"stderr": answer.stderr}


def assert_close(found, wanted, place=""):
    """Check that values parsed from JSON are equal, numbers to 1e-5."""
    if isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-5), place
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), place
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_close(one, other, f"{place}/{number}")
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), place
        for name, value in wanted.items():
            assert_close(found[name], value, f"{place}/{name}")
    else:
        assert found == wanted, place


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_predictions_of_every_head(results, folder, capsys, name):
    assert results[name]["code"] == 0
    assert cli.main(predict(folder, name)) == 0
    found = [json.loads(line) for line in results[name]["printed"].splitlines()]
    wanted = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(found) == len(INPUTS.get(name, SINGLE))
    assert_close(found, wanted)
    # One program for each of the lengths 32 and 64, and for multiple choice one for each size of a chunk.
    assert 1 <= results[name]["programs"] <= 3


@pytest.mark.slow
def test_evaluation(results, folder):
    assert results["evaluate"]["code"] == 0
    assert cli.main(evaluate(folder, "tensorflow")) == 0
    found, wanted = (
        json.loads((folder / f"{backend}-evaluation.json").read_text(encoding="utf-8"))
        for backend in ("jax", "tensorflow")
    )
    assert_close(found, wanted)
    # One program for each length from 8 on, with one or several labels, and programs for masked windows.
    assert 1 <= results["evaluate"]["programs"] <= 12


@pytest.mark.slow
def test_features_of_all_lengths(results, folder):
    assert results["features"]["code"] == 0
    assert cli.main(features(folder, "tensorflow")) == 0
    found, wanted = (np.load(folder / f"{backend}-features.npz") for backend in ("jax", "tensorflow"))
    assert found.files == wanted.files
    assert {"layer_-1", "input_ids"} <= set(found.files)
    for array in found.files:
        if array != "vocabulary":
            np.testing.assert_allclose(found[array], wanted[array], rtol=1e-5, atol=1e-5)
    # One program for each of the lengths 32 and 64.
    assert results["features"]["programs"] == 2


@pytest.mark.slow
def test_pretraining_resumes_and_fills_masks(results, folder):
    assert [results[name]["code"] for name in ("pretrain", "resume", "fill_masks")] == [0, 0, 0]
    assert f"Resuming {folder}/run from step 4 of 6" in results["resume"]["printed"]
    assert (folder / "run/eval_results.json").is_file()
    record = json.loads((folder / "run/run.json").read_text(encoding="utf-8"))
    assert record["options"]["backend"] == "jax"
    found = json.loads(results["fill_masks"]["printed"])
    assert [len(masks) for masks in found] == [1, 2, 1]
    wanted = json.loads(json.dumps(fill_masks(folder / "run", MASKED, top_k=4)))
    for masks, others in zip(found, wanted, strict=True):
        for candidates, expected in zip(masks, others, strict=True):
            assert [share for _, share in candidates] == pytest.approx([share for _, share in expected], abs=1e-5)
            assert candidates[0][0] == expected[0][0]
    assert results["fill_masks"]["programs"] <= 2


@pytest.mark.slow
def test_fine_tuning_and_conversion(results, folder, capsys):
    assert [results[name]["code"] for name in ("finetune", "fine-tuned", "convert")] == [0, 0, 0]
    assert cli.main(["predict", f"{folder}/rte-model", "a b ||| c", "--json"]) == 0
    wanted = json.loads(capsys.readouterr().out)
    assert_close(json.loads(results["fine-tuned"]["printed"]), wanted)
    assert [entry["label"] for entry in wanted["labels"]]
    with (
        reader.open_checkpoint(folder / "converted") as converted,
        reader.open_checkpoint(folder / "rte-model") as model,
    ):
        assert (converted.head, converted.labels) == (model.head, model.labels)


@pytest.mark.slow
def test_commands_that_need_tensorflow_name_the_extra(results):
    assert [results[name]["code"] for name in ("tensorflow", "export")] == [1, 1]
    lines = [line for line in results["stderr"].splitlines() if "error:" in line]
    assert lines == [
        "beambert predict: error: --backend tensorflow: this process has started jax; use a new process for tensorflow",
        "beambert export: error: package tensorflow is not installed; pip install 'beambert[train]'",
    ]


def test_static_shapes_are_few_and_large_enough():
    for limit, count in ((48, 2), (128, 4), (512, 8), (2000, 12)):
        lengths = {length: padded_length(length, limit, static=True) for length in range(1, limit + 1)}
        assert all(length <= padded <= limit for length, padded in lengths.items())
        assert len(set(lengths.values())) == count
        # Padding adds at most half the length, except to short texts.
        assert all(2 * padded <= 3 * length + 64 for length, padded in lengths.items())
    assert [padded_length(length, 60, static=False) for length in (1, 8, 9, 57)] == [8, 8, 16, 60]
    assert [padded_batch_size(count, 32, count) for count in (1, 2, 3, 20, 32)] == [1, 2, 4, 32, 32]
    assert padded_batch_size(24, 24, 24) == 24
    assert padded_batch_size(1, 32, 33) == 32
