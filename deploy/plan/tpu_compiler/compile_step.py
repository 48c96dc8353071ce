"""Compile one training step for a TPU topology: a request as JSON on stdin, the results as JSON on stdout.

    python -m beambert.deploy.plan.tpu_compiler.compile_step < request.json

`compiler_process.py` starts this program with the environment that it needs, and has the types of both.
"""

import dataclasses
import importlib.metadata
import json
import os
import sys

import jax
import jax.numpy
import keras
import numpy as np

from beambert.bert_model.config import BertConfig
from beambert.bert_model.pretraining import BertForPretraining
from beambert.common.typed_json import decode
from beambert.deploy.plan.tpu_compiler.compiled_program import collectives, compile_program, total_cycles
from beambert.deploy.plan.tpu_compiler.compiler_process import CompiledStep, StepRequest
from beambert.deploy.plan.tpu_compiler.steps import Step, distribution_of, train_step
from beambert.trainers.backends.jax.distribution import Distribution
from beambert.trainers.backends.jax.memory_errors import exceeded_memory
from beambert.trainers.pretraining.pretraining_objective import pretraining_task

# More bytes than the memory of any device: 16 TiB.
_TOO_MANY_BYTES = 2**44


def main() -> int:
    """Compile the step of the request and print the results."""
    # The compiler may print to stdout, which is for the results alone.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = decode(sys.stdin.buffer.read(), StepRequest)
    try:
        compiled = compiled_step(request)
    except jax.errors.JaxRuntimeError as error:
        print(str(error).splitlines()[0], file=sys.stderr)
        return 1
    with results:
        json.dump(dataclasses.asdict(compiled), results)
    return 0


def compiled_step(request: StepRequest) -> CompiledStep:
    """Compile the step of a request.

    Raises:
        JaxRuntimeError: the topology does not exist, or the compiler failed.
    """
    distribution = distribution_of(request.topology)
    step = step_of(request, distribution)
    available = available_bytes(distribution)
    compiler = f"JAX {jax.__version__}, libtpu {importlib.metadata.version('libtpu')}"
    try:
        program = compile_program(step.function, step.arguments, effort=None if request.cycles else -1.0)
    except jax.errors.JaxRuntimeError as error:
        if (exceeded := exceeded_memory(error)) is None:
            raise
        return CompiledStep(
            compiler=compiler,
            fits=False,
            required_bytes=exceeded.required_bytes,
            available_bytes=available,
            state_bytes=step.state_bytes,
        )
    operations = collectives(program)
    # The loop over micro-batches is the only one.
    loop_runs = request.training.gradient_accumulation_steps
    runs = [loop_runs if operation.in_loop else 1 for operation in operations]
    return CompiledStep(
        compiler=compiler,
        fits=program.peak_bytes <= available,
        required_bytes=program.peak_bytes,
        available_bytes=available,
        state_bytes=step.state_bytes,
        collectives=sum(runs),
        collective_bytes=sum(count * operation.bytes for count, operation in zip(runs, operations, strict=True)),
        cycles=total_cycles(program, loop_runs) if request.cycles else None,
    )


def step_of(request: StepRequest, distribution: Distribution) -> Step:
    """Return the step of a request, as `beambert pretrain` makes it on a TPU."""
    config = BertConfig.from_json(request.bert_config)
    training = request.training.resolved(config, causal_attention=False)
    keras.config.set_dtype_policy("mixed_bfloat16" if training.precision == "bfloat16" else "float32")
    model = BertForPretraining(config, pad_vocabulary=True, causal_attention=training.causal_attention)
    model.encoder.set_activation_checkpointing(training.activation_checkpointing)
    objective = pretraining_task(model, next_sentence=not training.no_next_sentence)
    features = {
        name: np.zeros((1, length), np.float32 if name.endswith("_weights") else np.int32)
        for name, length in request.features.items()
    }
    return train_step(objective, training, distribution, features, request.examples)


def available_bytes(distribution: Distribution) -> int:
    """Return the memory that the compiler has for a program on a device: the limit that it names in an error."""
    array = jax.ShapeDtypeStruct((_TOO_MANY_BYTES // 4096, 1024), np.float32, sharding=distribution.replicated)
    try:
        compile_program(jax.jit(jax.numpy.negative), (array,))
    except jax.errors.JaxRuntimeError as error:
        if exceeded := exceeded_memory(error):
            return exceeded.available_bytes
        raise
    raise RuntimeError("the TPU compiler has no limit of memory")


if __name__ == "__main__":
    sys.exit(main())
