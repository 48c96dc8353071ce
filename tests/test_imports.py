"""Test the exports and imports of the packages, so that each machine installs only what it needs."""

import ast
import importlib
import re
import subprocess
import sys

import pytest

from beambert import cli
from tests.conftest import ROOT

EXPORTS = {
    "beambert.bert_model": {"BertConfig", "BertEncoder", "BertForPretraining", "BertForTask"},
    "beambert.bert_model.checkpoints": {"Checkpoint", "CheckpointError", "open_checkpoint"},
    "beambert.pipelines": {"CorpusOptions", "Dataset", "PretrainingDataOptions"},
    "beambert.tokenizer": {"Tokenizer", "Vocabulary"},
    "beambert.trainers": {"Objective", "Predictor", "TrainingError", "TrainingOptions", "load_model", "train"},
}
_ENGINES = ("apache_beam", "tensorflow", "keras", "pyarrow")
# Packages that must not be imported by a list of modules. One process imports each list.
FORBIDDEN = {
    "beambert.tokenizer, beambert.tokenizer.tokenizer, beambert.tokenizer.learner, beambert.tokenizer.wordpiece": (
        *_ENGINES,
        "beambert.pipelines",
        "beambert.trainers",
    ),
    "beambert.bert_model, beambert.bert_model.config, beambert.bert_model.checkpoints, "
    "beambert.bert_model.checkpoints.variable_names, beambert.bert_model.size, "
    "beambert.bert_model.size, beambert.bert_model.checkpoints.writer": (
        *_ENGINES,
        "beambert.pipelines",
        "beambert.tokenizer",
        "beambert.trainers",
    ),
    # The reports of datasets and of runs.
    "beambert.reporting.plots": (*_ENGINES, "beambert.pipelines", "beambert.trainers", "beambert.tokenizer"),
    # A training host without Beam reads data. An environment with JAX and without TensorFlow reads and writes
    # checkpoints and event files. A plan for a corpus size from a flag reads no files.
    "beambert.pipelines, beambert.pipelines.dataset, beambert.pipelines.io.tfrecord, beambert.trainers, "
    "beambert.trainers.data.shard_reader, beambert.bert_model.checkpoints.tensor_bundle, "
    "beambert.bert_model.checkpoints.tf1, beambert.trainers.checkpoints.checkpoint_manager, "
    "beambert.trainers.monitoring.tensorboard, beambert.deploy.plan.command, "
    "beambert.trainers.data.pipeline, beambert.trainers.finetuning.batches, "
    "beambert.trainers.optimization.schedule": _ENGINES,
    # Data workers.
    "beambert.pipelines.transforms.corpora, beambert.pipelines.commands.build": (
        "tensorflow",
        "keras",
        "beambert.bert_model",
        "beambert.trainers",
        "beambert.deploy",
    ),
    # Modules that are imported for `--help` and for the error of a mistyped flag.
    "beambert.trainers.commands.pretrain, beambert.trainers.commands.convert, beambert.trainers.commands.fill_mask, "
    "beambert.trainers.commands.finetune, beambert.trainers.commands.tune, "
    "beambert.trainers.finetuning.tasks.text.glue, beambert.trainers.finetuning.tasks.text.tabular, "
    "beambert.trainers.finetuning.tasks.text.multiple_choice, beambert.trainers.finetuning.tasks.spans.span_task, "
    "beambert.trainers.finetuning.tasks.tagging.tagging_task": (*_ENGINES, "beambert.deploy"),
    "beambert, beambert.deploy.flink.command, beambert.deploy.dataflow.command, beambert.deploy.tpu.command": (
        *_ENGINES,
        "numpy",
    ),
}

_NOT_FOR_HELP = ("apache_beam", "google.cloud.storage", "keras", "pyarrow", "tensorflow")
# A program that prints the help of every command, and fails at the first one that imports a slow package.
_PRINT_HELP = f"""
import sys
from beambert import cli
for command in ["", *cli.COMMANDS]:
    try:
        code = cli.main([*command.split(), "--help"])
    except SystemExit as end:
        code = end.code
    assert not code, (command, code)
    imported = sys.modules.keys() & {set(_NOT_FOR_HELP)}
    assert not imported, (command, imported)
"""

# These modules import TensorFlow, which takes longer than all of the above.
SLOW = {"beambert.trainers.training.loop": ("apache_beam", "pyarrow", "beambert.deploy")}


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [*FORBIDDEN.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in SLOW.items())],
    ids=lambda value: value.partition(",")[0] if isinstance(value, str) else "",
)
def test_a_module_imports_nothing_forbidden(modules, forbidden):
    # Keras imports pandas, and pandas imports pyarrow, wherever they are installed.
    code = f"import sys; sys.modules['pandas'] = None; import {modules}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(result.stdout.split())
    assert not imported.intersection(forbidden)


def test_help_imports_nothing_slow():
    result = subprocess.run([sys.executable, "-c", _PRINT_HELP], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert all(f"usage: beambert {command}" in result.stdout for command in cli.COMMANDS)


def test_only_the_operations_of_the_model_depend_on_a_backend():
    operations = ROOT / "bert_model/ops"
    for path in (ROOT / "bert_model").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        imported = set(re.findall(r"^\s*(?:import|from) (\w+)", text, re.MULTILINE))
        if operations not in path.parents:
            assert not imported & {"tensorflow", "jax"}, path
            assert "keras.backend" not in text, path
        elif path.parent == operations and path.name != "tensorflow.py":
            assert not imported & {"tensorflow", "jax"}, path


@pytest.mark.parametrize("package", EXPORTS)
def test_a_package_exports_its_public_names(package):
    module = importlib.import_module(package)
    assert set(module.__all__) >= EXPORTS[package]
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        assert getattr(value, "__name__", name) == name
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = module.nothing_like_this


def test_every_package_has_a_docstring():
    packages = [path for root in ROOT.glob("*/__init__.py") for path in root.parent.rglob("__init__.py")]
    assert len(packages) > 30
    for path in packages:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        assert re.match(r"[A-Z].{30,}[.:\n]", docstring), path
