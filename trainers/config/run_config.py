"""The configuration that every training run has: devices, numerics, optimizer, checkpoints, evaluation.

Names are those of the flags. The defaults are here; the flags take them from here. This file imports neither Keras nor
TensorFlow.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from beambert_common.command_line.flag_config import FlagConfig
from beambert_common.typed_json import Count, NonNegative, Number, Positive
from trainers.errors import TrainingError
from trainers.optimization.optimizer_options import OptimizerOptions

_TPU_FLAGS = ("tpu_name", "tpu_zone", "gcp_project")


@dataclass(frozen=True, kw_only=True)
class RunConfig(FlagConfig):
    """What every training run is configured with; the help of each flag says what it does.

    None is an option that was not given and has no fixed default.
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
    lr_decay_power: NonNegative = 1.0

    optimizer: str = "bert_adam"
    weight_decay: NonNegative = 0.01
    adam_beta1: NonNegative = 0.9
    adam_beta2: NonNegative = 0.999
    adam_epsilon: NonNegative = 1e-6
    clip_norm: NonNegative = 1.0
    clip: str = "global"
    layerwise_lr_decay: NonNegative = 1.0
    lr_multiplier: tuple[tuple[str, Number], ...] = ()

    strategy: str = "auto"
    tpu_name: str | None = None
    tpu_zone: str | None = None
    gcp_project: str | None = None
    cpu_devices: Positive = 1
    gradient_accumulation_steps: Positive = 1
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
        """Check the options against each other, as far as no file is needed for it.

        Raises:
            TrainingError: a flag of a TPU with a strategy that takes none, or without its name.
        """
        for name in _TPU_FLAGS:
            if getattr(self, name) is None:
                continue
            if self.strategy not in ("auto", "tpu"):
                raise TrainingError(
                    f"--{name} says where a TPU is, but --strategy is {self.strategy}; give --strategy tpu"
                )
            if self.tpu_name is None:
                raise TrainingError(
                    f"--{name} is given without --tpu_name; name the TPU, or leave both out for a local one"
                )

    def to_json(self) -> dict[str, Any]:
        """Return all options by name as JSON has them, as the run's manifest records them."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @property
    def optimizer_options(self) -> OptimizerOptions:
        """Return the options of the optimizer alone."""
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
