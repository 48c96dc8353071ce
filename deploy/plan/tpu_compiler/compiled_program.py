"""Compile programs for TPUs, and read collectives and estimated cycles from their text."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_TYPE = re.compile(r"\b(pred|[a-z]+(\d+)(?:[a-z][a-z0-9]*)?)\[([\d,<= ]*)\]")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%(\S+) = (.*)$")
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%(\S+) \(.*\{$")
_CALLED = re.compile(r"(?:body|condition|calls|to_apply)=%([\w.-]+)|branch_computations=\{([^{}]*)\}")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "collective-permute")


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
