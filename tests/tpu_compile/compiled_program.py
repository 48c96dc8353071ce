"""Properties of a program compiled for TPUs that its requirements use: matrix products, host transfers."""

import re

from beambert.deploy.plan.tpu_compiler.compile_step import Program, instructions

_PRODUCT = re.compile(
    r"stablehlo\.(?:dot_general|convolution).* : \(tensor<([\dx]+)x(\w+)>, tensor<([\dx]+)x(\w+)>\) -> "
)
# Products with so few rows or columns are not worth a matrix unit: the segment embeddings and the linear heads, which
# are computed in float32.
NARROW = 8


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
