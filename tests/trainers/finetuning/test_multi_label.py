"""Test conversions of multi-label models between checkpoint formats."""

import json

import pytest

from beambert import cli
from beambert.bert_model.checkpoints import native
from beambert.bert_model.checkpoints.reader import open_checkpoint
from tests.trainers.random_models import write_model

LABELS = ("news", "sport", "weather")


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model", "multi_label", LABELS)


def convert(source, destination, kind):
    assert cli.main(["convert", str(source), str(destination), "--to", kind]) == 0


def test_conversion_preserves_multi_label_except_to_tf1(model, tmp_path, capsys):
    convert(model, tmp_path / "hf", "huggingface")
    config = json.loads((tmp_path / "hf" / "config.json").read_text(encoding="utf-8"))
    assert config["problem_type"] == "multi_label_classification"
    convert(tmp_path / "hf", tmp_path / "back", "native")
    assert native.load(tmp_path / "back").multi_label is True
    assert "| Labels per text | any number |" in (tmp_path / "back" / "README.md").read_text(encoding="utf-8")
    capsys.readouterr()
    convert(model, tmp_path / "tf1", "tf1")
    assert "a TF1 checkpoint cannot record that the task is multi-label" in capsys.readouterr().err
    for name, head in (
        ("model", "multi_label"),
        ("hf", "multi_label"),
        ("back", "multi_label"),
        ("tf1", "classification"),
    ):
        with open_checkpoint(tmp_path / name) as checkpoint:
            assert checkpoint.head.name == head
    with open_checkpoint(tmp_path / "tf1", "multi_label") as checkpoint:
        assert checkpoint.head.name == "multi_label"


def test_multi_label_model_with_one_label_is_not_regression(tmp_path):
    write_model(tmp_path / "model", "multi_label", ("spam",))
    convert(tmp_path / "model", tmp_path / "hf", "huggingface")
    with open_checkpoint(tmp_path / "hf") as checkpoint:
        assert (checkpoint.head.name, checkpoint.labels) == ("multi_label", ("spam",))
