"""Compile one training step for a TPU topology: a request as JSON on stdin, the results as JSON on stdout.

    python -m beambert.deploy.plan.tpu_compiler.compile_step < request.json

`compiler_process.py` starts this program with the environment that it needs, and has the types of both.
"""

import dataclasses
import functools
import importlib.metadata
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy
import keras
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding

from beambert.bert_model.config import BertConfig
from beambert.bert_model.pretraining import BertForPretraining
from beambert.common.typed_json import decode
from beambert.deploy.plan.tpu_compiler.compiler_process import CompiledStep, StepRequest
from beambert.trainers.backends.jax.distribution import Distribution, exceeded_memory
from beambert.trainers.backends.jax.optimizer_sharding import slot_spec
from beambert.trainers.backends.jax.train_step import Trainer
from beambert.trainers.objective import Objective
from beambert.trainers.optimization.optimizers import VariableState
from beambert.trainers.options import TrainingOptions
from beambert.trainers.pretraining.pretraining_objective import pretraining_objective

_TYPE = re.compile(r"\b(pred|[a-z]+(\d+)(?:[a-z][a-z0-9]*)?)\[([\d,<= ]*)\]")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%(\S+) = (.*)$")
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%(\S+) \(.*\{$")
_CALLED = re.compile(r"(?:body|condition|calls|to_apply)=%([\w.-]+)|branch_computations=\{([^{}]*)\}")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "collective-permute")
# More bytes than the memory of any device: 16 TiB.
_TOO_MANY_BYTES = 2**44


class Step(NamedTuple):
    """A jitted function and the shapes of its arguments, with their shardings.

    Every device donates `state_bytes`. Gradients of `gradient_bytes` are summed over `devices`, and updated weights of
    `gathered_bytes` are gathered.
    """

    function: Any
    arguments: tuple[Any, ...]
    gradient_bytes: int
    state_bytes: int
    gathered_bytes: int
    devices: int


@functools.cache
def distribution_of(topology: str) -> Distribution:
    """Return the devices of a topology, such as "v5e:2x4"."""
    # The default, four chips per host, does not divide a slice of one chip.
    bounds = {"chips_per_host_bounds": (1, 1, 1)} if topology.endswith(":1x1") else {}
    return Distribution(topologies.get_topology_desc(platform="tpu", topology_name=topology, **bounds).devices)


def train_step(
    objective: Objective,
    config: TrainingOptions,
    distribution: Distribution,
    features: Mapping[str, np.ndarray],
    per_device: int,
) -> Step:
    """Return the training step of an objective.

    Args:
        objective: objective of a model with variables on the CPU.
        config: options of the step.
        distribution: devices of a topology.
        features: a batch of any size, of which only the shapes and dtypes of a row are used.
        per_device: examples per device and step.
    """
    trainer = Trainer(objective, config, distribution)
    weights = {name: shape_of(variable, distribution.replicated) for name, variable in objective.variables.items()}
    state = {}
    for name, weight in weights.items():
        sharding = NamedSharding(distribution.mesh, slot_spec(trainer.slot_axes.get(name)))
        slots = (shape_of(slot, sharding) for slot in trainer.optimizer.slots_of(name))
        state[name] = VariableState(weight, tuple(slots))
    frozen = [shape_of(variable, distribution.replicated) for variable in objective.frozen.values()]
    step = jax.ShapeDtypeStruct((), np.int32, sharding=distribution.replicated)
    size = sum(_bytes_of(weight) for weight in weights.values())
    sharded_size = sum(_bytes_of(weights[name]) for name in trainer.slot_axes)
    state_size = sum(_bytes_on_device(value) for value in jax.tree.leaves(state))
    batch = global_batch(features, distribution, per_device)
    arguments = (state, frozen, step, batch)
    return Step(trainer.compiled_step(), arguments, size, state_size, sharded_size, distribution.replicas)


def global_batch(features: Mapping[str, np.ndarray], distribution: Distribution, per_device: int) -> dict[str, Any]:
    """Return the shapes of a batch with `per_device` examples on every device."""
    size = per_device * distribution.replicas
    return {
        name: jax.ShapeDtypeStruct((size, *values.shape[1:]), values.dtype, sharding=distribution.by_example)
        for name, values in features.items()
    }


def _bytes_of(shape: jax.ShapeDtypeStruct) -> int:
    return int(shape.size * shape.dtype.itemsize)


def _bytes_on_device(shape: jax.ShapeDtypeStruct) -> int:
    return math.prod(shape.sharding.shard_shape(shape.shape)) * shape.dtype.itemsize


def shape_of(variable: keras.Variable, sharding: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a variable with a sharding."""
    return jax.ShapeDtypeStruct(tuple(variable.shape), variable.dtype, sharding=sharding)


class Instruction(NamedTuple):
    """An instruction of the compiled program: its computation, name, result type, operation and complete line."""

    computation: str
    name: str
    type: str
    opcode: str
    line: str


class Collective(NamedTuple):
    """A collective operation: its kind, the bytes of its results per device, and whether a loop runs it."""

    kind: str
    bytes: int
    in_loop: bool


class Program(NamedTuple):
    """A compiled program, with its text before and after compilation; memory in bytes per chip."""

    lowered: str
    compiled: str
    argument_bytes: int
    temporary_bytes: int
    peak_bytes: int
    donated_bytes: int


def compile_program(function: Any, arguments: tuple[Any, ...], effort: float | None = -1.0) -> Program:
    """Compile a jitted function; effort -1 is fast, None the default, which alone has usable estimates of cycles."""
    lowered = function.lower(*arguments)
    options = {} if effort is None else {"exec_time_optimization_effort": effort}
    compiled = lowered.compile(compiler_options=options)
    memory = compiled.memory_analysis()
    inputs, outputs = memory.argument_size_in_bytes, memory.output_size_in_bytes - memory.alias_size_in_bytes
    code = memory.generated_code_size_in_bytes
    return Program(
        lowered.as_text(),
        compiled.as_text(),
        inputs,
        memory.temp_size_in_bytes,
        inputs + outputs + memory.temp_size_in_bytes + code,
        memory.alias_size_in_bytes,
    )


def instructions(compiled: str) -> Iterator[Instruction]:
    """Yield the instructions of all computations."""
    computation = ""
    for line in compiled.splitlines():
        if header := _COMPUTATION.match(line):
            computation = header[1]
        elif (match := _INSTRUCTION.match(line)) and (opcode := _OPCODE.search(match[2])):
            yield Instruction(computation, match[1], match[2][: opcode.start()], opcode[1], line)


def collectives(program: Program) -> list[Collective]:
    """Return the collective operations."""
    listed = list(instructions(program.compiled))
    in_loops = _computations_in_loops(listed)
    return [
        Collective(kind, bytes_of(instruction.type), instruction.computation in in_loops)
        for instruction in listed
        if (kind := instruction.opcode.removesuffix("-start")) in COLLECTIVES
    ]


def _computations_in_loops(listed: Sequence[Instruction]) -> set[str]:
    """Return the computations that loops run."""
    called: dict[str, set[str]] = {}
    bodies = set()
    for instruction in listed:
        names = {
            name
            for match in _CALLED.finditer(instruction.line)
            for name in re.findall(r"[\w.-]+", match[1] or match[2])
        }
        called.setdefault(instruction.computation, set()).update(names)
        if instruction.opcode == "while":
            bodies |= names
    in_loops: set[str] = set()
    while bodies:
        in_loops |= bodies
        bodies = {name for body in bodies for name in called.get(body, ())} - in_loops
    return in_loops


def bytes_of(type_text: str) -> int:
    """Return the size of an array type or a tuple of them, without padding of tiles."""
    return sum(
        math.prod(int(size.strip("<= ")) for size in sizes.split(",") if size) * max(int(bits or 8) // 8, 1)
        for _, bits, sizes in _TYPE.findall(type_text)
    )


def total_cycles(program: Program, loop_runs: int) -> int:
    """Return the compiler's estimate of cycles; only programs of the default effort have a useful one.

    Gathers, scatters, sorts, collectives, asynchronous copies and Pallas kernels have no estimate.

    Args:
        program: the program.
        loop_runs: number of times that a loop of the program runs, which the text does not contain.
    """
    listed = list(instructions(program.compiled))
    in_loops = _computations_in_loops(listed)
    return sum(
        int(cycles[1]) * (loop_runs if instruction.computation in in_loops else 1)
        for instruction in listed
        if (cycles := _CYCLES.search(instruction.line))
    )


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
    objective = pretraining_objective(model, next_sentence=not training.no_next_sentence)
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
