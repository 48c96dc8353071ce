"""Test `beambert plan --compile` with the TPU compiler: the process that compiles a step, and the whole command."""

import dataclasses
import json

import pytest

from beambert import cli
from beambert.deploy.plan.tpu_compiler.compile_step import compile_program
from beambert.deploy.plan.tpu_compiler.compiler_process import StepRequest, compile_step
from beambert.deploy.plan.tpu_compiler.step_estimate import features_of
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.trainers.pretraining.options import PretrainOptions
from tests.tpu_compile.compiled_program import product_count
from tests.tpu_compile.steps import (
    bert_config,
    bfloat16_objective,
    pretraining_features,
    train_step,
)

TINY = StepRequest(
    topology="v5e:2x2",
    bert_config=bert_config("tiny").to_json(),
    training=PretrainOptions(data=(), output="", num_train_steps=100_000, precision="bfloat16"),
    features=features_of(PretrainingDataOptions()),
    examples=64,
)


def test_the_process_compiles_the_step_of_the_trainer():
    """Compare the memory with that of the same step, compiled in this process from random examples."""
    step = train_step(bfloat16_objective(bert_config("tiny")), "v5e:2x2", pretraining_features(2, 128), 64)
    program = compile_program(step.function, step.arguments)
    assert product_count(program) > 30
    compiled = compile_step(TINY)
    assert compiled.fits
    assert compiled.required_bytes == pytest.approx(program.peak_bytes, rel=0.01)
    assert compiled.available_bytes == 15.75 * 2**30
    assert compiled.state_bytes == step.state_bytes
    assert compiled.collective_bytes == pytest.approx(step.gradient_bytes, rel=0.05)
    assert compiled.cycles is None


def test_flags_that_change_the_step_change_its_memory():
    flags = [{}, {"precision": "float32"}, {"gradient_accumulation_steps": 4}, {"activation_checkpointing": "layer"}]
    requests = [dataclasses.replace(TINY, training=dataclasses.replace(TINY.training, **each)) for each in flags]
    usual, float32, micro_batches, checkpointing = (compile_step(request).required_bytes for request in requests)
    assert float32 != usual
    assert micro_batches < usual
    assert checkpointing < usual


def test_sharded_slots_need_a_part_of_the_memory():
    training = dataclasses.replace(TINY.training, shard_optimizer_state=True)
    usual, sharded = (compile_step(dataclasses.replace(TINY, training=each)) for each in (TINY.training, training))
    # Each of the four chips has a quarter of the two slots of each weight. Small variables are not sharded.
    assert sharded.state_bytes == pytest.approx(usual.state_bytes * (1 + 2 / 4) / 3, rel=0.01)
    assert sharded.required_bytes < usual.required_bytes
    # Gradients are summed, in parts, and updated weights are gathered.
    assert sharded.collective_bytes > usual.collective_bytes


def test_a_failure_of_the_compiler_is_one_line():
    with pytest.raises(SubmitError, match=r"^the TPU compiler failed \(.*9x9.*\); change --compile") as caught:
        compile_step(dataclasses.replace(TINY, topology="v5e:9x9"))
    assert "\n" not in str(caught.value)


def test_the_command_prints_what_fits_on_a_chip(capsys):
    flags = ["--words", "1e9", "--vocab_size", "8000", "--model", "L-2_H-128", "--max_seq_length", "64"]
    flags += ["--compile", "v6e-1", "--train_batch_size", "256", "--precision", "bfloat16", "--json"]
    assert cli.main(["plan", *flags]) == 0
    output = capsys.readouterr()
    section = json.loads(output.out)["TPU compiler"]
    assert section["examples per device"] == 256
    assert section["required memory"] < section["available memory"] == 31.25 * 2**30
    assert section["largest batch per device"] > 256
    # 256 sequences of 64 take longer than the matrix units need at the peak of 918 TFLOP/s.
    assert 0 < section["estimated utilization"] < 1
    assert section["step time"] == pytest.approx(section["cycles"] / 1.751e9, rel=1e-3)
    assert all(line.startswith(("Compiling", "Estimating")) for line in output.err.splitlines())
