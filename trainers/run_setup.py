"""What every run of the loop makes from its options alike: devices, settings, rhythm, result files."""

import argparse
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from bert_model import native
from trainers import checkpointing
from trainers.checkpointing import Keeping
from trainers.distribution import Distribution
from trainers.loop import Rhythm
from trainers.optimizer_flags import optimizer_options
from trainers.progress import say, warn
from trainers.throughput import peak_flops
from trainers.trainer import Settings, Trainer
from trainers.watching import WatchState
from trainers.whole_files import write_whole

RESULTS_TEXT_NAME = "eval_results.txt"
RESULTS_JSON_NAME = "eval_results.json"


def open_devices(args: argparse.Namespace) -> Distribution:
    """Seeds everything random, chooses the precision and finds the devices; TensorFlow is started.

    Raises:
        TrainingError: the devices are not there.
    """
    keras.utils.set_random_seed(args.seed)
    keras.config.set_dtype_policy("mixed_bfloat16" if args.precision == "bfloat16" else "float32")
    strategy = "mirrored" if args.strategy == "auto" and args.cpu_devices > 1 else args.strategy
    return Distribution.open(strategy, args.tpu_name, args.tpu_zone, args.gcp_project)


def is_accelerated() -> bool:
    """Whether there is any device but CPUs."""
    return any(device.device_type != "CPU" for device in tf.config.list_logical_devices())


def uses_xla(args: argparse.Namespace) -> bool:
    """Whether --xla means that the step is compiled."""
    return args.xla == "on" or (args.xla == "auto" and is_accelerated())


def settings_of(args: argparse.Namespace) -> Settings:
    """How updates are made."""
    optimizer = optimizer_options(args)
    return Settings(
        num_train_steps=args.num_train_steps,
        num_warmup_steps=args.num_warmup_steps,
        learning_rate=args.learning_rate,
        seed=args.seed,
        lr_decay_power=args.lr_decay_power,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        clip_per_replica=optimizer.clip == "per_shard",
        skip_not_finite=args.on_not_finite == "skip",
        xla=uses_xla(args),
        optimizer=optimizer,
    )


def rhythm_of(args: argparse.Namespace) -> Rhythm:
    """When the run looks up from its updates."""
    return Rhythm(
        iterations_per_loop=args.iterations_per_loop or (100 if is_accelerated() else 1),
        save_checkpoints_steps=args.save_checkpoints_steps,
        eval_steps=args.eval_steps,
        keeping=Keeping(args.keep_checkpoint_max, args.keep_checkpoint_every_n_hours),
        best_metric=args.best_metric,
    )


def resume(trainer: Trainer, output: Path, rhythm: Rhythm) -> dict[str, Any] | None:
    """Gives a trainer the state of the last checkpoint, and warns where the disk has no room for those to come.

    Args:
        trainer: new.
        output: the run's directory.
        rhythm: of the run.

    Returns:
        What the checkpoint holds beside the variables; None where there is none and the run begins.
    """
    directory = output / native.CHECKPOINTS_NAME
    saved = checkpointing.checkpoints(directory)
    vocab_size = trainer.task.vocab_size
    shortage = checkpointing.space_warning(directory, trainer.saved_variables, vocab_size, rhythm.keeping)
    if shortage and trainer.distribution.is_chief:
        warn(shortage)
    if not saved:
        return None
    checkpointing.restore(saved[-1].prefix, trainer.saved_variables, vocab_size)
    say(f"Resuming {output} from step {saved[-1].step} of {trainer.settings.num_train_steps}")
    return checkpointing.state_of(saved[-1], WatchState)


def eval_batch_size_of(args: argparse.Namespace, distribution: Distribution) -> int:
    """--eval_batch_size, made to be divisible by the devices."""
    return -(-args.eval_batch_size // distribution.replicas) * distribution.replicas


def peak_flops_of(args: argparse.Namespace, distribution: Distribution) -> float | None:
    """Of all devices together, in operations a second; None where it is not known."""
    if args.peak_tflops is not None:
        return args.peak_tflops * 1e12 * distribution.replicas
    for gpu in tf.config.list_physical_devices("GPU"):
        name = tf.config.experimental.get_device_details(gpu).get("device_name", "")
        peak = peak_flops(name, args.precision)
        return None if peak is None else peak * distribution.replicas
    return None


def write_results(output: Path, results: Mapping[str, float]) -> None:
    """Writes an evaluation as the released code does, a sorted `key = value` a line, and as JSON."""
    text = "".join(f"{name} = {value}\n" for name, value in sorted(results.items()))
    write_whole(output / RESULTS_TEXT_NAME, text.encode())
    # JSON has no number that is not finite.
    numbers = {name: value if math.isfinite(value) else None for name, value in results.items()}
    write_whole(output / RESULTS_JSON_NAME, json.dumps(numbers, indent=2, sort_keys=True).encode() + b"\n")
