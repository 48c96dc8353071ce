"""Test the exports and imports of the packages, so that each machine installs only what it needs."""

import ast
import importlib
import re
import subprocess
import sys

import pytest

import beambert
from pipelines.sources import READERS
from pipelines.sources.input_formats import FORMATS
from tests.conftest import ROOT

EXPORTS = {
    "bert_model": {"BertConfig", "BertEncoder", "BertForPretraining", "BertForTask"},
    "bert_model.checkpoints": {"Checkpoint", "CheckpointError", "open_checkpoint"},
    "pipelines": {"CorpusOptions", "Dataset", "PretrainingDataOptions"},
    "pipelines.sources": {"READERS", "ReadOptions", "read_file"},
    "tokenizer": {"Tokenizer", "Vocabulary"},
    "trainers": {"LoopConfig", "Objective", "Predictor", "TrainingError", "load_model", "train"},
}
_ENGINES = ("apache_beam", "tensorflow", "keras", "pyarrow")
# Packages that must not be imported by a list of modules. One process imports each list.
FORBIDDEN = {
    "tokenizer, tokenizer.tokenizer, tokenizer.learner, tokenizer.coverage": (*_ENGINES, "pipelines", "trainers"),
    "bert_model, bert_model.config, bert_model.checkpoints, bert_model.checkpoints.variable_names, bert_model.size, "
    "bert_model.vocabulary_padding, bert_model.checkpoints.writer": (*_ENGINES, "pipelines", "tokenizer", "trainers"),
    # A training host without Beam reads data. An environment with JAX and without TensorFlow reads and writes
    # checkpoints and event files. A plan for a corpus size from a flag reads no files.
    "pipelines, pipelines.dataset, pipelines.io.tfrecord, trainers, trainers.data.verification, "
    "bert_model.checkpoints.tensor_bundle, bert_model.checkpoints.tf1, trainers.checkpoints.checkpoint_manager, "
    "trainers.monitoring.tensorboard, deploy.plan.command, "
    "trainers.data.pipeline, trainers.finetuning.batches, trainers.optimization.schedule": _ENGINES,
    # Data workers.
    "pipelines.build_corpus, pipelines.build_pretraining_data, pipelines.commands.build": (
        "tensorflow",
        "keras",
        "bert_model",
        "trainers",
        "deploy",
    ),
    # Modules that are imported for `--help` and for the error of a mistyped flag.
    "trainers.commands.pretrain, trainers.commands.convert, trainers.commands.fill_mask, trainers.commands.finetune, "
    "trainers.commands.tune, trainers.finetuning.tasks.text.glue, trainers.finetuning.tasks.text.tabular, "
    "trainers.finetuning.tasks.text.multiple_choice, trainers.finetuning.tasks.spans.span_task, "
    "trainers.finetuning.tasks.tagging.tagging_task": (*_ENGINES, "deploy"),
    "beambert, deploy.flink.command, deploy.dataflow.command, deploy.tpu.command": (*_ENGINES, "numpy"),
}

_NOT_FOR_HELP = ("apache_beam", "google.cloud.storage", "keras", "pyarrow", "tensorflow")
# A program that prints the help of every command, and fails at the first one that imports a slow package.
_PRINT_HELP = f"""
import sys, beambert
for command in ["", *beambert.COMMANDS]:
    try:
        code = beambert.main([*command.split(), "--help"])
    except SystemExit as end:
        code = end.code
    assert not code, (command, code)
    imported = sys.modules.keys() & {set(_NOT_FOR_HELP)}
    assert not imported, (command, imported)
"""

# These modules import TensorFlow, which takes longer than all of the above.
SLOW = {"trainers.training.loop": ("apache_beam", "pyarrow", "deploy")}


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [*FORBIDDEN.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in SLOW.items())],
    ids=lambda value: value.partition(",")[0] if isinstance(value, str) else "",
)
def test_a_module_imports_nothing_forbidden(modules, forbidden):
    # Keras imports pandas, and pandas imports pyarrow, wherever they are installed.
    code = f"import sys; sys.modules['pandas'] = None; import {modules}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.split(".")[0] for name in result.stdout.split()}
    assert not imported.intersection(forbidden)


def test_help_imports_nothing_slow():
    result = subprocess.run([sys.executable, "-c", _PRINT_HELP], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert all(f"usage: beambert {command}" in result.stdout for command in beambert.COMMANDS)


def test_every_format_has_a_reader():
    assert ("auto", *READERS) == FORMATS


def test_the_model_does_not_import_tensorflow():
    # Keras has no function for the random bits of dropout, so that dropout.py imports the library of the backend.
    for path in {path for path in (ROOT / "bert_model").rglob("*.py") if path.name != "dropout.py"}:
        imported = re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert "tensorflow" not in imported, path.name


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
