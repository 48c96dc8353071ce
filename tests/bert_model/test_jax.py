"""Test models under JAX, in one process: the outputs of TensorFlow, dropout with seeds, and the attention kernel."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.bert_model.every_output import every_output
from tests.conftest import ROOT

jax = pytest.importorskip("jax")

from beambert.bert_model.ops.jax.dropout import example_seeds, keep_mask  # noqa: E402

# A process that compiles seven models; at every change, test_jax_steps.py compares some with TensorFlow.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The directory of the results of `jax_outputs.py`."""
    directory = tmp_path_factory.mktemp("jax")
    program = [sys.executable, str(Path(__file__).with_name("jax_outputs.py")), str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return directory


def test_jax_gives_the_numbers_of_tensorflow_without_importing_it(directory):
    wanted = every_output()
    with np.load(directory / "every.npz") as given:
        assert set(given) == set(wanted)
        for name, values in wanted.items():
            np.testing.assert_allclose(given[name], values, rtol=1e-5, atol=1e-5, err_msg=name)


def test_an_encoder_gives_the_same_with_the_attention_kernel_and_without(directory):
    """Compare hidden states and gradients with dropout; the gradients of the keys' biases are 0 up to rounding."""
    with np.load(directory / "fused.npz") as outputs:
        names = {name.rpartition("/")[0] for name in outputs}
        assert len(names) > 30
        for name in names:
            fused, plain = outputs[f"{name}/True"], outputs[f"{name}/False"]
            assert np.linalg.norm(fused - plain) < 0.015 * np.linalg.norm(plain) + 0.05, name


@pytest.fixture(scope="module")
def seeded_outputs(directory):
    with np.load(directory / "seeded.npz") as file:
        return dict(file)


@pytest.mark.parametrize("case", ["exchanged", "sharded"])
def test_models_with_a_seed_per_example_do_not_depend_on_the_place_of_an_example(seeded_outputs, case):
    names = [name for name in seeded_outputs if name.startswith("whole/")]
    assert len(names) == 5
    for name in names:
        actual = seeded_outputs[name.replace("whole", case)]
        np.testing.assert_allclose(actual, seeded_outputs[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("case", ["undropped", "next_step"])
def test_every_model_has_dropout_that_changes_with_the_step(seeded_outputs, case):
    for name in (name for name in seeded_outputs if name.startswith("whole/")):
        differences = np.abs(seeded_outputs[name] - seeded_outputs[name.replace("whole", case)])
        # Every example differs, so no seed is lost on the way to the last layer.
        assert differences.reshape(len(differences), -1).max(axis=1).min() > 1e-3, name


def test_choices_have_different_masks(seeded_outputs):
    same, dropped = (seeded_outputs[f"{case}/multiple_choice/0"] for case in ("undropped", "whole"))
    np.testing.assert_allclose(same[:, 0], same[:, 1], rtol=1e-5)
    assert np.abs(dropped[:, 0] - dropped[:, 1]).min() > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradient_is_the_mask_times_the_scale(seeded_outputs, dtype):
    kept = np.asarray(keep_mask((8, 40, 50), 0.25, example_seeds(3, 20, 0, 8)))
    assert 0.7 < kept.mean() < 0.8
    scaled = 3 * jax.numpy.asarray(4 / 3, dtype).astype(np.float32)
    for name in ("dropout", "gradient"):
        np.testing.assert_allclose(seeded_outputs[f"{name}/{dtype}"], np.where(kept, scaled, 0), rtol=2**-8)
