"""The optimizers, one class each: the slots of a variable, and how a step changes them and the variable.

For a variable w with clipped gradient g and learning rate r, an optimizer updates the slots and returns a direction u.
Then w -= r (u + d w), with weight decay d where `is_decayed` and 0 elsewhere. Checkpoints, sharding and the memory of a
step follow from the declared slots, so that a class here and its entry in `OPTIMIZERS` are a new optimizer.

Keras is imported by the first step, so that the command line lists the optimizers without it.
"""
# ruff: noqa: ARG002, ARG003 (a rule ignores what it does not need)

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

OptimizerName = Literal["bert_adam", "adamw", "lamb", "muon"]
Tensor = Any
Slots = tuple[Tensor, ...]


class Hyperparameters(Protocol):
    """The hyperparameters of a rule; see `beambert.trainers.options.OptimizerOptions`."""

    @property
    def adam_beta1(self) -> float:
        """Return b1."""

    @property
    def adam_beta2(self) -> float:
        """Return b2."""

    @property
    def adam_epsilon(self) -> float:
        """Return e."""


class Slot(NamedTuple):
    """A value that an optimizer keeps for a variable, float32 of its shape.

    Attributes:
        name: last part of its name in checkpoints, `<variable>/<name>`.
        initial: initial value of every element.
    """

    name: str
    initial: float = 0.0


class VariablePart(Protocol):
    """The part of a variable that a device updates: the whole, or a slice where the slots are sharded."""

    def norm(self, values: Tensor) -> Tensor:
        """Return the Euclidean norm of the whole, without vocabulary padding, from the values of this part."""

    def on_whole(self, function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
        """Return this part of the result of a function of the whole, from the values of this part."""


@dataclass(frozen=True)
class UpdateRule(ABC):
    """The update of a variable.

    Attributes:
        slots: the slots.
        options: hyperparameters.
    """

    slots: ClassVar[tuple[Slot, ...]]
    options: Hyperparameters

    @classmethod
    def of_variable(cls, name: str, options: Hyperparameters) -> "UpdateRule":
        """Return the rule of a variable with a TF1 name; by default, that of all variables."""
        return cls(options)

    @abstractmethod
    def update(self, slots: Slots, gradient: Tensor, step: Tensor, part: VariablePart) -> tuple[Tensor, Slots]:
        """Return the direction of a step, float32 of the shape of the gradient, and the slots after it.

        Args:
            slots: the slots before the step, in the order of the declaration.
            gradient: clipped gradient, float32.
            step: int scalar, number of earlier steps.
            part: the part of the variable that slots and gradient have.
        """

    def last_direction(self, slots: Slots, step: Tensor, part: VariablePart) -> Tensor | None:
        """Return the direction of a step from the slots after it; None if it also depends on the gradient."""
        return None

    def trust_ratio(self, weight: Tensor, direction: Tensor, part: VariablePart) -> Tensor:
        """Return the factor of the learning rate of a variable with weight decay.

        Args:
            weight: the variable.
            direction: the direction, with weight decay.
            part: the part of the variable that both have.
        """
        return 1.0


@dataclass(frozen=True)
class BertAdam(UpdateRule):
    """u = m / (sqrt(v) + e), with m = b1 m + (1 - b1) g and v = b2 v + (1 - b2) g^2.

    `optimization.py` of google-research/bert: Adam without bias correction, epsilon outside the root.
    """

    slots = (Slot("adam_m"), Slot("adam_v"))

    def update(self, slots: Slots, gradient: Tensor, step: Tensor, part: VariablePart) -> tuple[Tensor, Slots]:
        """Return the direction and the new moment estimates."""
        from keras import ops

        m, v = slots
        m = self.options.adam_beta1 * m + (1.0 - self.options.adam_beta1) * gradient
        v = self.options.adam_beta2 * v + (1.0 - self.options.adam_beta2) * ops.square(gradient)
        return self.last_direction((m, v), step, part), (m, v)

    def last_direction(self, slots: Slots, step: Tensor, part: VariablePart) -> Tensor:
        """Return m / (sqrt(v) + e)."""
        from keras import ops

        m, v = slots
        return m / (ops.sqrt(v) + self.options.adam_epsilon)


@dataclass(frozen=True)
class AdamW(BertAdam):
    """u = m' / (sqrt(v') + e), with m' = m / (1 - b1^t) and v' = v / (1 - b2^t) in the t-th step.

    Loshchilov and Hutter 2019, algorithm 2.
    """

    def last_direction(self, slots: Slots, step: Tensor, part: VariablePart) -> Tensor:
        """Return m' / (sqrt(v') + e)."""
        from keras import ops

        t = ops.cast(step, "float32") + 1.0
        m, v = slots
        corrected_m = m / (1.0 - ops.power(self.options.adam_beta1, t))
        corrected_v = v / (1.0 - ops.power(self.options.adam_beta2, t))
        return corrected_m / (ops.sqrt(corrected_v) + self.options.adam_epsilon)


@dataclass(frozen=True)
class Lamb(AdamW):
    """AdamW's direction with weight decay, scaled by the trust ratio |w| / |u|.

    You et al. 2020, algorithm 2, with the identity for phi. The ratio is 1 where a norm is 0, and for variables without
    weight decay, as in the authors' implementation.
    """

    def trust_ratio(self, weight: Tensor, direction: Tensor, part: VariablePart) -> Tensor:
        """Return |w| / |u|."""
        from keras import ops

        weight_norm, direction_norm = part.norm(weight), part.norm(direction)
        positive = ops.logical_and(weight_norm > 0, direction_norm > 0)
        return ops.where(positive, weight_norm / direction_norm, 1.0)


@dataclass(frozen=True)
class Muon(UpdateRule):
    """u = 0.2 sqrt(max(rows, columns)) orthogonalized(m), with m = 0.95 m + g, for matrices of the Transformer layers.

    Jordan et al. 2024 ("Muon: An optimizer for hidden layers in neural networks"), with the scale of Liu et al. 2025
    ("Muon is Scalable for LLM Training", equation 4), for which AdamW's learning rates are right. All other variables
    have AdamW's rule.
    """

    slots = (Slot("momentum"),)

    MATRICES: ClassVar[re.Pattern[str]] = re.compile(r"bert/encoder/layer_\d+/.*kernel")
    MOMENTUM: ClassVar[float] = 0.95
    SCALE: ClassVar[float] = 0.2
    # The polynomial a x + b x^3 + c x^5 of a Newton-Schulz step, and the number of steps: singular values from 0 to 1
    # end near 1.
    COEFFICIENTS: ClassVar[tuple[float, float, float]] = (3.4445, -4.7750, 2.0315)
    STEPS: ClassVar[int] = 5

    @classmethod
    def of_variable(cls, name: str, options: Hyperparameters) -> UpdateRule:
        """Return this rule for a matrix of a Transformer layer, and AdamW's for other variables."""
        return cls(options) if cls.MATRICES.fullmatch(name) else AdamW(options)

    def update(self, slots: Slots, gradient: Tensor, step: Tensor, part: VariablePart) -> tuple[Tensor, Slots]:
        """Return the orthogonalized momentum, and the new momentum."""
        momentum = self.MOMENTUM * slots[0] + gradient
        return self.last_direction((momentum,), step, part), (momentum,)

    def last_direction(self, slots: Slots, step: Tensor, part: VariablePart) -> Tensor:
        """Return the orthogonalized momentum."""
        return part.on_whole(self._orthogonalized, slots[0])

    def _orthogonalized(self, momentum: Tensor) -> Tensor:
        """Return U V^T of the singular value decomposition U S V^T of a matrix, approximately and scaled."""
        from keras import ops

        a, b, c = self.COEFFICIENTS
        rows, columns = momentum.shape
        # The products are those of the shorter side.
        matrix = ops.transpose(momentum) if rows > columns else momentum
        matrix = matrix / (ops.sqrt(ops.sum(ops.square(matrix))) + 1e-7)
        for _ in range(self.STEPS):
            gram = ops.matmul(matrix, ops.transpose(matrix))
            matrix = a * matrix + ops.matmul(b * gram + c * ops.matmul(gram, gram), matrix)
        return self.SCALE * max(rows, columns) ** 0.5 * (ops.transpose(matrix) if rows > columns else matrix)


OPTIMIZERS: dict[OptimizerName, type[UpdateRule]] = {
    "bert_adam": BertAdam,
    "adamw": AdamW,
    "lamb": Lamb,
    "muon": Muon,
}


def initial_value(name: str) -> float:
    """Return the initial value of a slot `<variable>/<slot>`; 0 for any other name."""
    initial = {slot.name: slot.initial for rule in OPTIMIZERS.values() for slot in rule.slots}
    return initial.get(name.rpartition("/")[2], 0.0)
