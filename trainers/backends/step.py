"""A training step, the same for every backend: gradients, their sums over replicas, clipping and metric sums.

A backend passes in the gradients of a replica and the sums over replicas, and applies the result to its variables.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from keras import ops

from beambert.trainers.objective import NOT_FINITE, Features, Objective, Sums, Tensor
from beambert.trainers.optimization.optimizers import clip_factor, global_norm
from beambert.trainers.options import TrainingOptions

# Gradients of trained variables by TF1 name, without variables that the loss does not depend on.
Gradients = dict[str, Tensor]


class Replicas(Protocol):
    """The sums over the replicas of a step.

    Attributes:
        count: number of replicas.
        share: share of a value of the whole step in the metric sums of a replica: 1 where `sum_gradients` sums them
            over the replicas, 1 / count where the backend does so after the step.
    """

    count: int
    share: float

    def sum(self, values: Any) -> Any:
        """Return the sums of a structure of tensors over all replicas."""

    def sum_gradients(self, gradients: Gradients, loss: Tensor, sums: Sums) -> tuple[Gradients, Tensor, Sums]:
        """Return the sums of gradients and loss over all replicas, and the metric sums, see `share`."""

    def norm(self, gradients: Gradients) -> Tensor:
        """Return the norm of the gradients that `sum_gradients` returned, float32 scalar."""


class StepUpdate(NamedTuple):
    """The result of a step, before the variables change.

    Attributes:
        gradients: sums of the gradients over the replicas.
        factor: factor of the gradients that clips them, float32 scalar.
        rate: learning rate, float32 scalar.
        is_finite: whether loss and gradients are finite, bool scalar.
        sums: metric sums with loss, gradient_norm, learning_rate and not_finite.
    """

    gradients: Gradients
    factor: Tensor
    rate: Tensor
    is_finite: Tensor
    sums: Sums


def compute_update(
    objective: Objective,
    config: TrainingOptions,
    features: Features,
    step: Tensor,
    gradients_of: Callable[[Features, Mapping[str, Tensor]], tuple[Tensor, Sums, Gradients]],
    replicas: Replicas,
) -> StepUpdate:
    """Compute a step; call on every replica.

    Args:
        objective: the objective.
        config: options of the steps.
        features: this replica's part of the batch, [batch_size / replicas, ...].
        step: int scalar, number of earlier steps.
        gradients_of: function of features and the denominators of the loss terms; returns loss, metric sums and
            gradients of the replica.
        replicas: the sums over replicas.
    """
    clip_norm, clips_parts = config.clip_norm, config.clip == "per_shard"
    denominators = objective.weights(features)
    if not clips_parts:
        # Loss terms are divided by the weight of the whole batch, so that the step does not depend on how the batch and
        # its masked tokens are distributed over replicas.
        denominators = replicas.sum(denominators)
    loss, sums, gradients = gradients_of(features, denominators)
    if clips_parts and clip_norm:
        factor = clip_factor(global_norm(list(gradients.values())), clip_norm)
        gradients = {name: gradient * factor for name, gradient in gradients.items()}
    gradients, loss, sums = replicas.sum_gradients(gradients, loss, sums)
    norm = replicas.norm(gradients)
    factor = ops.convert_to_tensor(1.0, "float32")
    if clips_parts:
        loss = loss / replicas.count
    elif clip_norm:
        factor = clip_factor(norm, clip_norm)
    rate = config.rate_at(ops.cast(step, "float32"), ops)
    sums, is_finite = _add_step_metrics(sums, loss, norm, rate, config.on_nonfinite == "skip", replicas.share)
    return StepUpdate(gradients, factor, rate, is_finite, sums)


def _add_step_metrics(
    sums: Sums, loss: Tensor, gradient_norm: Tensor, learning_rate: Tensor, skip_nonfinite: bool, share: float
) -> tuple[Sums, Tensor]:
    """Return metric sums with loss, gradient_norm, learning_rate and not_finite, and whether the step is finite.

    Args:
        sums: metric sums of a replica.
        loss, gradient_norm, learning_rate: float32 scalars of the step, equal on all replicas.
        skip_nonfinite: whether a non-finite step is skipped; its values would make every mean non-finite.
        share: as in `Replicas`.
    """
    is_finite = ops.logical_and(ops.isfinite(loss), ops.isfinite(gradient_norm))
    step_values = {"loss": loss, "gradient_norm": gradient_norm, "learning_rate": learning_rate}
    one = ops.convert_to_tensor(share, "float32")
    count = one
    if skip_nonfinite:
        sums = {name: (ops.where(is_finite, n, 0.0), ops.where(is_finite, d, 0.0)) for name, (n, d) in sums.items()}
        step_values = {name: ops.where(is_finite, value, 0.0) for name, value in step_values.items()}
        count = ops.where(is_finite, one, 0.0)
    skipped = one * ops.cast(ops.logical_not(is_finite), "float32")
    step_sums = {name: (value * one, count) for name, value in step_values.items()}
    return {**step_sums, **sums, NOT_FINITE: (skipped, one)}, is_finite
