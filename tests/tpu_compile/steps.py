"""The compiled steps of the JAX backend on TPU topologies, with the shapes of their arguments; no TPU is needed."""

import dataclasses
import functools
import os
from typing import Any, NamedTuple

os.environ.update(
    KERAS_BACKEND="jax",
    JAX_PLATFORMS="cpu",
    # The compiler does not ask the metadata server for a TPU, and processes compile at the same time.
    TPU_SKIP_MDS_QUERY="1",
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    TPU_STDERR_LOG_LEVEL="3",
)

import jax
import keras
import numpy as np
from jax.experimental import topologies

from benchmarks.random_rows import random_features
from bert_model.config import BertConfig
from bert_model.finetuning_models import BertForTask
from bert_model.pretraining import BertForPretraining
from trainers.backends.backend import TrainConfig
from trainers.backends.jax.distribution import Distribution
from trainers.backends.jax.evaluation import evaluation_step
from trainers.backends.jax.train_step import Trainer
from trainers.finetuning.finetuning_objectives import finetuning_objective
from trainers.objective import Objective
from trainers.optimization.optimizers import OptimizerState
from trainers.pretraining.pretraining_objective import pretraining_task

VOCAB_SIZE = 30_522


class Step(NamedTuple):
    """A jitted function and the shapes of its arguments, with their shardings; `state_bytes` are donated per chip."""

    function: Any
    arguments: tuple[Any, ...]
    gradient_bytes: int
    state_bytes: int


@functools.cache
def distribution_of(topology: str) -> Distribution:
    """The chips of a topology, such as "v5e:2x4"."""
    return Distribution(topologies.get_topology_desc(platform="tpu", topology_name=topology).devices)


def bert_config(preset: str, layers: int | None = None, length: int = 128) -> BertConfig:
    """A preset, possibly with fewer layers."""
    config = BertConfig.preset(preset, vocab_size=VOCAB_SIZE)
    return dataclasses.replace(
        config,
        num_hidden_layers=layers or config.num_hidden_layers,
        max_position_embeddings=max(length, config.max_position_embeddings),
    )


def pretraining_features(batch_size: int, length: int) -> dict[str, np.ndarray]:
    predictions = {128: 20, 512: 77}[length]
    return random_features(VOCAB_SIZE, batch_size, length, predictions)


def finetuning_features(batch_size: int, length: int) -> dict[str, np.ndarray]:
    features = pretraining_features(batch_size, length)
    inputs = {name: features[name] for name in ("input_ids", "input_mask", "segment_ids")}
    return {**inputs, "label_ids": np.zeros(batch_size, np.int32)}


def pretraining_objective(config: BertConfig) -> Objective:
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    return pretraining_task(BertForPretraining(config, pad_vocabulary=True))


def classification_objective(config: BertConfig) -> Objective:
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    return finetuning_objective(BertForTask(config, "classification", 2))


def train_step(
    objective: Objective, topology: str, features: dict[str, np.ndarray], per_chip: int, accumulation: int = 1
) -> Step:
    """The training step of an objective; `features` is a batch of any size, of which only the shapes are used."""
    distribution = distribution_of(topology)
    config = TrainConfig(
        num_train_steps=1000,
        num_warmup_steps=100,
        learning_rate=1e-4,
        seed=1,
        gradient_accumulation_steps=accumulation,
    )
    trainer = Trainer(objective, config, distribution)
    weights = {name: shape_of(variable, distribution.replicated) for name, variable in objective.variables.items()}
    state = {name: OptimizerState(weight, weight, weight) for name, weight in weights.items()}
    frozen = [shape_of(variable, distribution.replicated) for variable in objective.frozen.values()]
    step = jax.ShapeDtypeStruct((), np.int32, sharding=distribution.replicated)
    size = sum(weight.size * weight.dtype.itemsize for weight in weights.values())
    batch = global_batch(features, distribution, per_chip)
    return Step(trainer.compiled_step(), (state, frozen, step, batch), size, 3 * size)


def eval_step(objective: Objective, topology: str, features: dict[str, np.ndarray], per_chip: int) -> Step:
    """The evaluation step of an objective."""
    distribution = distribution_of(topology)
    variables = [*objective.variables.values(), *objective.frozen.values()]
    values = [shape_of(variable, distribution.replicated) for variable in variables]
    batch = global_batch(features, distribution, per_chip)
    return Step(evaluation_step(objective, distribution), (values, batch), 0, 0)


def global_batch(features: dict[str, np.ndarray], distribution: Distribution, per_chip: int) -> dict[str, Any]:
    """The shapes of a batch with `per_chip` examples on every chip."""
    size = per_chip * distribution.replicas
    return {
        name: jax.ShapeDtypeStruct((size, *values.shape[1:]), values.dtype, sharding=distribution.by_example)
        for name, values in features.items()
    }


def shape_of(variable: keras.Variable, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(variable.shape), variable.dtype, sharding=sharding)
