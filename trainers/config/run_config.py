"""Define the configuration common to all training runs: devices, numerics, optimizer, checkpoints, evaluation.

Fields have the names of flags, which take their defaults from here. This file imports neither Keras nor TensorFlow.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Any

from beambert.common.command_line.flags import FlagConfig
from beambert.common.typed_json import Count, NonNegative, Number, Positive
from beambert.trainers.buckets import cache
from beambert.trainers.config.process_group import ProcessGroup, runs_several_processes
from beambert.trainers.errors import TrainingError
from beambert.trainers.optimization.learning_rate_schedule import LearningRateSchedule
from beambert.trainers.optimization.optimizer_options import OptimizerOptions

_TPU_FLAGS = ("tpu_name", "tpu_zone", "gcp_project")
_PROCESS_FLAGS = ("coordinator_address", "num_processes", "process_id")


@dataclass(frozen=True, kw_only=True)
class RunConfig(FlagConfig):
    """The configuration common to all training runs; the help of each flag describes it.

    None is an option without a value and without a fixed default.
    """

    output: str
    do_train: bool = False
    do_eval: bool = False
    model: str | None = None
    init_checkpoint: str | None = None
    seed: Count = 12345
    train_batch_size: Positive = 32
    learning_rate: NonNegative | None = None
    num_train_steps: Positive | None = None
    num_warmup_steps: Count | None = None
    lr_schedule: str = "linear"
    lr_decay_power: NonNegative = 1.0
    lr_decay_fraction: NonNegative = 0.2
    lr_min_fraction: NonNegative = 0.0

    optimizer: str = "bert_adam"
    weight_decay: NonNegative = 0.01
    adam_beta1: NonNegative = 0.9
    adam_beta2: NonNegative = 0.999
    adam_epsilon: NonNegative = 1e-6
    clip_norm: NonNegative = 1.0
    clip: str = "global"
    layerwise_lr_decay: NonNegative = 1.0
    lr_multiplier: tuple[tuple[str, Number], ...] = ()

    backend: str = "auto"
    strategy: str = "auto"
    coordinator_address: str | None = None
    num_processes: Positive | None = None
    process_id: Count | None = None
    tpu_name: str | None = None
    tpu_zone: str | None = None
    gcp_project: str | None = None
    cpu_devices: Positive = 1
    gradient_accumulation_steps: Positive = 1
    shard_optimizer_state: bool = False
    activation_checkpointing: str = "none"
    iterations_per_loop: Positive | None = None
    peak_tflops: NonNegative | None = None

    precision: str = "float32"
    xla: str = "auto"
    deterministic_ops: bool = True
    on_nonfinite: str = "stop"

    save_checkpoints_steps: Positive = 1000
    keep_checkpoint_max: Positive = 5
    keep_checkpoint_every_n_hours: NonNegative | None = None
    eval_steps: Count = 0
    eval_batch_size: Positive = 32
    best_metric: str | None = None

    def __post_init__(self) -> None:
        """Check the options against each other, without reading files.

        Raises:
            TrainingError: a TPU flag with another strategy, or without --tpu_name; an incomplete group of processes;
                several processes with a single device; a flag that requires another backend or learning-rate schedule.
        """
        # Raises for an option of another schedule.
        _ = self.learning_rate_schedule
        given = [name for name in _PROCESS_FLAGS if getattr(self, name) is not None]
        if given and self.backend == "tensorflow":
            raise TrainingError(f"invalid --{given[0]} with --backend tensorflow: it requires --backend jax")
        if self.shard_optimizer_state and self.backend == "tensorflow":
            raise TrainingError("invalid --shard_optimizer_state with --backend tensorflow: it requires --backend jax")
        if given and len(given) < len(_PROCESS_FLAGS):
            missing = next(name for name in _PROCESS_FLAGS if name not in given)
            raise TrainingError(
                f"--{given[0]} requires --{missing}: give all of --{', --'.join(_PROCESS_FLAGS)}, or none"
            )
        if self.process_id is not None and self.num_processes is not None and self.process_id >= self.num_processes:
            raise TrainingError(
                f"invalid --process_id {self.process_id}: must be from 0 to {self.num_processes - 1} with "
                f"--num_processes {self.num_processes}"
            )
        if self.strategy == "single" and self.num_processes is not None and self.num_processes > 1:
            raise TrainingError(
                f"invalid --strategy single with --num_processes {self.num_processes}: it is the first device of each "
                "process, without an exchange of gradients; omit --strategy, or start a single process"
            )
        for name in _TPU_FLAGS:
            if getattr(self, name) is None:
                continue
            if self.strategy not in ("auto", "tpu"):
                raise TrainingError(f"invalid --{name} with --strategy {self.strategy}: it requires --strategy tpu")
            if self.tpu_name is None:
                raise TrainingError(
                    f"invalid --{name} without --tpu_name: give the name of the TPU, or neither for a local TPU"
                )

    def to_json(self) -> dict[str, Any]:
        """Return all options by name with their JSON types, as recorded in `run.json`.

        Paths of copies of objects in buckets are URLs.
        """
        return json.loads(cache.with_urls(json.dumps(dataclasses.asdict(self), ensure_ascii=False)))

    @property
    def processes(self) -> ProcessGroup | None:
        """Return the processes that train together under JAX; None for a single process, and for TensorFlow."""
        if self.backend == "tensorflow":
            return None
        given = ProcessGroup(self.coordinator_address, self.num_processes, self.process_id)
        if given == ProcessGroup() and self.strategy != "multi_worker" and not runs_several_processes(os.environ):
            return None
        return given

    @property
    def learning_rate_schedule(self) -> LearningRateSchedule:
        """Return the learning-rate schedule. Raises TrainingError for an option of another schedule."""
        return LearningRateSchedule(self.lr_schedule, self.lr_decay_power, self.lr_decay_fraction, self.lr_min_fraction)

    @property
    def optimizer_options(self) -> OptimizerOptions:
        """Return the options of the optimizer."""
        return OptimizerOptions(
            name=self.optimizer,
            weight_decay=self.weight_decay,
            beta_1=self.adam_beta1,
            beta_2=self.adam_beta2,
            epsilon=self.adam_epsilon,
            clip_norm=self.clip_norm,
            clip=self.clip,
            layerwise_lr_decay=self.layerwise_lr_decay,
            lr_multipliers=tuple(self.lr_multiplier),
        )
