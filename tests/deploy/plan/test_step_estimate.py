"""Test the search for the largest batch and the extrapolation of cycles, with functions in place of the compiler."""

import dataclasses
import json

import pytest

from beambert.bert_model.config import BertConfig
from beambert.deploy.plan.tpu_compiler.compiler_process import CompiledStep, StepRequest
from beambert.deploy.plan.tpu_compiler.step_estimate import estimate_step, next_batch
from beambert.trainers.pretraining.options import PretrainOptions

GIB = 2**30


def request(examples: int, *, layers: int = 12, accumulation: int = 1) -> StepRequest:
    config = dataclasses.replace(BertConfig.preset("base", 30_522), num_hidden_layers=layers)
    return StepRequest(
        topology="v5e:4x4",
        bert_config=config.to_json(),
        training=PretrainOptions(data=(), output="", gradient_accumulation_steps=accumulation),
        features={"input_ids": 128, "masked_lm_ids": 20},
        examples=examples,
    )


class Compiler:
    """A compiler for a chip of 16 GiB that records its requests.

    A step requires 2 GiB and, in addition, a function of the micro-batch.

    Args:
        memory: function from the examples of a micro-batch to bytes.
    """

    def __init__(self, memory) -> None:
        self.memory = memory
        self.requests: list[StepRequest] = []

    def __call__(self, step: StepRequest) -> CompiledStep:
        self.requests.append(step)
        rows = step.examples / step.training.gradient_accumulation_steps
        required = 2 * GIB + self.memory(rows)
        layers = json.loads(step.bert_config)["num_hidden_layers"]
        return CompiledStep(
            compiler="",
            fits=required <= 16 * GIB,
            required_bytes=round(required),
            available_bytes=16 * GIB,
            state_bytes=GIB,
            cycles=round(1e6 * (7 + 10 * layers)) if step.cycles else None,
        )


def linear(rows: float) -> float:
    return 30e6 * rows


def plateau(rows: float) -> float:
    """Return the memory of a step in which the compiler rematerializes more and more values as the batch grows."""
    return 32e6 * min(rows, 420) + 1e5 * max(rows - 420, 0) if rows < 620 else 25e6 * rows


def steep(rows: float) -> float:
    return 4e6 * rows**1.3


@pytest.mark.parametrize("memory", [linear, plateau, steep])
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("rows", [1, 8, 100, 128, 480, 2000, 4000])
def test_the_largest_batch_is_found_with_few_compilations(memory, accumulation, rows):
    compiler = Compiler(memory)
    step = request(rows * accumulation, accumulation=accumulation)
    estimate = estimate_step(step, compiler, with_time=False)
    true = max(count for count in range(8, 4096, 8) if 2 * GIB + memory(count) <= 16 * GIB)
    assert true * accumulation * 0.8 < estimate.largest <= true * accumulation
    assert estimate.too_large > true * accumulation
    assert len(compiler.requests) <= 8
    assert estimate.cycles is None
    assert not any(each.cycles for each in compiler.requests)


def test_a_step_of_linear_memory_needs_at_most_four_compilations():
    compiler = Compiler(linear)
    estimate = estimate_step(request(128), compiler, with_time=False)
    # 14 GiB / 30 MB are 501 examples.
    assert estimate.largest in range(464, 502, 8)
    assert len(compiler.requests) <= 4


def test_a_model_larger_than_the_memory_has_no_batch():
    compiler = Compiler(lambda rows: 15 * GIB + rows)
    estimate = estimate_step(request(64), compiler, with_time=True)
    assert (estimate.largest, estimate.cycles) == (0, None)
    assert min(each.examples for each in compiler.requests) == 8


def test_the_search_has_an_upper_limit():
    compiler = Compiler(lambda rows: rows)
    estimate = estimate_step(request(8), compiler, with_time=False)
    assert (estimate.largest, estimate.too_large) == (4096, None)


def test_a_known_largest_batch_ends_the_search():
    compiler = Compiler(linear)
    tried = {count: compiler(request(count)) for count in (496, 504)}
    assert next_batch(tried, 8, 4096) is None
    del tried[504]
    assert next_batch(tried, 8, 4096) > 496


@pytest.mark.parametrize(("layers", "compiled"), [(1, [1]), (2, [2]), (3, [3]), (4, [2, 3]), (24, [2, 3])])
def test_cycles_are_extrapolated_from_two_and_three_layers(capsys, layers, compiled):
    compiler = Compiler(linear)
    estimate = estimate_step(request(480, layers=layers), compiler, with_time=True)
    assert estimate.cycles == pytest.approx(1e6 * (7 + 10 * layers))
    counts = [json.loads(each.bert_config)["num_hidden_layers"] for each in compiler.requests if each.cycles]
    assert counts == compiled
    assert len(capsys.readouterr().err.splitlines()) == len(compiler.requests)


def test_a_step_that_does_not_fit_has_no_cycles():
    estimate = estimate_step(request(1024), Compiler(linear), with_time=True)
    assert estimate.cycles is None
    assert estimate.largest
