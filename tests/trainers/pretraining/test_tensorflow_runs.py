"""Test pretraining with TensorFlow: learning, equal weights after resuming, evaluation, corrupt data, silent start."""

import math
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_model.config import BertConfig
from bert_model.pretraining import BertForPretraining
from pipelines.errors import DatasetError
from tests.trainers.pretraining_shards import LENGTH, SMALLEST, VOCABULARY, random_features
from tests.trainers.small_runs import evaluated, updated
from trainers.commands import pretrain
from trainers.pretraining.pretraining_objective import pretraining_task


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
    # Resume from the checkpoint at step 3, as after a kill: the later checkpoint is missing.
    shutil.copytree(output, resumed)
    for path in (resumed / "checkpoints").glob("model.ckpt-6.*"):
        path.unlink()
    capsys.readouterr()
    assert pretrain.run(options("--output", str(resumed), *flags, "--iterations_per_loop", "2")) == 0
    assert capsys.readouterr().out.startswith(f"Resuming {resumed} from step 3 of 6")
    readers = [tf.train.load_checkpoint(str(run / "checkpoints/model.ckpt-6")) for run in (output, resumed)]
    for name in readers[0].get_variable_to_shape_map():
        np.testing.assert_array_equal(readers[0].get_tensor(name), readers[1].get_tensor(name), err_msg=name)


def test_overfits_a_handful_of_examples():
    generator = np.random.default_rng(0)
    features = {
        name: values if values.dtype == np.float32 else values.astype(np.int32)
        for name, values in random_features(generator, 8).items()
    }
    keras.utils.set_random_seed(0)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    task = pretraining_task(BertForPretraining(config))
    sums = updated(task, features, 200, num_warmup_steps=20, learning_rate=3e-3)
    assert sums["loss"][1] == 200
    metrics = evaluated(task, features)
    assert metrics["masked_lm_loss"] < 0.05
    assert metrics["next_sentence_loss"] < 0.05
    assert metrics["masked_lm_accuracy"] == 1
    assert metrics["next_sentence_accuracy"] == 1


def test_evaluation_equals_numpy_over_all_examples_whatever_the_batch_size():
    keras.utils.set_random_seed(0)
    config = BertConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    model = BertForPretraining(config)
    for variable in model.variables:
        variable.assign(np.random.default_rng(1).normal(0, 0.3, variable.shape))
    features = random_features(np.random.default_rng(0), 11)
    logits = model(features)
    lm_loss = lm_right = lm_count = ns_loss = ns_right = 0.0
    for row in range(11):
        for slot, label in enumerate(features["masked_lm_ids"][row]):
            scores = logits.masked_lm[row, slot].numpy().astype(np.float64)
            if features["masked_lm_weights"][row, slot]:
                lm_loss += math.log(np.exp(scores).sum()) - scores[label]
                lm_right += scores.argmax() == label
                lm_count += 1
        scores = logits.next_sentence[row].numpy().astype(np.float64)
        label = features["next_sentence_labels"][row, 0]
        ns_loss += math.log(np.exp(scores).sum()) - scores[label]
        ns_right += scores.argmax() == label
    expected = {
        "masked_lm_accuracy": lm_right / lm_count,
        "masked_lm_loss": lm_loss / lm_count,
        "next_sentence_accuracy": ns_right / 11,
        "next_sentence_loss": ns_loss / 11,
    }
    for size in (4, 11):
        batches = [
            {
                name: v[start : start + size].astype(np.float32 if v.dtype == np.float32 else np.int32)
                for name, v in features.items()
            }
            for start in range(0, 11, size)
        ]
        assert evaluated(pretraining_task(model), *batches) == pytest.approx(expected, rel=1e-5)


def test_a_damaged_shard_is_named(data, options, smallest):
    path = data / "train-0-1.tfrecord"
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"train-0-1.tfrecord has a corrupt record"):
        pretrain.run(options("--num_train_steps", "10", *smallest))


@pytest.mark.slow
def test_tensorflow_starts_in_silence():
    start = "from trainers.backends.tensorflow.startup import start_tensorflow; start_tensorflow()"
    program = f"{start}; import tensorflow as tf; tf.constant(1.0) + 1"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stderr == ""
    assert answer.stdout == ""
