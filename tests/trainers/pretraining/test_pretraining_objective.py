import keras
import numpy as np
import pytest
import tensorflow as tf

from beambert.bert_model.pretraining import BertForPretraining
from beambert.trainers.backends.tensorflow.train_step import Trainer
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.pretraining.pretraining_objective import pretraining_objective
from tests.trainers.pretraining_shards import SMALLEST, VOCABULARY, random_features
from tests.trainers.small_runs import repeated, settings, trained, updated


def make_model(**options):
    keras.utils.set_random_seed(1)
    return BertForPretraining(SMALLEST, **options)


def batch(count=4):
    features = random_features(np.random.default_rng(0), count)
    return {
        name: values.astype(np.float32 if name.endswith("weights") else np.int32) for name, values in features.items()
    }


def evaluated(task, features):
    """Return the metrics of a batch, computed without compilation."""
    return {name: float(top) / float(bottom) for name, (top, bottom) in task.sums(features, None).items()}


def test_without_the_next_sentence_task_its_metrics_are_absent_and_its_variables_stay():
    features = batch()
    del features["next_sentence_labels"]
    task = pretraining_objective(make_model())
    before = {name: variable.numpy().copy() for name, variable in task.variables.items()}
    assert evaluated(task, features).keys() == {"masked_lm_accuracy", "masked_lm_loss"}
    sums = updated(task, features, learning_rate=1e-2)
    np.testing.assert_allclose(sums["loss"][0], sums["masked_lm_loss"][0] / sums["masked_lm_loss"][1], rtol=1e-4)
    for name, variable in task.variables.items():
        untouched = name.startswith(("bert/pooler", "cls/seq_relationship"))
        assert (variable.numpy() == before[name]).all() == untouched, name


def test_weights_leave_out_empty_places_of_packed_rows():
    features = batch()
    pairs = np.array([[0, 1, 1]] * 4, np.int32)
    packed = {
        **features,
        "sequence_ids": np.array([[1] * 10 + [2] * 10 + [0] * 12] * 4, np.int32),
        "next_sentence_positions": np.array([[0, 10, 0]] * 4, np.int32),
        "next_sentence_labels": pairs,
        "next_sentence_weights": np.array([[1.0, 1.0, 0.0]] * 4, np.float32),
    }
    task = pretraining_objective(make_model())
    sums = task.sums(packed, None)
    assert {name: float(value) for name, value in task.weights(packed).items()} == {
        name: float(sums[name][1]) for name in ("masked_lm_loss", "next_sentence_loss")
    }
    assert float(sums["next_sentence_loss"][1]) == float(sums["next_sentence_accuracy"][1]) == 8
    opposite = {**packed, "next_sentence_labels": np.array([[0, 1, 0]] * 4, np.int32)}
    assert evaluated(task, opposite) == pytest.approx(evaluated(task, packed))


def test_a_padded_vocabulary_is_trained_saved_and_restored_without_its_padding(tmp_path):
    padded = pretraining_objective(make_model(pad_vocabulary=True))
    assert padded.variables["bert/embeddings/word_embeddings"].shape == (128, 16)
    trainer = Trainer(padded, settings(num_train_steps=2, learning_rate=1e-2))
    trained(trainer, repeated([batch()]), tmp_path, save_checkpoints_steps=2)
    prefix = checkpoint_manager.checkpoints(tmp_path / "c")[-1].prefix
    shapes = dict(tf.train.list_variables(str(prefix)))
    for slot in ("", "/adam_m", "/adam_v"):
        assert shapes[f"bert/embeddings/word_embeddings{slot}"] == [len(VOCABULARY), 16]
        assert shapes[f"cls/predictions/output_bias{slot}"] == [len(VOCABULARY)]
    # Models with and without vocabulary padding resume from the checkpoint.
    expected = evaluated(padded, batch())
    for options in ({"pad_vocabulary": True}, {}):
        task = pretraining_objective(make_model(**options))
        restored = Trainer(task, settings())
        checkpoint_manager.restore(prefix, restored.saved_variables, task.vocab_size)
        assert evaluated(task, batch()) == pytest.approx(expected, rel=1e-5)


def test_padding_rows_of_a_batch_have_no_effect():
    features = batch()
    weighted = {**features, "example_weights": np.array([1.0, 1.0, 1.0, 0.0], np.float32)}
    real = {name: values[:3] for name, values in features.items()}
    task = pretraining_objective(make_model())
    assert evaluated(task, weighted) == pytest.approx(evaluated(task, real), rel=1e-5)
    for name, weight in task.weights(weighted).items():
        assert float(weight) == float(task.weights(real)[name])


def test_the_next_sentence_task_can_be_left_out():
    task = pretraining_objective(make_model(), next_sentence=False)
    assert task.weights(batch()).keys() == {"masked_lm_loss"}
    assert task.sums(batch(), None).keys() == {"masked_lm_accuracy", "masked_lm_loss"}
