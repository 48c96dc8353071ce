"""Test that the analysis finds faults in a program that has them, and none in the program without them.

test_steps.py tests the other faults on a complete step.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import PartitionSpec

from beambert.deploy.plan.tpu_compiler.compile_step import (
    bytes_of,
    collectives,
    compile_program,
    instructions,
    total_cycles,
)
from beambert.deploy.plan.tpu_compiler.compiler_process import target_of
from beambert.trainers.monitoring.throughput import peak_flops
from tests.tpu_compile.compiled_program import (
    dynamic_shapes,
    float32_products,
    host_transfers,
    product_count,
    random_draws,
)
from tests.tpu_compile.steps import distribution_of

SIZE, ROWS, CHIPS = 256, 512, 4
WEIGHT_BYTES = 4 * SIZE * SIZE


def compile_small_step(gradient, *, accumulate=True):
    """Compile a step of one weight matrix on four chips: `gradient` of weights and rows of a chip, and the update."""
    distribution = distribution_of("v5e:2x2")

    def step(weights, rows):
        parts = rows.reshape(2, -1, SIZE)
        total = jax.lax.scan(lambda sum_, part: (sum_ + gradient(weights, part), None), jnp.zeros_like(weights), parts)[
            0
        ]
        total = total if accumulate else gradient(weights, rows)
        return weights - 0.1 * jax.lax.psum(total, "data")

    mapped = distribution.shard_map(step, (PartitionSpec(), PartitionSpec("data")), PartitionSpec())
    arguments = (
        jax.ShapeDtypeStruct((SIZE, SIZE), jnp.float32, sharding=distribution.replicated),
        jax.ShapeDtypeStruct((ROWS * CHIPS, SIZE), jnp.float32, sharding=distribution.by_example),
    )
    return compile_program(jax.jit(mapped, donate_argnums=0), arguments)


def loss(weights, rows):
    return jnp.sum(jnp.tanh(rows.astype(jnp.bfloat16) @ weights.astype(jnp.bfloat16)).astype(jnp.float32))


@pytest.fixture(scope="module")
def correct():
    return compile_small_step(jax.grad(loss))


def test_a_correct_step_has_no_fault(correct):
    (all_reduce,) = collectives(correct)
    assert all_reduce == ("all-reduce", WEIGHT_BYTES, False)
    assert product_count(correct) >= 2
    assert float32_products(correct) == []
    assert host_transfers(correct) == []
    assert random_draws(correct) == []
    assert dynamic_shapes(correct.lowered) == 0
    assert correct.donated_bytes == WEIGHT_BYTES
    assert correct.argument_bytes == WEIGHT_BYTES + 4 * ROWS * SIZE


def test_a_second_sum_is_found():
    """Sum gradients that depend on the first sum, so that the compiler cannot combine both sums."""

    def gradient(weights, rows):
        summed = jax.lax.psum(jax.grad(loss)(weights, rows), "data")
        return jax.grad(loss)(weights + summed, rows)

    program = compile_small_step(gradient, accumulate=False)
    assert sum(collective.bytes for collective in collectives(program)) == 2 * WEIGHT_BYTES


def test_gathered_activations_are_found():
    def gradient(weights, rows):
        return jax.grad(loss)(weights, jax.lax.all_gather(rows, "data", tiled=True))

    kinds = {collective.kind: collective.bytes for collective in collectives(compile_small_step(gradient))}
    assert kinds["all-gather"] >= 4 * SIZE * ROWS // 2


def test_a_callback_is_found():
    def gradient(weights, rows):
        result = jax.grad(loss)(weights, rows)
        io_callback(lambda value: None, None, result[0, 0])
        return result

    assert host_transfers(compile_small_step(gradient, accumulate=False))


def test_a_random_generator_is_found():
    def gradient(weights, rows):
        key = jax.random.wrap_key_data(jnp.zeros(4, jnp.uint32), impl="rbg")
        return jax.grad(loss)(weights, rows) * (jax.random.bits(key, weights.shape) % 2)

    assert random_draws(compile_small_step(gradient))


def test_dynamic_shapes_are_found():
    rows = jax.ShapeDtypeStruct(jax.export.symbolic_shape("rows, 8"), np.float32)
    assert dynamic_shapes(jax.export.export(jax.jit(jnp.tanh))(rows).mlir_module())


def test_bytes_of_types():
    assert bytes_of("f32[]{:T(128)}") == 4
    assert bytes_of("(bf16[3,5]{1,0:T(8,128)(2,1)S(1)}, pred[7]{0}, /*index=2*/s8[2])") == 30 + 7 + 2
    assert bytes_of("token[]") == 0


@pytest.mark.parametrize("name", ["v5e-4", "v5p-8", "v6e-4", "tpu7x-8"])
def test_the_cycles_of_a_product_are_those_of_the_matrix_units(name):
    """Check that the compiler estimates 60 % to 100 % of the rate at which the published peak is reached."""
    target = target_of(name)
    distribution = distribution_of(target.topology)
    assert distribution.replicas == target.devices
    assert peak_flops(distribution.device_name, "bfloat16") == target.peak_flops
    chip = distribution.mesh.devices.flat[0]
    matrix = jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16, sharding=jax.sharding.SingleDeviceSharding(chip))
    program = compile_program(jax.jit(jnp.matmul), (matrix, matrix), effort=None)
    rate = 2 * 8192**3 / total_cycles(program, 1)
    assert 0.6 * target.flops_per_cycle < rate < target.flops_per_cycle


def test_cycles_of_a_loop_count_as_often_as_it_runs():
    """Compare the cycles of four products in a loop with those of four products without a loop."""
    chip = distribution_of("v5e:2x2").mesh.devices.flat[0]
    matrices = jax.ShapeDtypeStruct((4, 1024, 1024), jnp.bfloat16, sharding=jax.sharding.SingleDeviceSharding(chip))

    def product(matrix):
        return jnp.tanh(matrix @ matrix)

    in_loop = compile_program(jax.jit(lambda values: jax.lax.map(product, values)), (matrices,), effort=None)
    assert sum(each.opcode == "while" for each in instructions(in_loop.compiled)) == 1
    unrolled = compile_program(jax.jit(lambda values: [product(value) for value in values]), (matrices,), effort=None)
    assert total_cycles(in_loop, 4) == pytest.approx(total_cycles(unrolled, 1), rel=0.3)
    assert total_cycles(in_loop, 1) < 0.5 * total_cycles(unrolled, 1)
