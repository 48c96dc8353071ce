"""Measure the training step of the JAX backend: step time, MFU and memory, for accelerators without TensorFlow.

The step is that of `beambert pretrain --backend jax`: model, dropout, losses, clipping, optimizer and metrics in one
compiled function. Examples and weights are random and stay on the device.

    PYTHONPATH=. python benchmarks/train_step.py
    PYTHONPATH=. python benchmarks/train_step.py --models base --lengths 128 --batch_size 256 --steps 50

Without flags it measures base and large at 128 and 512 positions, with and without dropout, and packed rows. MFU is
the model's FLOPs (`bert_model/size.py`) divided by the rate of a large matrix product in the same precision, measured
first, and by the published peak where it is known. The second figure excludes positions that the last layer does not
compute. JAX, numpy, Keras and this repository are enough; --help lists the flags.
"""

import argparse
import dataclasses
import itertools
import sys
import time
from typing import Any

import numpy as np

from beambert.bert_model.config import PRESETS, BertConfig
from beambert.bert_model.size import skipped_training_flops_per_token, training_flops_per_token, with_padding
from beambert.trainers.backends.jax.startup import start_jax
from beambert.trainers.monitoring.throughput import peak_flops
from benchmarks.random_rows import packed_features, random_features, random_weights

_VARIANTS = ("dropout", "none", "packed")
# Sequences of a device and step by model and length, which fit into 80 GB.
_BATCH_SIZES = {("base", 128): 256, ("base", 512): 64, ("large", 128): 128, ("large", 512): 32}
# Masked positions of a row, as in the paper's data.
_PREDICTIONS = {128: 20, 512: 77}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(PRESETS), default=["base", "large"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--variants", nargs="+", choices=_VARIANTS, default=list(_VARIANTS))
    parser.add_argument("--batch_size", type=int, help="sequences of a step (default: by model and length)")
    parser.add_argument("--vocab_size", type=int, default=30_522)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--steps", type=int, default=20, help="timed steps (default: %(default)s)")
    parser.add_argument("--deterministic_ops", action="store_true", help="as pretrain does by default, slower on GPUs")
    parser.add_argument("--matrix_size", type=int, default=8192, help="rows of the matrices (default: %(default)s)")
    return parser.parse_args(arguments)


def matrix_rate(size: int, precision: str) -> float:
    """Return the FLOP/s of a square matrix product."""
    import jax

    generator = np.random.default_rng(0)
    left = jax.numpy.asarray(generator.normal(size=(size, size)), precision)
    product = jax.jit(lambda left, right: left @ right / size)
    right = product(left, left).block_until_ready()
    begin = time.perf_counter()
    for _ in range(10):
        right = product(left, right)
    right.block_until_ready()
    return 10 * 2 * size**3 / (time.perf_counter() - begin)


def measure(config: BertConfig, features: dict[str, np.ndarray], precision: str, steps: int) -> tuple[float, Any]:
    """Return the seconds of a step, and the compiler's memory analysis."""
    import jax
    import keras

    from beambert.bert_model.pretraining import BertForPretraining
    from beambert.trainers.backends.jax.distribution import Distribution
    from beambert.trainers.backends.jax.train_step import Trainer
    from beambert.trainers.options import TrainingOptions
    from beambert.trainers.pretraining.pretraining_objective import pretraining_objective

    keras.config.set_dtype_policy("float32" if precision == "float32" else "mixed_bfloat16")
    task = pretraining_objective(BertForPretraining(config, pad_vocabulary=True))
    for name, value in random_weights(config).items():
        task.variables[name].assign(with_padding(name, value, task.variables[name].shape))
    distribution = Distribution()
    trainer = Trainer(
        task, TrainingOptions(num_train_steps=10**6, num_warmup_steps=1000, learning_rate=1e-4, seed=1), distribution
    )
    batch = distribution.global_arrays(features)
    state = trainer.state()
    step = trainer.compiled_step().lower(state, [], np.int32(0), batch).compile()
    state, _ = step(state, [], np.int32(0), batch)
    jax.block_until_ready(state)
    begin = time.perf_counter()
    for number in range(steps):
        state, metrics = step(state, [], np.int32(number), batch)
    jax.block_until_ready((state, metrics))
    seconds = (time.perf_counter() - begin) / steps
    assert np.isfinite(float(metrics["loss"][0])), "the loss is not finite"
    return seconds, step.memory_analysis()


def main() -> None:
    """Measure every configuration and print a Markdown table."""
    options = parse(sys.argv[1:])
    start_jax(deterministic=options.deterministic_ops)
    import jax

    device = jax.devices()[0]
    rate = matrix_rate(options.matrix_size, options.precision)
    peak = peak_flops(device.device_kind, options.precision)
    operations = "deterministic" if options.deterministic_ops else "fastest"
    devices = f"{device.device_kind}, {len(jax.devices())} devices"
    print(f"{devices}, JAX {jax.__version__}, {options.precision}, {operations} operations")
    print(f"matrix product of {options.matrix_size}: {rate / 1e12:.4g} TFLOP/s", end="")
    print(f", published peak {peak / 1e12:.4g} TFLOP/s" if peak else ", published peak unknown")
    print("\n| model | positions | variant | batch | ms/step | sequences/s | MFU | MFU computed | of peak | GiB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for model, length, variant in itertools.product(options.models, options.lengths, options.variants):
        config = BertConfig.preset(model, vocab_size=options.vocab_size)
        config = dataclasses.replace(config, max_position_embeddings=max(length, config.max_position_embeddings))
        if variant == "none":
            config = dataclasses.replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        batch_size = options.batch_size or _BATCH_SIZES.get((model, length), 32)
        predictions = _PREDICTIONS.get(length, max(1, round(0.15 * length)))
        features = random_features(options.vocab_size, batch_size, length, predictions)
        if variant == "packed":
            features = packed_features(features)
        seconds, memory = measure(config, features, options.precision, options.steps)
        flops = batch_size * length * training_flops_per_token(config, length, predictions)
        skipped = batch_size * length * skipped_training_flops_per_token(config, length, predictions)
        mfu, computed = (part / seconds / rate / len(jax.devices()) for part in (flops, flops - skipped))
        of_peak = f"{flops / seconds / peak / len(jax.devices()):.1%}" if peak else ""
        size = (memory.argument_size_in_bytes + memory.temp_size_in_bytes) / 2**30
        print(
            f"| {model} | {length} | {variant} | {batch_size} | {1000 * seconds:.1f} | {batch_size / seconds:.1f} | "
            f"{mfu:.1%} | {computed:.1%} | {of_peak} | {size:.2f} |",
            flush=True,
        )
    if sys.modules.get("tensorflow"):
        sys.exit("tensorflow was imported")


if __name__ == "__main__":
    main()
