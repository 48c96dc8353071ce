"""Deterministic variables, gradients and learning rates for tests of optimizers. They require only NumPy."""

import numpy as np

STEPS = 20
WARMUP_STEPS = 5
PEAK_RATE = 1e-2
# The last variable never has a gradient.
SHAPES = {
    "bert/embeddings/word_embeddings": (5, 3),
    "bert/embeddings/LayerNorm/gamma": (3,),
    "bert/encoder/layer_0/output/dense/kernel": (3, 4),
    "bert/encoder/layer_0/output/dense/bias": (4,),
    "bert/encoder/layer_1/output/dense/kernel": (4, 3),
    "cls/predictions/output_bias": (5,),
    "bert/pooler/dense/kernel": (3, 3),
}
UNUSED = "bert/pooler/dense/kernel"
DECAYED = (
    "bert/embeddings/word_embeddings",
    "bert/encoder/layer_0/output/dense/kernel",
    "bert/encoder/layer_1/output/dense/kernel",
)


def initial_weights() -> dict[str, np.ndarray]:
    """Return the variables by name, float32 from -1 to 1; the output bias is zero, as in a new model."""
    weights = {name: _wave(shape, index) for index, (name, shape) in enumerate(SHAPES.items())}
    weights["cls/predictions/output_bias"][:] = 0.0
    return weights


def gradients(step: int) -> dict[str, np.ndarray]:
    """Return the gradients of a step by name, float32, without the unused variable.

    The global norm is below 1 in every third step and above 1 in the others.
    """
    scale = 0.01 if step % 3 == 0 else 3.0
    return {
        name: np.float32(scale) * _wave(shape, 100 * (step + 1) + index)
        for index, (name, shape) in enumerate(SHAPES.items())
        if name != UNUSED
    }


def rates() -> list[float]:
    """Return the learning rate of each step.

    Warm-up is linear from 0. Later rates are on the line from the peak at step 0 to 0 at `STEPS`.
    """
    return [PEAK_RATE * (step / WARMUP_STEPS if step < WARMUP_STEPS else 1.0 - step / STEPS) for step in range(STEPS)]


def _wave(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.sin(1.7 * np.arange(np.prod(shape)) + 0.61 * seed + 0.3).reshape(shape).astype(np.float32)
