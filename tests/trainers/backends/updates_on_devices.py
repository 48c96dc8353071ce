# ruff: noqa: E402 (TensorFlow is started before anything that needs it is imported)
"""A program: makes updates of a small model on a share of devices and saves what they come to.

Run by test_distribution.py in processes of their own, since the number of devices is fixed when TensorFlow starts.
Arguments: a JSON object of `devices` (logical CPU devices), `replicas` (those of all processes), `output` (an .npz
file), and the cases, each an object of `accumulation`, `batch_size`, `steps`, `clip_per_replica`, `xla`, `dropout`,
`optimizer`.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from trainers.backends.tensorflow.startup import start_tensorflow

arguments = json.loads(sys.argv[1])
start_tensorflow(arguments["devices"])

import keras
import numpy as np
import tensorflow as tf

from bert_model.config import BertConfig
from bert_model.pretraining import BertForPretraining
from tests.trainers.pretraining_shards import LENGTH, VOCABULARY, random_features
from trainers.backends.tensorflow.distribution import Distribution, InputShard
from trainers.backends.tensorflow.evaluation import evaluation_of
from trainers.backends.tensorflow.train_step import TrainConfig, Trainer
from trainers.optimization.optimizer_options import OptimizerOptions
from trainers.pretraining.pretraining_objective import pretraining_task


def features_of(rows: int) -> dict[str, np.ndarray]:
    """Examples with anything from one to four masked tokens, so that parts of a batch weigh differently."""
    features = random_features(np.random.default_rng(3), rows)
    return {
        name: values if values.dtype == np.float32 else values.astype(np.int32) for name, values in features.items()
    }


def run(case: dict, distribution: Distribution) -> dict[str, np.ndarray]:
    """Makes the updates of one case; weights, slots and metrics by name."""
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=case.get("dropout", 0.0),
        attention_probs_dropout_prob=case.get("dropout", 0.0),
    )
    batch_size, steps = case["batch_size"], case["steps"]
    keras.utils.set_random_seed(0)
    with distribution.scope():
        task = pretraining_task(BertForPretraining(config))
    generator = np.random.default_rng(1)
    for variable in task.variables.values():
        variable.assign(generator.normal(0, 0.3, variable.shape))
    settings = TrainConfig(
        num_train_steps=steps,
        num_warmup_steps=1,
        learning_rate=1e-2,
        seed=5,
        gradient_accumulation_steps=case.get("accumulation", 1),
        clip_per_replica=case.get("clip_per_replica", False),
        xla=case.get("xla", False),
        optimizer=OptimizerOptions(name=case.get("optimizer", "bert_adam")),
    )
    trainer = Trainer(task, settings, distribution)
    features = features_of(batch_size * steps)

    def batches(share: InputShard) -> tf.data.Dataset:
        part = batch_size // share.replicas
        of_replicas = tf.data.Dataset.from_tensor_slices(features).batch(part, drop_remainder=True).enumerate()
        own = of_replicas.filter(
            lambda number, _: (
                (number % share.replicas >= share.first_replica)
                & (number % share.replicas < share.first_replica + share.local_replicas)
            )
        )
        return own.map(lambda _, values: values)

    iterator = iter(distribution.batches(batches))
    loop = trainer.make_loop(iterator)
    sums, first_bad, waited, _ = loop(iterator, tf.constant(0, tf.int64), tf.constant(steps, tf.int64), tf.constant(0))
    assert int(first_bad) == -1
    assert float(waited) >= 0
    result = {name: variable.numpy() for name, variable in trainer.saved_variables.items()}
    for name, (numerator, denominator) in sums.items():
        result[f"metric/{name}"] = np.array([float(numerator), float(denominator)])
    for name, value in evaluation_of(task, distribution)(iter(distribution.batches(batches))).items():
        result[f"evaluation/{name}"] = np.array(value)
    return result


if __name__ == "__main__":
    # One for all cases: the collective operations of a process are numbered by their strategy, each from the same.
    distribution = Distribution.open("auto")
    assert distribution.replicas == arguments["replicas"]
    np.savez(
        arguments["output"],
        **{
            f"{number}:{name}": value
            for number, case in enumerate(arguments["cases"])
            for name, value in run(case, distribution).items()
        },
    )
