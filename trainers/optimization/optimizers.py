"""Implement the optimizers on plain variables: BERT's Adam, AdamW and LAMB; learning-rate schedule and clipping.

For a variable w with clipped gradient g and learning rate r, all three have two elementwise slots. `<variable>/adam_m`
is m = b1 m + (1 - b1) g, `<variable>/adam_v` is v = b2 v + (1 - b2) g^2. Then, with weight decay d where `is_decayed`
and 0 elsewhere:

bert_adam  w -= r (m / (sqrt(v) + e) + d w)
           `optimization.py` of google-research/bert: no bias correction, epsilon outside the root.
adamw      w -= r (m' / (sqrt(v') + e) + d w), with m' = m / (1 - b1^t), v' = v / (1 - b2^t) in the t-th step
           Loshchilov and Hutter 2019, algorithm 2.
lamb       u = m' / (sqrt(v') + e) + d w;  w -= r u |w| / |u|
           You et al. 2020, algorithm 2, with the identity for phi. The trust ratio |w| / |u| is 1 where a norm is 0,
           and for variables without weight decay, as in the authors' implementation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_model.vocabulary_padding import without_padding
from trainers.optimization.optimizer_options import OptimizerOptions, is_decayed, rate_factors

# Calls function(variable, *arguments), on each device with that device's copy of the variable.
UpdateEach = Callable[[tf.Variable, Callable[..., Any], tuple[Any, ...]], Any]


def learning_rate_at(
    step: tf.Tensor, peak: float, num_train_steps: int, num_warmup_steps: int, power: float = 1.0
) -> tf.Tensor:
    """Return the learning rate of a step: linear warm-up from 0, then polynomial decay to 0.

    As in the released code, step 0 of a run with warm-up has rate 0, and the decay starts at step 0, not after warm-up.
    At step num_warmup_steps the rate drops from about `peak` to peak * (1 - num_warmup_steps / num_train_steps) **
    power.

    Args:
        step: int scalar, number of completed steps.
        peak: peak learning rate.
        num_train_steps: step from which the rate is 0.
        num_warmup_steps: number of warm-up steps; 0 for none.
        power: power of the decay, which is `tf.compat.v1.train.polynomial_decay` to 0 without cycles. 1 is linear;
            lower powers decay later, higher powers earlier.

    Returns:
        float32 scalar.
    """
    done = tf.cast(tf.minimum(tf.cast(step, tf.int64), num_train_steps), tf.float32)
    decayed = peak * tf.pow(1.0 - done / num_train_steps, power)
    if num_warmup_steps == 0:
        return decayed
    return tf.where(done < num_warmup_steps, peak * done / num_warmup_steps, decayed)


def clip_by_global_norm(
    gradients: Sequence[tf.Tensor | None], clip_norm: float | None
) -> tuple[list[tf.Tensor | None], tf.Tensor]:
    """Scale gradients down to a maximum global norm.

    Args:
        gradients: dense gradients; None for a variable that the loss does not depend on.
        clip_norm: maximum global norm; None or 0 disables clipping.

    Returns:
        The gradients, scaled by a common factor of at most 1, and their norm before clipping, a float32 scalar. With a
        non-finite norm, all clipped gradients are NaN.
    """
    if not clip_norm:
        return list(gradients), tf.linalg.global_norm(gradients)
    return tf.clip_by_global_norm(gradients, clip_norm)


class Optimizer:
    """An optimizer with its slots.

    Args:
        variables: trained float32 variables by TF1 name.
        options: name of the optimizer, and its hyperparameters.
        vocab_size: vocabulary size if variables are padded beyond it (`vocabulary_padding.py`); padding rows are
            excluded from the norms of LAMB. None without padding.

    Attributes:
        variables: the variables by TF1 name.
        slots: float32 variables by name, `<variable>/adam_m` and `<variable>/adam_v`, initially zero. They are created
            in the current scope, so under a strategy they are placed with the variables.

    Raises:
        TrainingError: an expression in lr_multipliers matches no variable.
    """

    def __init__(
        self, variables: Mapping[str, tf.Variable], options: OptimizerOptions, vocab_size: int | None = None
    ) -> None:
        self.variables = dict(variables)
        self.options = options
        self.vocab_size = vocab_size
        self.slots = {
            f"{name}/{slot}": tf.Variable(tf.zeros(variable.shape, tf.float32), trainable=False)
            for name, variable in self.variables.items()
            for slot in ("adam_m", "adam_v")
        }
        self._rate_factors = rate_factors(list(self.variables), options)

    def apply(
        self,
        gradients: Sequence[tf.Tensor | None],
        rate: tf.Tensor,
        step: tf.Tensor,
        finite: tf.Tensor | None = None,
        update_each: UpdateEach = lambda variable, function, arguments: function(variable, *arguments),
    ) -> None:
        """Apply the gradients of a step.

        Tensors are passed to update_each unchanged, so they may be per-replica values.

        Args:
            gradients: clipped dense float32 gradients in the order of `variables`; None for a variable that the loss
                does not depend on, which stays unchanged, without weight decay, as in the released code.
            rate: float32 scalar, learning rate.
            step: int scalar, number of earlier steps, including skipped ones.
            finite: bool scalar; if false, variables and slots stay unchanged. None for true.
            update_each: calls a function on each device with that device's copy of a variable and of the arguments, as
                `extended.update` of `tf.distribute` does.
        """
        for (name, variable), gradient in zip(self.variables.items(), gradients, strict=True):
            if gradient is not None:
                m, v = self.slots[f"{name}/adam_m"], self.slots[f"{name}/adam_v"]
                update_each(variable, self._update_of(name), (m, v, gradient, rate, step, finite))

    def _update_of(self, name: str) -> Callable[..., None]:
        """Return the update of one variable as a function of (variable, m, v, gradient, rate, step, finite)."""

        def update(
            variable: tf.Variable,
            m: tf.Variable,
            v: tf.Variable,
            gradient: tf.Tensor,
            rate: tf.Tensor,
            step: tf.Tensor,
            finite: tf.Tensor | None,
        ) -> None:
            def make() -> tf.Tensor:
                formula = self._lamb if self.options.name == "lamb" else self._adam
                formula(name, variable, m, v, gradient, rate * self._rate_factors[name], step)
                return tf.constant(True)

            if finite is None:
                make()
            else:
                tf.cond(finite, make, lambda: tf.constant(False))

        return update

    def _adam(
        self,
        name: str,
        variable: tf.Variable,
        m: tf.Variable,
        v: tf.Variable,
        gradient: tf.Tensor,
        rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        """Apply bert_adam or adamw with TensorFlow's fused Adam operation.

        On a CPU without XLA it takes less than half the time of separate operations, since every value is read once.

        The fused operation subtracts lr * sqrt(1 - beta2_power) / (1 - beta1_power) * m / (sqrt(v) + epsilon) from a
        variable. Powers of 0 therefore disable the bias correction, and adamw needs epsilon times sqrt(1 - b2^t). The
        operation computes 1 - beta_2 in float32, so that for 0.999 v is too small by a relative 1.3e-5.
        """
        options = self.options
        if options.weight_decay and is_decayed(name):
            variable.assign(variable * (1.0 - rate * options.weight_decay))
        beta_1_power = beta_2_power = tf.constant(0.0)
        epsilon = tf.constant(options.epsilon)
        if options.name == "adamw":
            beta_1_power, beta_2_power = self._powers(step)
            epsilon *= tf.sqrt(1.0 - beta_2_power)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=beta_1_power,
            beta2_power=beta_2_power,
            lr=rate,
            beta1=options.beta_1,
            beta2=options.beta_2,
            epsilon=epsilon,
            grad=gradient,
        )

    def _lamb(
        self,
        name: str,
        variable: tf.Variable,
        m: tf.Variable,
        v: tf.Variable,
        gradient: tf.Tensor,
        rate: tf.Tensor,
        step: tf.Tensor,
    ) -> None:
        options = self.options
        beta_1_power, beta_2_power = self._powers(step)
        next_m = m.assign(options.beta_1 * m + (1.0 - options.beta_1) * gradient)
        next_v = v.assign(options.beta_2 * v + (1.0 - options.beta_2) * tf.square(gradient))
        update = next_m / (1.0 - beta_1_power) / (tf.sqrt(next_v / (1.0 - beta_2_power)) + options.epsilon)
        if is_decayed(name):
            update += options.weight_decay * variable
            weight_norm = tf.norm(without_padding(name, variable, self.vocab_size))
            update_norm = tf.norm(without_padding(name, update, self.vocab_size))
            rate *= tf.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
        variable.assign_sub(rate * update)

    def _powers(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return b1^t and b2^t for t = step + 1."""
        t = tf.cast(step, tf.float32) + 1.0
        return tf.pow(self.options.beta_1, t), tf.pow(self.options.beta_2, t)
