"""Fixtures of fine-tuning runs, which train with the numpy backend unless a test requests `real_backend`."""

import dataclasses
import sys

import pytest

from beambert import cli
from tests.trainers import fake_backend
from tests.trainers.finetuning.task_files import TEXTS, write_pairs
from tests.trainers.random_models import CONFIG, write_model

ONE_LAYER = dataclasses.replace(CONFIG, num_hidden_layers=1)


@pytest.fixture(scope="module", autouse=True)
def numpy_backend():
    """Train output biases in numpy, without compilation."""
    with pytest.MonkeyPatch.context() as patch:
        fake_backend.install(patch)
        yield


@pytest.fixture
def real_backend(monkeypatch, numpy_backend):
    """Train with TensorFlow in this test."""
    monkeypatch.delitem(sys.modules, "beambert.trainers.backends.tensorflow.runtime")


@pytest.fixture(scope="session")
def rte(tmp_path_factory):
    """A directory of made-up RTE files with 24 rows each; tests must not change it."""
    directory = tmp_path_factory.mktemp("rte")
    write_pairs(directory, ("sentence1", "sentence2"), ["not_entailment", "entailment"], ("train", "dev", "test"))
    return directory


@pytest.fixture(scope="session")
def initial(tmp_path_factory):
    """The directory of a small pretraining model with random weights; tests must not change it."""
    return write_model(tmp_path_factory.mktemp("models") / "initial", config=ONE_LAYER)


@pytest.fixture
def finetune(rte, initial, tmp_path):
    """A function that runs `beambert finetune rte` with the given flags and returns the exit code.

    By default it trains 12 steps (2 epochs) into tmp_path/output.
    """

    def run(*flags: str) -> int:
        return cli.main(arguments("rte", rte, initial, tmp_path / "output", *flags))

    return run


def arguments(task, data, initial, output, *flags):
    """Return the arguments of a run of 2 epochs with 6 steps each."""
    given = ["finetune", task, "--data_dir", str(data), "--init_checkpoint", str(initial), "--output", str(output)]
    return [*given, "--max_seq_length", "48", "--train_batch_size", "4", "--num_train_epochs", "2", *flags]


@pytest.fixture
def table(tmp_path):
    """A directory of made-up reviews with stars, topics and a score, as CSV files for the task `csv`."""
    directory = tmp_path / "table"
    directory.mkdir()
    for name in ("train", "dev", "test"):
        lines = ["text,stars,topics,score"]
        for number, text in enumerate(TEXTS * 3):
            topics = ("", "food", "food|staff")[number % 3]
            lines.append(f'"{text}",{"good" if number % 2 else "bad"},{topics},{number % 5}')
        (directory / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return directory
