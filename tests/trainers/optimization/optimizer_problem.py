"""Variables and gradients that optimizers are tried on, the same wherever they are computed. NumPy alone is needed."""

import numpy as np

STEPS = 20
WARMUP_STEPS = 5
PEAK_RATE = 1e-2
# The last is never given a gradient.
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
    """float32, from -1 to 1; the output bias is all zeros, as in a new model."""
    weights = {name: _wave(shape, index) for index, (name, shape) in enumerate(SHAPES.items())}
    weights["cls/predictions/output_bias"][:] = 0.0
    return weights


def gradients(step: int) -> dict[str, np.ndarray]:
    """float32, of all variables but the unused one: of global norm below 1 in every third step, else above."""
    scale = 0.01 if step % 3 == 0 else 3.0
    return {
        name: np.float32(scale) * _wave(shape, 100 * (step + 1) + index)
        for index, (name, shape) in enumerate(SHAPES.items())
        if name != UNUSED
    }


def rates() -> list[float]:
    """Of each step: 0 at first, up in a line, then where a line from the peak at step 0 to 0 at the last would be."""
    return [PEAK_RATE * (step / WARMUP_STEPS if step < WARMUP_STEPS else 1.0 - step / STEPS) for step in range(STEPS)]


def _wave(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.sin(1.7 * np.arange(np.prod(shape)) + 0.61 * seed + 0.3).reshape(shape).astype(np.float32)
