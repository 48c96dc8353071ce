"""Facts about a program compiled for TPUs, read from its text: collectives, matrix products, host transfers, cycles."""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_TYPE = re.compile(r"\b(pred|[a-z]+(\d+)[a-z0-9]*)\[([\d,<= ]*)\]")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%(\S+) = (.*)$")
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%(\S+) \(.*\{$")
_CALLED = re.compile(r"(?:body|condition|calls|to_apply)=%([\w.-]+)|branch_computations=\{([^}]*)\}")
_PRODUCT = re.compile(
    r"stablehlo\.(?:dot_general|convolution).* : \(tensor<([\dx]+)x(\w+)>, tensor<([\dx]+)x(\w+)>\) -> "
)
COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "collective-permute")
# Products with so few rows or columns are not worth a matrix unit: the segment embeddings and the linear heads, which
# are computed in float32.
NARROW = 8


class Instruction(NamedTuple):
    """An instruction of the compiled program: its computation, name, result type, operation and complete line."""

    computation: str
    name: str
    type: str
    opcode: str
    line: str


class Collective(NamedTuple):
    """A collective operation: its kind, the bytes of its results per chip, and whether a loop runs it."""

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
    return [
        Collective(kind, bytes_of(instruction.type), instruction.computation in in_loops)
        for instruction in listed
        if (kind := instruction.opcode.removesuffix("-start")) in COLLECTIVES
    ]


def bytes_of(type_text: str) -> int:
    """Return the size of an array type or a tuple of them, without padding of tiles."""
    return sum(
        math.prod(int(size) for size in sizes.split(",") if size) * max(int(bits or 8) // 8, 1)
        for _, bits, sizes in _TYPE.findall(type_text)
    )


def float32_products(program: Program) -> list[str]:
    """Return the operand types of the matrix products with a float32 operand, except for narrow ones."""
    products = []
    for first, first_type, second, second_type in _PRODUCT.findall(program.lowered):
        sizes = [int(size) for operand in (first, second) for size in operand.split("x")]
        if "f32" in (first_type, second_type) and min(sizes) > NARROW:
            products.append(f"{first_type}[{first}] by {second_type}[{second}]")
    return products


def product_count(program: Program) -> int:
    """Return the number of matrix products."""
    return len(_PRODUCT.findall(program.lowered))


def host_transfers(program: Program) -> list[str]:
    """Return the instructions that exchange data with the host during the program."""
    return [
        instruction.name
        for instruction in instructions(program.compiled)
        if instruction.opcode in ("infeed", "outfeed") or "is_host_transfer=true" in instruction.line
    ]


def random_draws(program: Program) -> list[str]:
    """Return the result types of XLA's random generators."""
    return [each.type for each in instructions(program.compiled) if each.opcode == "rng-bit-generator"]


def dynamic_shapes(lowered: str) -> int:
    """Return the number of array types of a lowered program whose size is known only when it runs."""
    return lowered.count("tensor<?") + lowered.count("x?x")


def estimated_cycles(program: Program, categories: dict[str, str]) -> dict[str, int]:
    """Return the compiler's estimate of cycles by category; only programs of the default effort have useful ones.

    An operation in a loop counts once. Gathers, scatters, sorts, collectives and Pallas kernels have no estimate.

    Args:
        program: the program.
        categories: regular expression by category for the path of an operation in the model; the first match counts.

    Returns:
        Cycles by category, with "other" for the rest.
    """
    cycles = dict.fromkeys([*categories, "other"], 0)
    for match in re.finditer(r'op_name="([^"]*)".*"estimated_cycles":"(\d+)"', program.compiled):
        category = next((name for name, pattern in categories.items() if re.search(pattern, match[1])), "other")
        cycles[category] += int(match[2])
    unnamed = sum(int(count) for count in re.findall(r'"estimated_cycles":"(\d+)"', program.compiled))
    cycles["other"] += unnamed - sum(cycles.values())
    return cycles
