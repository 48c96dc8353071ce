"""Optimizer options, and the weight decay and learning rates that follow from variable names.

Names are those of TF1 checkpoints, such as `bert/encoder/layer_0/output/dense/kernel`. This file does not import
TensorFlow.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainers.errors import TrainingError

OPTIMIZERS = ("bert_adam", "adamw", "lamb")
CLIPPING = ("global", "per_shard")

# The list of `create_optimizer` in optimization.py of google-research/bert, searched for anywhere in a name.
_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")
_LAYER = re.compile(r"^bert/encoder/layer_(\d+)/")
_EMBEDDINGS = "bert/embeddings/"


@dataclass(frozen=True)
class OptimizerOptions:
    """The optimizer and its constants; the defaults are those of the released BERT.

    Attributes:
        name: one of `OPTIMIZERS`, which `optimization.py` describes.
        weight_decay: share of a weight taken off in an update at rate 1, where `is_decayed`.
        beta_1: what the mean of gradients keeps of itself in an update, from 0 to below 1.
        beta_2: the same for the mean of squared gradients.
        epsilon: added to the root of the mean of squares.
        clip_norm: longest global norm of the gradients; None or 0 for any.
        clip: "global", the gradients of the whole batch are clipped, or "per_shard", each replica's before they are
            added up, as the released code does on TPUs.
        layerwise_lr_decay: factor of the rate from each layer to the one below it, as in `rate_factors`.
        lr_multipliers: pairs of a regular expression and the factor of the rate for variables it is found in.
    """

    name: str = "bert_adam"
    weight_decay: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    clip_norm: float | None = 1.0
    clip: str = "global"
    layerwise_lr_decay: float = 1.0
    lr_multipliers: tuple[tuple[str, float], ...] = ()


def is_decayed(name: str) -> bool:
    """Return whether weight decay applies to a variable: not to layer normalization, not to biases."""
    return _NOT_DECAYED.search(name) is None


def rate_factors(names: Sequence[str], options: OptimizerOptions) -> dict[str, float]:
    """Return the learning-rate multiplier of each variable: a factor of its layer times one of its name.

    With d = layerwise_lr_decay and L encoder layers, numbered from 0, layer l has d ** (L - l). The embeddings, below
    layer 0, have d ** (L + 1), and everything above the layers (pooler and heads) has 1. The output matrix of the
    masked-LM head is the word embedding and counts as that.

    Of lr_multipliers the first whose expression is found in the name (`re.search`) gives the second factor; 1 if
    none is. A factor of 0 freezes a variable, weight decay included.

    Args:
        names: TF1 names of all trained variables.
        options: layerwise_lr_decay and lr_multipliers are read.

    Returns:
        Factor by name, in the order of `names`.

    Raises:
        TrainingError: an expression is found in no name: it is misspelled, or stands after one that is found first
            wherever it is.
    """
    layers = {name: int(match[1]) for name in names if (match := _LAYER.match(name))}
    layer_count = max(layers.values(), default=-1) + 1
    multipliers = [(re.compile(pattern), factor) for pattern, factor in options.lr_multipliers]
    used = set()
    factors = {}
    for name in names:
        depth = layer_count + 1 if name.startswith(_EMBEDDINGS) else layer_count - layers.get(name, layer_count)
        factors[name] = options.layerwise_lr_decay**depth
        for pattern, factor in multipliers:
            if pattern.search(name):
                factors[name] *= factor
                used.add(pattern)
                break
    for pattern, _ in multipliers:
        if pattern not in used:
            raise TrainingError(
                f"--lr_multiplier {pattern.pattern} changes the rate of no variable; names look like {names[0]}, and "
                "the first expression found in a name counts"
            )
    return factors
