"""Steps of the JAX backend on TPU topologies, with the shapes of their arguments; no TPU is needed."""

import dataclasses
import os

import numpy as np

from beambert.deploy.plan.tpu_compiler.compiler_process import ENVIRONMENT

os.environ.update(ENVIRONMENT)

import keras

from beambert.bert_model.config import BertConfig
from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.pretraining import BertForPretraining
from beambert.deploy.plan.tpu_compiler import compile_step
from beambert.deploy.plan.tpu_compiler.compile_step import Step, distribution_of, global_batch, shape_of
from beambert.trainers.backends.jax.runtime import evaluation_step
from beambert.trainers.finetuning.finetuning_objective import finetuning_objective
from beambert.trainers.objective import Objective
from beambert.trainers.options import TrainingOptions
from beambert.trainers.pretraining.pretraining_objective import pretraining_objective
from benchmarks.random_rows import random_features

VOCAB_SIZE = 30_522


def bert_config(preset: str, layers: int | None = None, length: int = 128) -> BertConfig:
    """Return a preset, possibly with fewer layers."""
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


def bfloat16_objective(config: BertConfig) -> Objective:
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    return pretraining_objective(BertForPretraining(config, pad_vocabulary=True))


def classification_objective(config: BertConfig) -> Objective:
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    return finetuning_objective(BertForTask(config, "classification", 2))


def train_step(
    objective: Objective,
    topology: str,
    features: dict[str, np.ndarray],
    per_chip: int,
    accumulation: int = 1,
    shard_optimizer_state: bool = False,
) -> Step:
    """Return the training step of an objective; `features` is a batch of any size, used only for its shapes."""
    config = TrainingOptions(
        num_train_steps=1000,
        num_warmup_steps=100,
        learning_rate=1e-4,
        seed=1,
        gradient_accumulation_steps=accumulation,
        shard_optimizer_state=shard_optimizer_state,
    )
    return compile_step.train_step(objective, config, distribution_of(topology), features, per_chip)


def eval_step(objective: Objective, topology: str, features: dict[str, np.ndarray], per_chip: int) -> Step:
    """Return the evaluation step of an objective."""
    distribution = distribution_of(topology)
    variables = [*objective.variables.values(), *objective.frozen.values()]
    values = [shape_of(variable, distribution.replicated) for variable in variables]
    batch = global_batch(features, distribution, per_chip)
    return Step(evaluation_step(objective, distribution), (values, batch), 0, 0, 0, distribution.replicas)
