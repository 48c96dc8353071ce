"""Estimate memory, largest batch, exchanged bytes and time of a training step from a few compilations.

This file imports neither Keras nor JAX.
"""

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from beambert.bert_model.config import BertConfig
from beambert.deploy.plan.tpu_compiler.compiler_process import CompiledStep, CompilerTarget, StepRequest
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.trainers.data.parsing import feature_lengths
from beambert.trainers.pretraining.options import PretrainOptions

Compile = Callable[[StepRequest], CompiledStep]
# Batches of multiples of 8 per micro-batch fill the tiles of the matrix units' memory.
_ROWS = 8
# Largest micro-batch of a device that is compiled.
_MOST_ROWS = 4096
_MOST_TRIES = 8
# Number of compiled steps after which the prediction is no longer used.
_TRUSTED_TRIES = 3
# The search ends when the largest batch is known to this precision.
_PRECISION = 1 / 16
# The prediction of the largest batch aims at this fraction of the memory, so that it usually fits.
_TARGET = 0.98
# Growth of the batch from one step to the next, relative to that by which the memory is full.
_MOST_GROWTH = 1.25
# Cycles of models with these numbers of layers are extrapolated: all layers between the first and the last are equal.
_FEW_LAYERS = (2, 3)


class StepEstimate(NamedTuple):
    """Estimate of a training step.

    Attributes:
        request: the step.
        step: the compiled step.
        largest: largest number of examples per device and step that was compiled and fits; 0 for none.
        too_large: smallest number of examples per device and step that does not fit; None where all fit.
        cycles: estimated cycles per step; None where they were not estimated.
    """

    request: StepRequest
    step: CompiledStep
    largest: int
    too_large: int | None
    cycles: float | None

    @property
    def length(self) -> int:
        """Return the sequence length."""
        return self.request.features["input_ids"]


def estimate_steps(
    target: CompilerTarget,
    slices: int,
    model: BertConfig,
    training: PretrainOptions,
    options: Sequence[PretrainingDataOptions],
    batch_sizes: Sequence[int],
    *,
    with_time: bool,
    compile_step: Compile,
) -> list[StepEstimate]:
    """Estimate the training step of each sequence length, with a line on stderr before each compilation.

    Args:
        target: the slice.
        slices: number of slices that train together; the compiled program is that of one of them.
        model: configuration of the model.
        training: configuration of the pretraining run.
        options: options of the examples of each sequence length.
        batch_sizes: global batch size for each of them, a multiple of all devices times micro-batches.
        with_time: whether to estimate cycles too.
        compile_step: function that compiles a step (`compiler_process.compile_step`).

    Raises:
        SubmitError: the compiler failed.
    """
    return [
        estimate_step(
            StepRequest(
                topology=target.topology,
                bert_config=model.to_json(),
                training=training,
                features=features_of(examples),
                examples=batch_size // (target.devices * slices),
            ),
            compile_step,
            with_time=with_time,
        )
        for examples, batch_size in zip(options, batch_sizes, strict=True)
    ]


def features_of(options: PretrainingDataOptions) -> dict[str, int]:
    """Return the number of values of each feature that the model gets for an example."""
    # The input pipeline restores the features that shards omit: the masks of dynamic masking and of Parquet files.
    complete = dataclasses.replace(options, masking="token", format="tfrecord", feature_names="bert", ragged=False)
    lengths = feature_lengths(options.instances_per_row, options.max_seq_length, options.max_predictions_per_seq)
    return {name: lengths[name] for name in complete.names_of_features()}


def estimate_step(request: StepRequest, compile_step: Compile, *, with_time: bool) -> StepEstimate:
    """Estimate a training step.

    Args:
        request: the step, without cycles.
        compile_step: function that compiles a step (`compiler_process.compile_step`).
        with_time: whether to estimate cycles too.

    Raises:
        SubmitError: the compiler failed.
    """
    accumulation = request.training.gradient_accumulation_steps

    def compiled_with(examples: int) -> CompiledStep:
        _print_progress(f"Compiling {examples} examples per device for {request.topology}")
        return compile_step(dataclasses.replace(request, examples=examples))

    step = compiled_with(request.examples)
    tried = {request.examples: step}
    while len(tried) < _MOST_TRIES:
        examples = next_batch(tried, _ROWS * accumulation, _MOST_ROWS * accumulation)
        if examples is None:
            break
        tried[examples] = compiled_with(examples)
    largest, too_large = _bounds(tried)
    cycles = _cycles(request, compile_step) if with_time and step.fits else None
    return StepEstimate(request, step, largest, too_large, cycles)


def next_batch(tried: Mapping[int, CompiledStep], multiple: int, most: int) -> int | None:
    """Return the next batch to compile in the search for the largest that fits.

    The memory of a step is nearly linear in its batch, so that the line through two steps predicts the largest batch.
    The batches next to it are compiled until the largest is known. Near the limit the compiler may discard and compute
    again, which is not linear: after three steps that did not find the largest batch, the search is a bisection of the
    logarithm.

    Args:
        tried: compiled steps by their examples per device, at least one.
        multiple: step of the search, in examples per device.
        most: largest batch to compile.

    Returns:
        Examples per device, a multiple of `multiple`; None where the largest batch is known.
    """
    fits, fails = _bounds(tried)
    least = (fits // multiple + 1) * multiple
    highest = most if fails is None else (fails - 1) // multiple * multiple
    if least > highest or (fails is not None and fails - fits <= max(multiple, _PRECISION * fits)):
        return None
    predicted = _predicted_batch(tried)
    margin = max(multiple, _PRECISION * fits)
    if fails is not None and len(tried) > _TRUSTED_TRIES and fails - fits > 4 * margin:
        predicted = math.sqrt(max(fits, multiple) * fails)
    elif predicted < fits + multiple:
        predicted = fits + margin
    elif fails is not None and predicted >= fails:
        predicted = fails - margin
    return min(max(int(predicted) // multiple * multiple, least), highest)


def _bounds(tried: Mapping[int, CompiledStep]) -> tuple[int, int | None]:
    """Return the largest batch that fits, 0 for none, and the smallest larger one that does not, None for none."""
    fits = max((examples for examples, step in tried.items() if step.fits), default=0)
    return fits, min((examples for examples, step in tried.items() if not step.fits and examples > fits), default=None)


def _predicted_batch(tried: Mapping[int, CompiledStep]) -> float:
    """Return the batch at which the line through the memory of two steps reaches the memory of a device."""
    fits, fails = _bounds(tried)
    any_step = next(iter(tried.values()))
    # Without a second step: weights, slots and gradients need memory for any batch.
    least_bytes = min(step.required_bytes for step in tried.values())
    fixed_bytes = min(any_step.state_bytes * 4 / 3, 0.95 * least_bytes)
    points = [(0, fixed_bytes), *((count, tried[count].required_bytes) for count in sorted(tried))]
    if fails is not None and fits:
        points = [(count, tried[count].required_bytes) for count in (fits, fails)]
    (first, first_bytes), (second, second_bytes) = points[-2:]
    target = _TARGET * any_step.available_bytes
    slope = (second_bytes - first_bytes) / (second - first)
    predicted = first + (target - first_bytes) / slope if slope > 0 else math.inf
    if fails is None:
        # A compiler that discards and computes again seems to need no memory for more examples.
        predicted = min(predicted, _MOST_GROWTH * second * (target - fixed_bytes) / (second_bytes - fixed_bytes))
    return predicted


def _cycles(request: StepRequest, compile_step: Compile) -> float | None:
    """Return the estimated cycles of a step, for deep models extrapolated from models with two and three layers."""
    config = BertConfig.from_json(request.bert_config)
    layers = config.num_hidden_layers
    counts = _FEW_LAYERS if layers > max(_FEW_LAYERS) else (layers,)
    cycles = []
    for count in counts:
        _print_progress(f"Estimating cycles of {count} layers for {request.topology}; this takes a minute or more")
        shallow = dataclasses.replace(config, num_hidden_layers=count)
        step = compile_step(dataclasses.replace(request, bert_config=shallow.to_json(), cycles=True))
        if step.cycles is None:
            return None
        cycles.append(step.cycles)
    return cycles[0] + (layers - counts[0]) * (cycles[-1] - cycles[0])


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
