"""The walls of the house: what a room may import, so that each machine installs only what it needs."""

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

FORBIDDEN = {
    "tokenizer.tokenizer, tokenizer.learner, tokenizer.coverage": (
        "apache_beam",
        "keras",
        "tensorflow",
        "pipelines",
        "trainers",
    ),
    "bert_model.config, bert_model.names, bert_model.size, bert_model.vocabulary_padding, bert_model.conversion": (
        "apache_beam",
        "keras",
        "tensorflow",
        "pipelines",
        "tokenizer",
        "trainers",
    ),
    "pipelines.dataset, pipelines.tfrecord, trainers.verification": ("apache_beam", "tensorflow", "keras", "pyarrow"),
    "pipelines.corpus, pipelines.pretraining_data": ("tensorflow", "keras", "bert_model", "trainers", "deploy"),
    # Where there is a size to plan by, and no file to look into.
    "deploy.plan": ("apache_beam", "tensorflow", "keras", "pyarrow"),
    "deploy.build": ("tensorflow", "keras", "bert_model", "trainers"),
    # What `--help` waits for; the rest of `submit flink` needs Beam.
    "deploy.flink": ("apache_beam", "tensorflow", "keras", "pyarrow", "numpy"),
    "deploy.dataflow": ("apache_beam", "tensorflow", "keras", "numpy"),
    "trainers.input, trainers.loop, trainers.pretrain, trainers.fill_mask": ("apache_beam", "pyarrow", "deploy"),
    # What `--help` and a mistyped flag wait for.
    "trainers.pretrain, trainers.convert, trainers.fill_mask": ("tensorflow", "keras"),
    "trainers.finetune, trainers.tune": ("apache_beam", "tensorflow", "keras", "pyarrow", "deploy"),
    "trainers.finetuning.glue, trainers.finetuning.tabular, trainers.finetuning.multiple_choice, "
    "trainers.finetuning.span_task, trainers.finetuning.tagging_task": (
        "apache_beam",
        "tensorflow",
        "keras",
        "pyarrow",
    ),
    "deploy.tpu": ("apache_beam", "tensorflow", "keras", "numpy"),
    "beambert": ("apache_beam", "tensorflow", "keras", "numpy"),
}


@pytest.mark.parametrize("modules", FORBIDDEN)
def test_a_room_imports_nothing_it_must_not(modules):
    code = f"import sys, {modules}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.split(".")[0] for name in result.stdout.split()}
    assert not imported.intersection(FORBIDDEN[modules])


def test_the_model_names_no_tensorflow():
    # Reading and writing TensorFlow's checkpoints is no part of the model, and imports it only when it is done; the
    # random bits of dropout, which Keras has no function for, come from whichever library is the backend.
    for path in {
        path for path in (ROOT / "bert_model").glob("*.py") if path.name not in ("tf1_checkpoint.py", "dropout.py")
    }:
        imported = re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert "tensorflow" not in imported, path.name
