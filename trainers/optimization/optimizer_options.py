"""Define optimizer options, and derive weight decay and learning-rate factors from variable names.

Names are those of TF1 checkpoints, such as `bert/encoder/layer_0/output/dense/kernel`. This file does not import
TensorFlow.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from beambert.trainers.errors import TrainingError

CLIPPING = ("global", "per_shard")

# The exclusions of `create_optimizer` in optimization.py of google-research/bert, matched anywhere in a name.
_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")
_LAYER = re.compile(r"^bert/encoder/layer_(\d+)/")
_EMBEDDINGS = "bert/embeddings/"


@dataclass(frozen=True)
class OptimizerOptions:
    """The optimizer and its hyperparameters; the defaults are those of the released BERT.

    Attributes:
        name: one of `update_rules.OPTIMIZERS`.
        weight_decay: decoupled weight decay, for variables with `is_decayed`.
        beta_1: decay rate of the first moment estimates, from 0 to below 1.
        beta_2: decay rate of the second moment estimates, from 0 to below 1.
        epsilon: constant added to the denominator.
        clip_norm: maximum global gradient norm; None or 0 disables clipping.
        clip: "global" clips the gradient of the whole batch, "per_shard" that of each replica before the sum, as the
            released code does on TPUs.
        layerwise_lr_decay: learning-rate decay per layer, as in `rate_factors`.
        lr_multipliers: pairs of a regular expression and the learning-rate factor of matching variables.
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
    """Return whether weight decay applies to a variable, that is, not to layer normalization and biases."""
    return _NOT_DECAYED.search(name) is None


def rate_factors(names: Sequence[str], options: OptimizerOptions) -> dict[str, float]:
    """Return the learning-rate factor of each variable, the product of a layer factor and a name factor.

    With d = layerwise_lr_decay and L encoder layers, numbered from 0, the factor of layer l is d ** (L - l). The factor
    of the embeddings is d ** (L + 1), and that of pooler and heads is 1. The output matrix of the masked-LM head is the
    word embedding.

    The name factor is that of the first expression in lr_multipliers that matches the name (`re.search`), or 1. A
    factor of 0 freezes a variable, including weight decay.

    Args:
        names: TF1 names of all trained variables.
        options: options with layerwise_lr_decay and lr_multipliers.

    Returns:
        Factor by name, in the order of `names`.

    Raises:
        TrainingError: an expression matches no name, or only names that an earlier expression matches.
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
                f"invalid --lr_multiplier {pattern.pattern}: matches no variable, or only variables matched by an "
                f"earlier expression; variable names look like {names[0]}"
            )
    return factors
