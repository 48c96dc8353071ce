"""The optimizer of the released BERT (`optimization.py` of google-research/bert), on plain variables.

Adam without bias correction, decoupled weight decay, clipping by the global norm, linear warm-up and decay.
"""

import re
from collections.abc import Mapping, Sequence

import tensorflow as tf

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-6
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0

_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")


def is_decayed(name: str) -> bool:
    """Whether weight decay applies to the variable of that TF1 name: not to layer normalisation, not to biases."""
    return _NOT_DECAYED.search(name) is None


def learning_rate_at(step: tf.Tensor, peak: float, num_train_steps: int, num_warmup_steps: int) -> tf.Tensor:
    """The learning rate of one step: linear warm-up, then linear decay to 0.

    As in the released code, step 0 of a run with warm-up has rate 0, and the decay is counted from step 0, not from
    the end of warm-up: at step num_warmup_steps the rate drops from about `peak` to
    peak * (1 - num_warmup_steps / num_train_steps).

    Args:
        step: int scalar, number of updates made so far.
        peak: the rate that warm-up climbs to.
        num_train_steps: the step at which the rate reaches 0; it stays there.
        num_warmup_steps: steps of warm-up, 0 for none.

    Returns:
        float32 scalar.
    """
    done = tf.cast(tf.minimum(tf.cast(step, tf.int64), num_train_steps), tf.float32)
    decayed = peak * (1.0 - done / num_train_steps)
    if num_warmup_steps == 0:
        return decayed
    return tf.where(done < num_warmup_steps, peak * done / num_warmup_steps, decayed)


class AdamWeightDecay:
    """BERT's Adam: no bias correction, epsilon outside the root, weight decay beside the gradient.

    For a variable w with clipped gradient g: m = 0.9 m + 0.1 g; v = 0.999 v + 0.001 g^2;
    w -= rate * (m / (sqrt(v) + 1e-6) + 0.01 w), the last term where `is_decayed`.

    Args:
        variables: trained variables by TF1 name.

    Attributes:
        variables: the same.
        slots: float32 variables by TF1 name: `<name>/adam_m` and `<name>/adam_v`, zeros at first.
    """

    def __init__(self, variables: Mapping[str, tf.Variable]) -> None:
        self.variables = dict(variables)
        self.slots = {
            f"{name}/{slot}": tf.Variable(tf.zeros(variable.shape, tf.float32), trainable=False)
            for name, variable in self.variables.items()
            for slot in ("adam_m", "adam_v")
        }

    def apply(self, gradients: Sequence[tf.Tensor | tf.IndexedSlices | None], learning_rate: tf.Tensor) -> tf.Tensor:
        """Makes one update.

        Args:
            gradients: one a variable, in the order of `variables`; None for a variable that the loss does not depend
                on, which stays as it is, weight decay included, as in the released code.
            learning_rate: float32 scalar.

        Returns:
            float32 scalar, the global norm of the gradients before clipping.
        """
        dense = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
        clipped, norm = tf.clip_by_global_norm(dense, CLIP_NORM)
        for (name, variable), gradient in zip(self.variables.items(), clipped, strict=True):
            if gradient is None:
                continue
            m, v = self.slots[f"{name}/adam_m"], self.slots[f"{name}/adam_v"]
            next_m = m.assign(BETA_1 * m + (1.0 - BETA_1) * gradient)
            next_v = v.assign(BETA_2 * v + (1.0 - BETA_2) * tf.square(gradient))
            update = next_m / (tf.sqrt(next_v) + EPSILON)
            if is_decayed(name):
                update += WEIGHT_DECAY * variable
            variable.assign_sub(learning_rate * update)
        return norm
