"""Test that the Python blocks in the guide to ONNX and LiteRT return the model's probabilities."""

import shutil

import numpy as np
import pytest

from beambert import cli
from beambert.trainers.inference.model_loading import load_model
from beambert.trainers.inference.predictor import Predictor
from tests.test_guides import python_blocks
from tests.trainers.commands.served_models import LABELS


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_python_blocks(models, tmp_path, monkeypatch):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(models / "classification", tmp_path / "model")
    (found,) = Predictor(load_model(tmp_path / "model"), top_k=3).answers(["A text."], ["text"])
    by_label = {label["label"]: label["probability"] for label in found["labels"]}
    expected = [[by_label[label] for label in LABELS]]
    names: dict[str, object] = {}
    blocks = python_blocks("export-onnx")
    assert len(blocks) == 2
    for kind, block in zip(("onnx", "litert"), blocks, strict=True):
        assert cli.main(["export", "model", f"bert-{kind}", "--to", kind]) == 0
        exec(block, names)
        np.testing.assert_allclose(names.pop("probabilities"), expected, rtol=1e-4, atol=1e-4)
