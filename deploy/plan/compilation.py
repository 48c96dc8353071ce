"""Compile the training steps of a plan for a TPU slice. This file imports neither Keras nor JAX."""

import dataclasses
import sys
from collections.abc import Sequence

from beambert.bert_model.config import BertConfig
from beambert.deploy.plan.tpu_compiler.compiler_process import StepRequest
from beambert.deploy.plan.tpu_compiler.compiler_target import CompilerTarget
from beambert.deploy.plan.tpu_compiler.step_estimate import Compile, StepEstimate, estimate_step
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.trainers.data.parsing import feature_lengths
from beambert.trainers.pretraining.options import PretrainOptions


def compile_steps(
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
            _print_progress,
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


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
