"""The options of training, each declared once: type, range, flag, help, and what another value means for a resumed run.

An option is a field of a frozen dataclass, as in `beambert.common.command_line.options`. Its flag, its check, its type
in `run.json` and the rules of resuming and of sweeps follow from its declaration. This file imports neither Keras nor
TensorFlow.
"""

import argparse
import dataclasses
import enum
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, Literal

from msgspec import Meta

from beambert.common.command_line import options
from beambert.common.command_line.flags import Number, in_quotes
from beambert.common.command_line.options import (
    BatchSize,
    Flag,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ProperFraction,
)
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.common.word_rules import WordRuleFlags
from beambert.trainers.buckets import cache
from beambert.trainers.errors import TrainingError
from beambert.trainers.optimization.update_rules import OptimizerName

Precision = Literal["float32", "bfloat16"]


class OnResume(enum.Enum):
    """The meaning of another value of an option for a run that resumes, and for the finished runs of a sweep.

    Attributes:
        FORBIDDEN: it makes another run, which does not resume.
        LATER_STEPS: it changes the later steps, which is printed. A sweep does not resume.
        NUMERICS: results are not bit-identical, which is printed.
        FREE: a run resumes without a message: the option affects evaluations, or its effect is compared instead (data,
            model, number of steps). A sweep does not resume, since scores depend on it.
        NO_EFFECT: neither weights nor scores depend on it.
    """

    FORBIDDEN = enum.auto()
    LATER_STEPS = enum.auto()
    NUMERICS = enum.auto()
    FREE = enum.auto()
    NO_EFFECT = enum.auto()


@dataclass(frozen=True, kw_only=True)
class ModelOptions(WordRuleFlags):
    """Files and properties of a model that its directory may lack; None takes those of the directory.

    Attributes:
        vocab_file: Vocabulary file (default: vocab.txt of the model).
        added_tokens: Tokens that are kept whole where a text contains them, one per line, in addition to those recorded
            with the model. The vocabulary must have them; extend-vocab adds those that it lacks.
        do_lower_case: Lowercase the text (default: as recorded with the model, else true if the vocabulary has no
            capitals).
        strip_accents: Strip accents; auto strips them if the text is lowercased (default: as recorded with the model,
            else auto).
        tokenize_chinese_chars: Make each CJK ideograph a word (default: as recorded with the model, else true).
        bert_config_file: Model configuration file (default: bert_config.json next to the checkpoint).
    """

    vocab_file: Annotated[str | None, Flag("model", type=ANY_PATH, metavar="FILE"), OnResume.FREE] = None
    added_tokens: Annotated[str | None, Flag("model", type=ANY_PATH, metavar="FILE"), OnResume.FREE] = None
    do_lower_case: Annotated[bool | None, Flag("model"), OnResume.FREE] = None
    strip_accents: Annotated[Literal["auto", "true", "false"] | None, Flag("model"), OnResume.FREE] = None
    tokenize_chinese_chars: Annotated[bool | None, Flag("model"), OnResume.FREE] = None
    bert_config_file: Annotated[str | None, Flag("model", type=ANY_PATH, metavar="FILE"), OnResume.FREE] = None

    @property
    def model_options(self) -> dict[str, Any]:
        """Return the keyword arguments for `load_model`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(ModelOptions)}

    @property
    def model_paths(self) -> list[tuple[str, str]]:
        """Return (flag, path) for each file that is set."""
        names = ("vocab_file", "added_tokens", "bert_config_file")
        return [(f"--{name}", path) for name in names if (path := getattr(self, name))]


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """The option of every command that runs a model.

    Attributes:
        backend: Library that runs the model; auto: JAX where it is installed for a GPU or TPU of this machine,
            otherwise TensorFlow.
    """

    backend: Annotated[Literal["auto", "tensorflow", "jax"], Flag("devices"), OnResume.NUMERICS] = "auto"


@dataclass(frozen=True, kw_only=True)
class InferenceOptions(BackendOptions, ModelOptions):
    """The options of the commands that run a trained model.

    Attributes:
        precision: Precision of matrix products and of their weights; with bfloat16, embeddings, softmax and layer
            normalization stay float32.

    Raises:
        TrainingError: a value is out of range.
    """

    precision: Annotated[Precision, Flag("numerics")] = "float32"

    def __post_init__(self) -> None:
        options.check(self, TrainingError)


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train together, as far as they are given; None leaves it to JAX's detection of the cluster.

    Attributes:
        coordinator_address: address and port of the first process.
        num_processes: number of processes.
        process_id: index of this process.
    """

    coordinator_address: str | None = None
    num_processes: int | None = None
    process_id: int | None = None

    @property
    def is_chief(self) -> bool:
        """Return whether this process writes the files of a run, as far as it is known before JAX starts."""
        index = self.process_id if self.process_id is not None else _index_of_process(os.environ)
        return index == 0


def _runs_several_processes(environment: Mapping[str, str]) -> bool:
    """Return whether the environment of a process names others: hosts of a TPU slice, or several slices."""
    hosts = environment.get("TPU_WORKER_HOSTNAMES", "").split(",")
    return "JAX_COORDINATOR_ADDRESS" in environment or len(hosts) > 1 or "MEGASCALE_COORDINATOR_ADDRESS" in environment


def _index_of_process(environment: Mapping[str, str]) -> int:
    # The last one is that of an indexed job of Kubernetes.
    for name in ("TPU_WORKER_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX"):
        if environment.get(name, "").isdigit():
            # The first host of the first slice is the chief.
            return int(environment[name]) + int(environment.get("MEGASCALE_SLICE_ID") or 0)
    return 0


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(BackendOptions):
    """The devices of a run, and their arithmetic.

    Attributes:
        strategy: Distribution strategy: single, a single device; mirrored, all GPUs of this machine; multi_worker, the
            machines in TF_CONFIG or, under JAX, all processes; tpu, a Cloud TPU; auto, all devices that are available.
        coordinator_address: Address of the first of several processes that train together with --backend jax (default:
            detected on Cloud TPU, Slurm and Kubernetes).
        num_processes: Number of processes that train together.
        process_id: Index of this process, from 0; process 0 writes the files.
        tpu_name: Name of the Cloud TPU (default: the local TPU).
        tpu_zone: Zone of the Cloud TPU (default: the zone of this machine).
        gcp_project: Project of the Cloud TPU (default: the project of this machine).
        cpu_devices: Number of logical CPU devices, to test --strategy mirrored without GPUs; slower than 1.
        precision: Precision of matrix products; with bfloat16, softmax, layer normalization, loss and weights stay
            float32.
        deterministic_ops: Use only deterministic operations; false may be faster on GPUs (default: true).
    """

    strategy: Annotated[
        Literal["auto", "single", "mirrored", "multi_worker", "tpu"], Flag("devices"), OnResume.NUMERICS
    ] = "auto"
    coordinator_address: Annotated[str | None, Flag("devices", metavar="HOST:PORT"), OnResume.NO_EFFECT] = None
    num_processes: Annotated[PositiveInt | None, Flag("devices"), OnResume.NO_EFFECT] = None
    process_id: Annotated[NonNegativeInt | None, Flag("devices"), OnResume.NO_EFFECT] = None
    tpu_name: Annotated[str | None, Flag("devices", metavar="NAME"), OnResume.NO_EFFECT] = None
    tpu_zone: Annotated[str | None, Flag("devices", metavar="ZONE"), OnResume.NO_EFFECT] = None
    gcp_project: Annotated[str | None, Flag("devices", metavar="PROJECT"), OnResume.NO_EFFECT] = None
    cpu_devices: Annotated[int, Meta(ge=1, le=256), Flag("devices"), OnResume.NUMERICS] = 1
    precision: Annotated[Precision, Flag("numerics"), OnResume.NUMERICS] = "float32"
    deterministic_ops: Annotated[bool, Flag("numerics"), OnResume.NUMERICS] = True

    @property
    def processes(self) -> ProcessGroup | None:
        """Return the processes that train together under JAX; None for a single process, and for TensorFlow."""
        if self.backend == "tensorflow":
            return None
        given = ProcessGroup(self.coordinator_address, self.num_processes, self.process_id)
        if given == ProcessGroup() and self.strategy != "multi_worker" and not _runs_several_processes(os.environ):
            return None
        return given

    def check_devices(self) -> None:
        """Check the options against each other.

        Raises:
            TrainingError: a TPU flag with another strategy, or without --tpu_name; an incomplete group of processes, or
                several with a single device; processes with another backend.
        """
        names = ("coordinator_address", "num_processes", "process_id")
        given = [name for name in names if getattr(self, name) is not None]
        if given and self.backend == "tensorflow":
            raise TrainingError(f"invalid --{given[0]} with --backend tensorflow: it requires --backend jax")
        if given and len(given) < len(names):
            missing = next(name for name in names if name not in given)
            raise TrainingError(f"--{given[0]} requires --{missing}: give all of --{', --'.join(names)}, or none")
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
        for name in ("tpu_name", "tpu_zone", "gcp_project"):
            if getattr(self, name) is None:
                continue
            if self.strategy not in ("auto", "tpu"):
                raise TrainingError(f"invalid --{name} with --strategy {self.strategy}: it requires --strategy tpu")
            if self.tpu_name is None:
                raise TrainingError(
                    f"invalid --{name} without --tpu_name: give the name of the TPU, or neither for a local TPU"
                )


def _parse_lr_multiplier(text: str) -> tuple[str, float]:
    pattern, equals, factor = text.rpartition("=")
    if not pattern or not equals:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not REGEX=FACTOR, such as bert/embeddings/=0.5")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{in_quotes(pattern)} is not a valid regular expression: {error}") from None
    return pattern, Number(0.0, math.inf)(factor)


@dataclass(frozen=True, kw_only=True)
class OptimizerOptions:
    """The optimizer and its hyperparameters; the defaults are those of the released BERT.

    Attributes:
        optimizer: Optimizer: bert_adam, the released BERT's Adam without bias correction; adamw, which needs less
            warm-up; lamb, for batches of thousands of sequences, with about ten times the learning rate; muon,
            which orthogonalizes the updates of matrices.
        weight_decay: Decoupled weight decay, not applied to biases and layer normalization.
        adam_beta1: Decay rate of the first moment estimates.
        adam_beta2: Decay rate of the second moment estimates; 0.98 is common with large batches.
        adam_epsilon: Constant added to the denominator for numerical stability.
        clip_norm: Maximum global gradient norm; 0 disables clipping.
        clip: Gradient clipping: global, of the gradient of the whole batch; per_shard, of each device's gradient before
            the sum, as in the released code on TPUs.
        layerwise_lr_decay: Learning-rate decay per encoder layer, from the last layer down to the embeddings; heads and
            pooler keep the full rate; typical in fine-tuning: 0.8 to 0.95 (default: 1, no decay).
        lr_multiplier: Learning-rate multiplier for variables whose TF1 name matches a regular expression;
            bert/embeddings/=0 freezes the embeddings; repeatable, and the first match applies.

    Raises:
        TrainingError: a value is out of range.
    """

    optimizer: Annotated[OptimizerName, Flag("optimizer"), OnResume.FORBIDDEN] = "bert_adam"
    weight_decay: Annotated[NonNegativeFloat, Flag("optimizer", metavar="RATE"), OnResume.LATER_STEPS] = 0.01
    adam_beta1: Annotated[ProperFraction, Flag("optimizer", metavar="RATE"), OnResume.LATER_STEPS] = 0.9
    adam_beta2: Annotated[ProperFraction, Flag("optimizer", metavar="RATE"), OnResume.LATER_STEPS] = 0.999
    adam_epsilon: Annotated[PositiveFloat, Flag("optimizer", metavar="EPSILON"), OnResume.LATER_STEPS] = 1e-6
    clip_norm: Annotated[NonNegativeFloat, Flag("optimizer", metavar="NORM"), OnResume.LATER_STEPS] = 1.0
    clip: Annotated[Literal["global", "per_shard"], Flag("optimizer"), OnResume.LATER_STEPS] = "global"
    layerwise_lr_decay: Annotated[
        float, Meta(gt=0, le=1), Flag("optimizer", metavar="FACTOR"), OnResume.LATER_STEPS
    ] = 1.0
    lr_multiplier: Annotated[
        tuple[tuple[str, NonNegativeFloat], ...],
        Flag("optimizer", type=_parse_lr_multiplier, action="append", metavar="REGEX=FACTOR"),
        OnResume.LATER_STEPS,
    ] = ()

    def __post_init__(self) -> None:
        options.check(self, TrainingError)


# Options that only one schedule has.
_SCHEDULE_OF_OPTION = {"lr_decay_power": "linear", "lr_decay_fraction": "wsd", "lr_min_fraction": "cosine"}


@dataclass(frozen=True, kw_only=True)
class LearningRateSchedule:
    """The learning rate of every step; the default shape is that of the released BERT.

    Attributes:
        learning_rate: Peak learning rate.
        num_train_steps: Number of training steps.
        num_warmup_steps: Number of warm-up steps among them.
        lr_schedule: Learning rate after warm-up: linear, decay to 0 as in the released BERT; cosine; constant; wsd,
            warmup-stable-decay: constant, then a 1-sqrt decay to 0 in the last steps.
        lr_decay_power: Power of the polynomial decay of --lr_schedule linear; 1 is linear, lower values decay later.
        lr_decay_fraction: Fraction of the steps in the decay of --lr_schedule wsd.
        lr_min_fraction: Final learning rate of --lr_schedule cosine, as a fraction of the peak (default: 0.0).

    None is a value that is not known yet.

    Raises:
        TrainingError: an option has no effect with this schedule, or the decay of `wsd` starts before the end of
            warm-up.
    """

    learning_rate: Annotated[PositiveFloat | None, OnResume.LATER_STEPS] = None
    num_train_steps: Annotated[PositiveInt | None, OnResume.LATER_STEPS] = None
    num_warmup_steps: Annotated[NonNegativeInt | None, OnResume.LATER_STEPS] = None
    lr_schedule: Annotated[Literal["linear", "cosine", "constant", "wsd"], Flag("optimizer"), OnResume.LATER_STEPS] = (
        "linear"
    )
    lr_decay_power: Annotated[PositiveFloat, Flag("optimizer", metavar="POWER"), OnResume.LATER_STEPS] = 1.0
    lr_decay_fraction: Annotated[float, Meta(gt=0, le=1), Flag("optimizer"), OnResume.LATER_STEPS] = 0.2
    lr_min_fraction: Annotated[float, Meta(ge=0, le=1), Flag("optimizer"), OnResume.LATER_STEPS] = 0.0

    def __post_init__(self) -> None:
        options.check(self, TrainingError)
        for option, schedule in _SCHEDULE_OF_OPTION.items():
            value = getattr(self, option)
            if value != getattr(LearningRateSchedule, option) and self.lr_schedule != schedule:
                raise TrainingError(
                    f"invalid --{option} {value:g} with --lr_schedule {self.lr_schedule}: it requires --lr_schedule "
                    f"{schedule}"
                )
        start = self.decay_start
        if start is not None and self.num_warmup_steps is not None and start < self.num_warmup_steps:
            raise TrainingError(
                f"invalid --lr_decay_fraction {self.lr_decay_fraction:g}: the decay would start at step {start} of "
                f"{self.num_train_steps}, before the end of warm-up at step {self.num_warmup_steps}; give a lower "
                "fraction or less warm-up"
            )

    @property
    def decay_start(self) -> int | None:
        """Return the first step of the decay of `wsd`; None for the other schedules."""
        if self.lr_schedule != "wsd" or self.num_train_steps is None:
            return None
        return self.num_train_steps - max(1, round(self.lr_decay_fraction * self.num_train_steps))

    @property
    def known_schedule(self) -> tuple[float, int, int]:
        """Return the peak learning rate and the numbers of training steps and warm-up steps, which must be known."""
        assert self.learning_rate is not None
        assert self.num_train_steps is not None
        assert self.num_warmup_steps is not None
        return self.learning_rate, self.num_train_steps, self.num_warmup_steps

    def rate_at(self, step: Any, ops: ModuleType | None = None) -> Any:
        """Return the learning rate of a step: linear warm-up from 0, then the schedule.

        With step t, N training steps, W warm-up steps and peak r, the rate after warm-up is:

        linear    r (1 - t / N)^p. As in the released code, the decay starts at step 0, so that the rate drops at step W
                  from about r to r (1 - W / N)^p.
        cosine    r (m + (1 - m) (1 + cos(pi (t - W) / (N - W))) / 2), Loshchilov and Hutter 2017, without restarts.
        constant  r.
        wsd       r, then r (1 - sqrt((t - S) / (N - S))) from the start S of the decay: the 1-sqrt cooldown of Haegele
                  et al. 2024 ("Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", section 3).

        Step 0 of a run with warm-up has rate 0.

        Args:
            step: number of completed steps, with `keras.ops` a float32 scalar; after the last step, the rate is that of
                the last step.
            ops: the functions: `keras.ops` in a compiled step; None for those of numpy.
        """
        if ops is None:
            import numpy

            ops = numpy
        peak, num_train_steps, num_warmup_steps = self.known_schedule
        done = ops.minimum(step, num_train_steps)
        start = self.decay_start
        if start is not None:
            progress = ops.maximum(done - start, 0.0) / (num_train_steps - start)
            decayed = peak * (1.0 - ops.sqrt(progress))
        elif self.lr_schedule == "constant":
            decayed = peak * ops.ones_like(done)
        elif self.lr_schedule == "cosine":
            progress = ops.maximum(done - num_warmup_steps, 0.0) / max(num_train_steps - num_warmup_steps, 1)
            least = self.lr_min_fraction
            decayed = peak * (least + (1.0 - least) * 0.5 * (1.0 + ops.cos(math.pi * progress)))
        else:
            # `tf.compat.v1.train.polynomial_decay` to 0 without cycles.
            decayed = peak * ops.power(1.0 - done / num_train_steps, self.lr_decay_power)
        if num_warmup_steps == 0:
            return decayed
        return ops.where(done < num_warmup_steps, peak * done / num_warmup_steps, decayed)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(LearningRateSchedule, OptimizerOptions):
    """The options of the training loop and its steps.

    Attributes:
        seed: Seed of dropout.
        gradient_accumulation_steps: Number of micro-batches per step, computed in sequence to save memory; the result
            of a step stays the same.
        shard_optimizer_state: Shard the optimizer state over the devices, with --backend jax: each device stores a part
            of it, which saves memory; checkpoints stay the same.
        activation_checkpointing: Activations to discard and compute again in the backward pass, to save memory: those
            of each layer, or those of attention only.
        iterations_per_loop: Maximum number of steps per call into the compiled loop; metrics are read and signals
            handled between calls (default: 1 on a CPU, 100 on accelerators).
        xla: Compile the training step with XLA; auto: on accelerators only.
        on_nonfinite: Action at a step whose loss or gradient is NaN or infinite: stop and name the last checkpoint, or
            skip the step and count it.
        save_checkpoints_steps: Steps between checkpoints.
        keep_checkpoint_max: Number of recent checkpoints to keep, in addition to the best one.
        keep_checkpoint_every_n_hours: Keep one checkpoint permanently for every N hours of training (default: none).
        eval_steps: Steps between evaluations; 0 evaluates only at the end (default: 0).
        best_metric: Evaluation metric that selects the best checkpoint.

    A checkpoint is also saved, and kept permanently, where the decay of `wsd` starts.
    """

    seed: Annotated[NonNegativeInt, OnResume.FORBIDDEN] = 12345
    gradient_accumulation_steps: Annotated[BatchSize, Flag("devices"), OnResume.NUMERICS] = 1
    shard_optimizer_state: Annotated[bool, Flag("devices"), OnResume.NUMERICS] = False
    activation_checkpointing: Annotated[Literal["none", "layer", "attention"], Flag("devices"), OnResume.NUMERICS] = (
        "none"
    )
    iterations_per_loop: Annotated[PositiveInt | None, Flag("devices"), OnResume.NO_EFFECT] = None
    xla: Annotated[Literal["auto", "on", "off"], Flag("numerics"), OnResume.NUMERICS] = "auto"
    on_nonfinite: Annotated[Literal["stop", "skip"], Flag("numerics"), OnResume.LATER_STEPS] = "stop"
    save_checkpoints_steps: Annotated[PositiveInt, Flag("checkpoints"), OnResume.NO_EFFECT] = 1000
    keep_checkpoint_max: Annotated[PositiveInt, Flag("checkpoints"), OnResume.NO_EFFECT] = 5
    keep_checkpoint_every_n_hours: Annotated[
        PositiveFloat | None, Flag("checkpoints", metavar="HOURS"), OnResume.NO_EFFECT
    ] = None
    eval_steps: Annotated[NonNegativeInt, Flag("evaluation"), OnResume.FREE] = 0
    best_metric: Annotated[str | None, OnResume.FREE] = "loss"


@dataclass(frozen=True, kw_only=True)
class RunOptions(TrainingOptions, DeviceOptions):
    """The options common to all training runs; None is an option without a value and without a fixed default.

    Attributes:
        output: Output directory.
        do_train: Train.
        do_eval: Evaluate.
        init_checkpoint: Initial weights.
        train_batch_size: Global training batch size in sequences.
        peak_tflops: Peak TFLOP/s of one device at the precision in use, for the model FLOPs utilization (MFU); known
            for common NVIDIA GPUs, required for MFU on other devices (default: by GPU name).
        eval_batch_size: Evaluation batch size in sequences.

    Raises:
        TrainingError: a value is out of range, or options contradict each other. No files are read.
    """

    output: Annotated[str, OnResume.NO_EFFECT]
    do_train: Annotated[bool, OnResume.NO_EFFECT] = False
    do_eval: Annotated[bool, OnResume.NO_EFFECT] = False
    init_checkpoint: Annotated[str | None, OnResume.FREE] = None
    train_batch_size: Annotated[BatchSize, OnResume.LATER_STEPS] = 32
    peak_tflops: Annotated[PositiveFloat | None, Flag("devices", metavar="N"), OnResume.NO_EFFECT] = None
    eval_batch_size: Annotated[BatchSize, Flag("evaluation"), OnResume.NO_EFFECT] = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_devices()
        if self.shard_optimizer_state and self.backend == "tensorflow":
            raise TrainingError("invalid --shard_optimizer_state with --backend tensorflow: it requires --backend jax")

    def to_json(self) -> dict[str, Any]:
        """Return all options by name with their JSON types, as recorded in `run.json`.

        Paths of copies of objects in buckets are URLs.
        """
        return json.loads(cache.with_urls(json.dumps(dataclasses.asdict(self), ensure_ascii=False)))
