from argparse import ArgumentParser

import pytest

from beambert.bert_model.config import BertConfig
from beambert.trainers.commands.pretrain import add_arguments, configure
from beambert.trainers.pretraining.options import PretrainOptions
from tests.trainers.pretraining_shards import LENGTH, VOCABULARY, write_dataset

CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=LENGTH,
)


@pytest.fixture(scope="session", autouse=True)
def _started() -> None:
    """Start TensorFlow before the first test, and not earlier: `tests.forked` forks this process first."""
    from beambert.trainers.backends.tensorflow.startup import start_tensorflow

    start_tensorflow()


@pytest.fixture
def numpy_backend(monkeypatch):
    """Train with the numpy backend in place of TensorFlow, for tests of everything but the steps."""
    from tests.trainers import fake_backend

    fake_backend.install(monkeypatch)


@pytest.fixture
def data(tmp_path):
    """A directory with a small pretraining dataset."""
    write_dataset(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def options(tmp_path, data):
    """A function that returns the configuration of a run for flags; the default is a small model on `data`."""
    model = tmp_path / "model.json"
    model.write_text(CONFIG.to_json(), encoding="utf-8")

    def parse(*flags: str) -> PretrainOptions:
        parser = ArgumentParser()
        add_arguments(parser)
        defaults = ["--data", str(data), "--output", str(tmp_path / "output"), "--model", str(model)]
        args = parser.parse_args([*defaults, "--num_train_steps", "6", "--train_batch_size", "4", *flags])
        return configure(args)

    return parse
