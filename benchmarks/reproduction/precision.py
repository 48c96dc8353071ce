"""The precision in which this CPU computes fastest."""

from pathlib import Path


def fastest_precision() -> str:
    """Return "bfloat16" on a CPU with instructions for it, and "float32" on others, which are faster with it."""
    description = Path("/proc/cpuinfo")
    words = description.read_text(encoding="utf-8").split() if description.is_file() else []
    return "bfloat16" if {"avx512_bf16", "amx_bf16"} & set(words) else "float32"
