"""The flags of the optimizer, which pretraining and fine-tuning share. This file does not import TensorFlow."""

import argparse
import math
import re

from beambert_common.command_line.flags import number, shortened
from trainers.config.run_config import RunConfig
from trainers.optimization.optimizer_options import CLIPPING, OPTIMIZERS


def add_optimizer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the optimizer and of the learning rate's decay."""
    group = parser.add_argument_group("optimizer")

    def add(name: str, help: str, **options: object) -> None:
        group.add_argument(name, help=help, **options)  # type: ignore[arg-type]

    add(
        "--optimizer",
        "bert_adam is the released BERT's: Adam without bias correction, with decoupled weight decay. adamw corrects "
        "the bias, so that the first updates are not several times too long, and needs less warm-up. lamb scales each "
        "matrix's update to the matrix, for batches of thousands of sequences; its learning rates are some ten times "
        "higher (default: %(default)s)",
        choices=OPTIMIZERS,
        default=RunConfig.optimizer,
    )
    add(
        "--weight_decay",
        "share of every weight but biases and layer normalisation taken off in an update, times the learning rate "
        "(default: %(default)s)",
        type=number(0.0, math.inf),
        default=RunConfig.weight_decay,
        metavar="SHARE",
    )
    add(
        "--adam_beta1",
        "how much the running mean of gradients keeps of itself in an update (default: %(default)s)",
        type=number(0.0, 1.0),
        default=RunConfig.adam_beta1,
        metavar="SHARE",
    )
    add(
        "--adam_beta2",
        "the same for the running mean of squared gradients; 0.98 is common with large batches (default: %(default)s)",
        type=number(0.0, 1.0),
        default=RunConfig.adam_beta2,
        metavar="SHARE",
    )
    add(
        "--adam_epsilon",
        "added to the root of the mean of squares, so that small gradients make small updates (default: %(default)s)",
        type=number(0.0, math.inf, least_too=False),
        default=RunConfig.adam_epsilon,
        metavar="NUMBER",
    )
    add(
        "--clip_norm",
        "the gradients of all variables, taken as one vector, are shortened to this length; 0 leaves them "
        "(default: %(default)s)",
        type=number(0.0, math.inf),
        default=RunConfig.clip_norm,
        metavar="LENGTH",
    )
    add(
        "--clip",
        "clip the gradient of the whole batch, which does not depend on the number of devices, or each device's part "
        "before the parts are added up, as the released code does on TPUs (default: %(default)s)",
        choices=CLIPPING,
        default=RunConfig.clip,
    )
    add(
        "--layerwise_lr_decay",
        "factor of the learning rate from each encoder layer to the one below it: the heads and the pooler have the "
        "full rate, the last layer this share of it, the embeddings the least; 0.8 to 0.95 in fine-tuning "
        "(default: 1, the same rate everywhere)",
        type=number(0.0, 1.0, least_too=False, most_too=True),
        default=RunConfig.layerwise_lr_decay,
        metavar="FACTOR",
    )
    add(
        "--lr_multiplier",
        "multiply the learning rate of the variables whose names in a TF1 checkpoint hold the regular expression, for "
        "instance bert/embeddings/=0 to freeze the embeddings; may be given several times, and the first that fits a "
        "variable counts",
        type=_lr_multiplier,
        action="append",
        default=[],
        metavar="REGEX=FACTOR",
    )
    add(
        "--lr_decay_power",
        "after warm-up the learning rate is its peak times (1 - step / num_train_steps) to this power: 1 is a line, "
        "0.5 stays high for longer (default: %(default)s)",
        type=number(0.0, math.inf, least_too=False),
        default=RunConfig.lr_decay_power,
        metavar="POWER",
    )


_factor = number(0.0, math.inf)


def _lr_multiplier(text: str) -> tuple[str, float]:
    pattern, equals, factor = text.rpartition("=")
    if not pattern or not equals:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not REGEX=FACTOR, such as bert/embeddings/=0.5")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{shortened(pattern)} is not a regular expression: {error}") from None
    return pattern, _factor(factor)
