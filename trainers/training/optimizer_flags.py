"""Define the flags of the optimizer, which pretraining and fine-tuning share. This file does not import TensorFlow."""

import argparse
import math
import re

from beambert.common.command_line.flags import Number, shortened
from beambert.trainers.config.run_config import RunConfig
from beambert.trainers.optimization.learning_rate_schedule import LR_SCHEDULES
from beambert.trainers.optimization.optimizer_options import CLIPPING
from beambert.trainers.optimization.update_rules import OPTIMIZERS


def add_optimizer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the optimizer and of the learning-rate schedule."""
    group = parser.add_argument_group("optimizer")

    def add(name: str, help: str, **options: object) -> None:
        group.add_argument(name, help=help, **options)  # type: ignore[arg-type]

    summaries = " ".join(f"{rule.summary}: {name}." for name, rule in OPTIMIZERS.items())
    add(
        "--optimizer",
        f"Optimizer (default: %(default)s). {summaries}",
        choices=tuple(OPTIMIZERS),
        default=RunConfig.optimizer,
    )
    add(
        "--weight_decay",
        "Decoupled weight decay, not applied to biases and layer normalization (default: %(default)s)",
        type=Number(0.0, math.inf),
        default=RunConfig.weight_decay,
        metavar="RATE",
    )
    add(
        "--adam_beta1",
        "Decay rate of the first moment estimates (default: %(default)s)",
        type=Number(0.0, 1.0),
        default=RunConfig.adam_beta1,
        metavar="RATE",
    )
    add(
        "--adam_beta2",
        "Decay rate of the second moment estimates; 0.98 is common with large batches (default: %(default)s)",
        type=Number(0.0, 1.0),
        default=RunConfig.adam_beta2,
        metavar="RATE",
    )
    add(
        "--adam_epsilon",
        "Constant added to the denominator for numerical stability (default: %(default)s)",
        type=Number(0.0, math.inf, least_too=False),
        default=RunConfig.adam_epsilon,
        metavar="EPSILON",
    )
    add(
        "--clip_norm",
        "Maximum global gradient norm; 0 disables clipping (default: %(default)s)",
        type=Number(0.0, math.inf),
        default=RunConfig.clip_norm,
        metavar="NORM",
    )
    add(
        "--clip",
        "Gradient clipping: global, of the gradient of the whole batch; per_shard, of each device's gradient before "
        "the sum, as in the released code on TPUs (default: %(default)s)",
        choices=CLIPPING,
        default=RunConfig.clip,
    )
    add(
        "--layerwise_lr_decay",
        "Learning-rate decay per encoder layer, from the last layer down to the embeddings; heads and pooler keep the "
        "full rate; typical in fine-tuning: 0.8 to 0.95 (default: 1, no decay)",
        type=Number(0.0, 1.0, least_too=False, most_too=True),
        default=RunConfig.layerwise_lr_decay,
        metavar="FACTOR",
    )
    add(
        "--lr_multiplier",
        "Learning-rate multiplier for variables whose TF1 name matches a regular expression; bert/embeddings/=0 "
        "freezes the embeddings; repeatable, and the first match applies",
        type=_lr_multiplier,
        action="append",
        default=[],
        metavar="REGEX=FACTOR",
    )
    _add_schedule_arguments(group)


def _add_schedule_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--lr_schedule",
        choices=LR_SCHEDULES,
        default=RunConfig.lr_schedule,
        help="Learning rate after warm-up: linear, decay to 0 as in the released BERT; cosine; constant; wsd, "
        "warmup-stable-decay: constant, then a 1-sqrt decay to 0 in the last steps (default: %(default)s)",
    )
    group.add_argument(
        "--lr_decay_power",
        type=Number(0.0, math.inf, least_too=False),
        default=RunConfig.lr_decay_power,
        metavar="POWER",
        help="Power of the polynomial decay of --lr_schedule linear; 1 is linear, lower values decay later "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--lr_decay_fraction",
        type=Number(0.0, 1.0, least_too=False, most_too=True),
        default=RunConfig.lr_decay_fraction,
        metavar="FRACTION",
        help="Fraction of the steps in the decay of --lr_schedule wsd (default: %(default)s)",
    )
    group.add_argument(
        "--lr_min_fraction",
        type=Number(0.0, 1.0, most_too=True),
        default=RunConfig.lr_min_fraction,
        metavar="FRACTION",
        help="Final learning rate of --lr_schedule cosine, as a fraction of the peak (default: %(default)s)",
    )


_factor = Number(0.0, math.inf)


def _lr_multiplier(text: str) -> tuple[str, float]:
    pattern, equals, factor = text.rpartition("=")
    if not pattern or not equals:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not REGEX=FACTOR, such as bert/embeddings/=0.5")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{shortened(pattern)} is not a valid regular expression: {error}") from None
    return pattern, _factor(factor)
