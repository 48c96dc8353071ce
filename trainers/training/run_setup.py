"""Set up a training run from its configuration: devices, step and loop configuration, resuming, result files."""

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from beambert.bert_model.checkpoints import native
from beambert.common.local_files import write_atomic
from beambert.trainers.backends.backend import Distribution, TrainConfig, Trainer, active_backend
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import RetentionPolicy
from beambert.trainers.config.run_config import RunConfig
from beambert.trainers.monitoring.throughput import peak_flops
from beambert.trainers.monitoring.training_monitor import MonitorState
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.training.loop import LoopConfig
from beambert.trainers.training.several_processes import decided_by_chief, last_checkpoint, restore

RESULTS_TEXT_NAME = "eval_results.txt"
RESULTS_JSON_NAME = "eval_results.json"


def open_devices(config: RunConfig) -> Distribution:
    """Seed all random generators, set the precision and open the devices; the backend must have been started.

    Raises:
        TrainingError: the devices are not available.
    """
    if keras.backend.backend() == "tensorflow":
        keras.utils.set_random_seed(config.seed)
    else:
        # The generator of Keras's initializers. The function of Keras imports TensorFlow where it is installed.
        random.seed(config.seed)
    keras.config.set_dtype_policy("mixed_bfloat16" if config.precision == "bfloat16" else "float32")
    strategy = "mirrored" if config.strategy == "auto" and config.cpu_devices > 1 else config.strategy
    return active_backend().open_distribution(strategy, config.tpu_name, config.tpu_zone, config.gcp_project)


def uses_xla(config: RunConfig, distribution: Distribution) -> bool:
    """Return whether the training step is compiled with XLA, separately for each shape."""
    is_jax = keras.backend.backend() == "jax"
    return is_jax or config.xla == "on" or (config.xla == "auto" and distribution.is_accelerated)


def train_config_of(config: RunConfig, distribution: Distribution) -> TrainConfig:
    """Return the configuration of a training step; the numbers of steps and the learning rate must be resolved."""
    assert config.num_train_steps is not None
    assert config.num_warmup_steps is not None
    assert config.learning_rate is not None
    optimizer = config.optimizer_options
    return TrainConfig(
        num_train_steps=config.num_train_steps,
        num_warmup_steps=config.num_warmup_steps,
        learning_rate=config.learning_rate,
        seed=config.seed,
        lr_schedule=config.learning_rate_schedule,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        clip_per_replica=optimizer.clip == "per_shard",
        skip_nonfinite=config.on_nonfinite == "skip",
        xla=uses_xla(config, distribution),
        shard_optimizer_state=config.shard_optimizer_state,
        optimizer=optimizer,
    )


def loop_config_of(config: RunConfig, distribution: Distribution) -> LoopConfig:
    """Return the configuration of the training loop; the best metric must be resolved."""
    assert config.best_metric is not None
    steps = config.num_train_steps
    decay_start = None if steps is None else config.learning_rate_schedule.decay_start(steps)
    return LoopConfig(
        iterations_per_loop=config.iterations_per_loop or (100 if distribution.is_accelerated else 1),
        save_checkpoints_steps=config.save_checkpoints_steps,
        eval_steps=config.eval_steps,
        retention=RetentionPolicy(config.keep_checkpoint_max, config.keep_checkpoint_every_n_hours, decay_start),
        best_metric=config.best_metric,
    )


def resume(trainer: Trainer, output: Path, loop: LoopConfig) -> tuple[int, dict[str, Any] | None]:
    """Restore a trainer from the last checkpoint, and warn if the disk has no space for further checkpoints.

    Args:
        trainer: a new trainer.
        output: the run directory.
        loop: configuration of the training loop.

    Returns:
        The number of completed steps, and the state saved with the checkpoint besides the variables; (0, None) without
        a checkpoint.
    """
    directory = output / native.CHECKPOINTS_NAME
    distribution = trainer.distribution
    saved = last_checkpoint(distribution, directory)
    vocab_size = trainer.task.vocab_size
    shortage = checkpoint_manager.space_warning(directory, trainer.saved_variables, vocab_size, loop.retention)
    if shortage and distribution.is_chief:
        warn(shortage)
    if saved is None:
        return 0, None
    restore(distribution, saved, trainer.saved_variables, vocab_size)
    print_status(f"Resuming {output} from step {saved.step} of {trainer.config.num_train_steps}")
    return saved.step, decided_by_chief(distribution, lambda: checkpoint_manager.state_of(saved, MonitorState))


def eval_batch_size_of(config: RunConfig, distribution: Distribution) -> int:
    """Return --eval_batch_size, rounded up to a multiple of the number of replicas."""
    return -(-config.eval_batch_size // distribution.replicas) * distribution.replicas


def peak_flops_of(config: RunConfig, distribution: Distribution) -> float | None:
    """Return the peak of all devices together in FLOP/s; None if unknown."""
    if config.peak_tflops is not None:
        return config.peak_tflops * 1e12 * distribution.replicas
    peak = peak_flops(distribution.device_name, config.precision)
    return None if peak is None else peak * distribution.replicas


def write_results(output: Path, results: Mapping[str, float]) -> None:
    """Write an evaluation as sorted lines of `key = value`, like the released code, and as JSON."""
    text = "".join(f"{name} = {value}\n" for name, value in sorted(results.items()))
    write_atomic(output / RESULTS_TEXT_NAME, text.encode())
    # JSON has no non-finite numbers.
    values = {name: value if math.isfinite(value) else None for name, value in results.items()}
    write_atomic(output / RESULTS_JSON_NAME, json.dumps(values, indent=2, sort_keys=True).encode() + b"\n")
