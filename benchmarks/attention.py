"""Measure self-attention with dropout on a GPU: the kernel (`bert_model/ops/jax/flash_attention.py`) and plain code.

    PYTHONPATH=. python benchmarks/attention.py
    PYTHONPATH=. python benchmarks/attention.py --lengths 512 --block 128 --warps 8

Queries, keys and values are random, bfloat16, of 12 heads of 64 as in BERT base, 32,768 positions in all. Times are the
best of three rounds. JAX, numpy, Keras and this repository are enough; --help lists the flags.
"""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_HEADS, _SIZE, _RATE = 12, 64, 0.1


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--positions", type=int, default=32_768, help="positions of a batch (default: %(default)s)")
    parser.add_argument("--block", type=int, help="queries or keys of a block (default: the kernel's)")
    parser.add_argument("--warps", type=int, help="warps of a block (default: the kernel's)")
    parser.add_argument("--steps", type=int, default=20, help="calls of a round (default: %(default)s)")
    parser.add_argument("--interpret", action="store_true", help="interpret the kernel, to try this without a GPU")
    return parser.parse_args(arguments)


def milliseconds(function: Callable[..., Any], arguments: tuple[Any, ...], steps: int) -> float:
    """Return the time of a call, the best of three rounds."""
    import jax

    jax.block_until_ready(function(*arguments))
    rounds = []
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(steps):
            result = function(*arguments)
        jax.block_until_ready(result)
        rounds.append((time.perf_counter() - begin) / steps)
    return 1000 * min(rounds)


def main() -> None:
    """Measure every length and print a Markdown table."""
    options = parse(sys.argv[1:])
    os.environ["KERAS_BACKEND"] = "jax"
    import jax
    import jax.numpy as jnp

    from beambert.bert_model.ops import jax as jax_ops
    from beambert.bert_model.ops.jax import flash_attention

    flash_attention._BLOCK = options.block or flash_attention._BLOCK
    flash_attention._WARPS = options.warps or flash_attention._WARPS
    jax_ops.has_attention_kernel = lambda: False
    plain = functools.partial(jax_ops.attention, rate=_RATE)
    kernel = functools.partial(flash_attention.attention, rate=_RATE, interpret=options.interpret)
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}; blocks of {flash_attention._BLOCK}\n")
    print("| positions | attention | forward, ms | forward and backward, ms |\n|---|---|---|---|")
    generator = np.random.default_rng(0)
    for length in options.lengths:
        shape = (max(1, options.positions // length), length, _HEADS, _SIZE)
        query, key, value = (jnp.asarray(generator.normal(0, 0.3, shape), jnp.bfloat16) for _ in range(3))
        upstream = jnp.asarray(generator.normal(size=shape), jnp.bfloat16)
        bias = jnp.zeros((shape[0], 1, 1, length), jnp.float32)
        seed = jnp.asarray(generator.integers(0, 2**31, (shape[0], 2)), jnp.int32)
        for name, function in (("plain", plain), ("kernel", kernel)):

            def mix(*parts: Any, function: Any = function, bias: Any = bias, seed: Any = seed) -> Any:
                return function(*parts, bias, seed).reshape(parts[0].shape)

            def gradients(upstream: Any, *parts: Any, mix: Any = mix) -> Any:
                return jax.vjp(mix, *parts)[1](upstream)

            parts = (query, key, value)
            forward = milliseconds(jax.jit(mix), parts, options.steps)
            both = milliseconds(jax.jit(gradients), (upstream, *parts), options.steps)
            print(f"| {length} | {name} | {forward:.3f} | {both:.3f} |", flush=True)


if __name__ == "__main__":
    main()
