"""Test memory, collectives and precision of base with two layers on 16 chips of v5e.

The steps compile quickly and need no TPU.
"""

import dataclasses

import jax
import keras
import pytest

from beambert.bert_model.pretraining import BertForPretraining
from beambert.deploy.plan.tpu_compiler.compile_step import collectives, compile_program
from beambert.trainers.backends.jax.distribution import memory_error
from beambert.trainers.pretraining.pretraining_objective import pretraining_objective
from tests.tpu_compile.compiled_program import product_count
from tests.tpu_compile.step_faults import faults
from tests.tpu_compile.steps import (
    bert_config,
    bfloat16_objective,
    classification_objective,
    eval_step,
    finetuning_features,
    pretraining_features,
    train_step,
)

TOPOLOGY = "v5e:4x4"
GIB = 2**30


@pytest.fixture(scope="module")
def objective():
    return bfloat16_objective(bert_config("base", layers=2))


@pytest.mark.parametrize(("accumulation", "most_gib"), [(1, 1.6), (4, 0.9)])
def test_pretraining_step(objective, accumulation, most_gib):
    step = train_step(objective, TOPOLOGY, pretraining_features(2, 128), 128, accumulation)
    program = compile_program(step.function, step.arguments)
    assert faults(program, step) == []
    assert product_count(program) > 30
    assert program.temporary_bytes < most_gib * GIB
    assert program.argument_bytes < 1.01 * step.state_bytes


# The compiler keeps reduce-scatter within a host, and replaces it by all-reduce on slices of several hosts.
@pytest.mark.parametrize(
    ("topology", "accumulation", "kinds"), [("v5e:4x4", 4, {"all-reduce"}), ("v5e:2x4", 1, {"reduce-scatter"})]
)
def test_pretraining_step_with_sharded_optimizer_state(objective, topology, accumulation, kinds):
    step = train_step(objective, topology, pretraining_features(2, 128), 128, accumulation, shard_optimizer_state=True)
    program = compile_program(step.function, step.arguments)
    assert faults(program, step) == []
    parameters = step.gradient_bytes / 4
    assert program.argument_bytes < 1.01 * (4 + 8 / step.devices) * parameters
    assert {each.kind for each in collectives(program)} >= {"all-gather", *kinds}
    sharded = [state for state in step.arguments[0].values() if not state.slots[0].sharding.is_fully_replicated]
    assert program.lowered.count("stablehlo.reduce_scatter") == len(sharded)
    assert program.lowered.count("stablehlo.all_gather") == len(sharded)
    assert len(sharded) > 10


def test_evaluation_step(objective):
    step = eval_step(objective, TOPOLOGY, pretraining_features(2, 128), 128)
    program = compile_program(step.function, step.arguments)
    assert faults(program, step) == []
    assert program.temporary_bytes < 1.1 * GIB


def test_finetuning_step():
    step = train_step(
        classification_objective(bert_config("base", layers=2)), TOPOLOGY, finetuning_features(2, 128), 32
    )
    program = compile_program(step.function, step.arguments)
    assert faults(program, step) == []
    assert program.temporary_bytes < 0.6 * GIB


def test_a_batch_beyond_the_memory_of_a_chip_is_an_error_that_names_the_flags(objective):
    step = train_step(objective, TOPOLOGY, pretraining_features(2, 128), 8192)
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        compile_program(step.function, step.arguments)
    assert memory_error(caught.value).endswith(
        ": raise --gradient_accumulation_steps, use --activation_checkpointing or lower --train_batch_size"
    )
    assert "15.75GiB available" in memory_error(caught.value)
    assert memory_error(jax.errors.JaxRuntimeError("INTERNAL: other")) is None


def test_faults_of_a_step_are_found():
    """Compile a float32 model whose metric sums are also summed over the chips in every micro-batch."""
    keras.mixed_precision.set_dtype_policy("float32")
    correct = pretraining_objective(BertForPretraining(bert_config("tiny"), pad_vocabulary=True))

    def sums(features, seed):
        return jax.tree.map(lambda value: jax.lax.psum(value, "data") / 16, correct.sums(features, seed))

    wrong = dataclasses.replace(correct, sums=sums)
    step = train_step(wrong, TOPOLOGY, pretraining_features(2, 128), 16, accumulation=2)
    smaller = step._replace(
        gradient_bytes=step.gradient_bytes // 2, state_bytes=2 * step.state_bytes, gathered_bytes=step.gradient_bytes
    )
    found = faults(compile_program(step.function, step.arguments), smaller)
    assert len(found) == 5
    for words in (
        *("bytes are summed over chips", "every micro-batch", "are gathered, but 0 bytes", "are donated"),
        "float32 matrix products",
    ):
        assert any(words in message for message in found), words
