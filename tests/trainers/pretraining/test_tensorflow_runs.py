"""Test pretraining with TensorFlow: learning, equal weights after resuming, evaluation, corrupt data, silent start."""

import dataclasses
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest

from beambert.bert_model.pretraining import BertForPretraining
from beambert.trainers.commands import pretrain
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.pretraining.pretraining_objective import pretraining_objective
from tests.trainers.checkpoints.saved_checkpoints import variables
from tests.trainers.pretraining_shards import SMALLEST, random_features
from tests.trainers.small_runs import evaluated, updated


@pytest.fixture
def smallest(tmp_path):
    """Flags of a small model and of training alone."""
    path = tmp_path / "smallest.json"
    path.write_text(SMALLEST.to_json(), encoding="utf-8")
    return "--model", str(path), "--do_train"


def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(tmp_path, options, smallest, capsys):
    output, resumed = tmp_path / "straight", tmp_path / "resumed"
    flags = (*smallest, "--save_checkpoints_steps", "3")
    assert pretrain.run(options("--output", str(output), *flags)) == 0
    assert metrics_jsonl.read(output / "metrics.jsonl")[-1]["compile_seconds"] > 0
    # Resume from the checkpoint at step 3, as after a kill: the later checkpoint is missing.
    shutil.copytree(output, resumed)
    for path in (resumed / "checkpoints").glob("model.ckpt-6.*"):
        path.unlink()
    capsys.readouterr()
    assert pretrain.run(options("--output", str(resumed), *flags, "--iterations_per_loop", "2")) == 0
    assert capsys.readouterr().out.startswith(f"Resuming {resumed} from step 3 of 6")
    expected, found = variables(output, 6), variables(resumed, 6)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_overfits_a_handful_of_examples():
    generator = np.random.default_rng(0)
    features = {
        name: values if values.dtype == np.float32 else values.astype(np.int32)
        for name, values in random_features(generator, 8).items()
    }
    keras.utils.set_random_seed(0)
    config = dataclasses.replace(
        SMALLEST, hidden_size=32, intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    task = pretraining_objective(BertForPretraining(config))
    sums = updated(task, features, 200, num_warmup_steps=20, learning_rate=3e-3)
    assert sums["loss"][1] == 200
    metrics = evaluated(task, features)
    assert metrics["masked_lm_loss"] < 0.05
    assert metrics["next_sentence_loss"] < 0.05
    assert metrics["masked_lm_accuracy"] == 1
    assert metrics["next_sentence_accuracy"] == 1


@pytest.mark.slow
def test_tensorflow_starts_in_silence():
    start = "from beambert.trainers.backends.tensorflow.startup import start_tensorflow; start_tensorflow()"
    program = f"{start}; import tensorflow as tf; tf.constant(1.0) + 1"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stderr == ""
    assert answer.stdout == ""
