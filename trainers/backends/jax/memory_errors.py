"""Recognize errors of devices without enough memory."""

import re
from typing import NamedTuple

import jax

_SIZES = re.compile(r"\(([\d.]+)([KMGT])\) exceeds available HBM \(([\d.]+)([KMGT])\)")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_REMEDY = "raise --gradient_accumulation_steps, use --activation_checkpointing or lower --train_batch_size"


class ExceededMemory(NamedTuple):
    """Memory that a program needs, arguments included, and the memory of a device for a program."""

    required_bytes: int
    available_bytes: int


def exceeded_memory(error: jax.errors.JaxRuntimeError) -> ExceededMemory | None:
    """Return the sizes in the error of a TPU program that does not fit into the memory of a device; None for others."""
    if (sizes := _SIZES.search(str(error))) is None:
        return None
    required, unit, available, available_unit = sizes.groups()
    return ExceededMemory(round(float(required) * _UNITS[unit]), round(float(available) * _UNITS[available_unit]))


def memory_error(error: jax.errors.JaxRuntimeError) -> str | None:
    """Return the message for a program that does not fit into the memory of a device; None for other errors.

    Args:
        error: error of compiling or running a program.
    """
    text = str(error)
    if not text.startswith("RESOURCE_EXHAUSTED"):
        return None
    sizes = _SIZES.search(text)
    needed = f" ({sizes[1]}{sizes[2]}iB of temporary data, {sizes[3]}{sizes[4]}iB available)" if sizes else ""
    return f"the step does not fit into the memory of a device{needed}: {_REMEDY}"
