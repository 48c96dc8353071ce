"""The requirements of a compiled step, each with the message of its violation."""

from beambert.deploy.plan.tpu_compiler.compile_step import Program, collectives
from tests.tpu_compile.compiled_program import (
    dynamic_shapes,
    float32_products,
    host_transfers,
    random_draws,
)
from tests.tpu_compile.steps import Step

# Collectives of metric sums and denominators, without gradients.
SCALAR_BYTES = 1024
# A gradient may be summed with metric sums, and its padding counts.
TOLERANCE = 0.05


def faults(program: Program, step: Step, precision: str = "bfloat16") -> list[str]:
    """Return the faults of a compiled step, empty for none."""
    listed = collectives(program)
    reduced = [each for each in listed if each.kind in ("all-reduce", "reduce-scatter") and each.bytes > SCALAR_BYTES]
    reduced_bytes = sum(each.bytes * (step.devices if each.kind == "reduce-scatter" else 1) for each in reduced)
    moved = [each for each in listed if each.kind not in ("all-reduce", "reduce-scatter")]
    moved_bytes = sum(each.bytes for each in moved)
    messages = {
        f"gradients of {step.gradient_bytes:,} bytes, but {reduced_bytes:,} bytes are summed over chips": (
            abs(reduced_bytes - step.gradient_bytes) > TOLERANCE * step.gradient_bytes
        ),
        "collectives in every micro-batch": any(each.in_loop for each in listed),
        f"weights of {step.gathered_bytes:,} bytes are gathered, but {moved_bytes:,} bytes are exchanged: {moved}": (
            abs(moved_bytes - step.gathered_bytes) > TOLERANCE * step.gathered_bytes
        ),
        f"state of {step.state_bytes:,} bytes, of which {program.donated_bytes:,} are donated": (
            program.donated_bytes < step.state_bytes
        ),
        f"host transfers: {host_transfers(program)}": bool(host_transfers(program)),
        f"random generators: {random_draws(program)}": bool(random_draws(program)),
        "dynamic shapes": dynamic_shapes(program.lowered) > 0,
        f"float32 matrix products: {float32_products(program)}": (
            precision == "bfloat16" and bool(float32_products(program))
        ),
    }
    return [message for message, is_fault in messages.items() if is_fault]
