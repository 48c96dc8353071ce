"""Recognize errors of devices without enough memory."""

import re

import jax

_SIZES = re.compile(r"\(([\d.]+[KMGT])\) exceeds available HBM \(([\d.]+[KMGT])\)")
_REMEDY = "raise --gradient_accumulation_steps, use --activation_checkpointing or lower --train_batch_size"


def memory_error(error: jax.errors.JaxRuntimeError) -> str | None:
    """Return the message for a program that does not fit into the memory of a device; None for other errors.

    Args:
        error: error of compiling or running a program.
    """
    text = str(error)
    if not text.startswith("RESOURCE_EXHAUSTED"):
        return None
    sizes = _SIZES.search(text)
    needed = f" ({sizes[1]}iB of temporary data, {sizes[2]}iB available)" if sizes else ""
    return f"the step does not fit into the memory of a device{needed}: {_REMEDY}"
