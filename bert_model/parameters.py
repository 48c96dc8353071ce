"""Parameter layers that several modules share, with BERT's initializers."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
from keras import ops

from beambert.bert_model.config import BertConfig

_zero_initialization: ContextVar[bool] = ContextVar("_zero_initialization", default=False)
_seeds: ContextVar[random.Random | None] = ContextVar("_seeds", default=None)
# Largest seed that Keras draws for an initializer without one.
_LARGEST_SEED = 10**9


@contextmanager
def zero_initialization() -> Iterator[None]:
    """Initialize weight matrices with zeros in the body, to save time where a checkpoint replaces them."""
    token = _zero_initialization.set(True)
    try:
        yield
    finally:
        _zero_initialization.reset(token)


@contextmanager
def seeded_initialization(seed: int) -> Iterator[None]:
    """Initialize weights from a seed in the body, independently of other threads.

    The weights are those of `keras.utils.set_random_seed(seed)`. After that, however, Keras draws the seed of each
    initializer from the generator of the module `random`, which threads share: an upload to a bucket draws from it too.
    """
    token = _seeds.set(random.Random(seed))  # noqa: S311
    try:
        yield
    finally:
        _seeds.reset(token)


def initializer_seed() -> int | None:
    """Return the seed of a new initializer; None outside of `seeded_initialization`, where Keras draws one."""
    generator = _seeds.get()
    return None if generator is None else generator.randint(1, _LARGEST_SEED)


def truncated_normal(config: BertConfig) -> keras.initializers.Initializer:
    """Return the initializer of all weight matrices: a normal distribution truncated at two standard deviations."""
    if _zero_initialization.get():
        return keras.initializers.Zeros()
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range, seed=initializer_seed())


class Dense(keras.layers.Dense):
    """Keras's layer, for each backend as it runs fastest.

    Under TensorFlow the product is of two matrices, which it fuses with bias and activation on a CPU. Under JAX the
    gradient of the bias is summed in float32 (`jax_gradients.py`).
    """

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Return float [..., units]; inputs are float [..., input_size]."""
        if keras.backend.backend() == "jax":
            from beambert.bert_model.jax_gradients import add_bias

            return self.activation(add_bias(ops.matmul(inputs, self.kernel), self.bias.value))
        if keras.backend.backend() != "tensorflow" or len(inputs.shape) <= 2:
            return super().call(inputs, training)
        *leading, size = ops.shape(inputs)
        outputs = super().call(ops.reshape(inputs, (-1, size)), training)
        return ops.reshape(outputs, (*leading, self.units))


def dense(
    units: int, input_size: int, config: BertConfig, name: str, activation: Callable[[Any], Any] | None = None
) -> Dense:
    """Return a built dense layer: kernel [input_size, units], bias [units]."""
    layer = Dense(units, activation, kernel_initializer=truncated_normal(config), name=name)
    layer.build((None, input_size))
    return layer


class LayerNormalization(keras.layers.LayerNormalization):
    """Keras's layer, with a faster gradient under JAX (`jax_gradients.py`)."""

    def call(self, inputs: Any) -> Any:
        """Return the normalized inputs, float32 [..., H]; inputs are float [..., H]."""
        if keras.backend.backend() != "jax":
            return super().call(inputs)
        from beambert.bert_model.jax_gradients import layer_normalization

        return layer_normalization(ops.cast(inputs, "float32"), self.gamma.value, self.beta.value, self.epsilon)


def layer_norm(config: BertConfig) -> LayerNormalization:
    """Return a built layer normalization over the hidden size, in float32 under every policy: gamma [H], beta [H]."""
    layer = LayerNormalization(epsilon=config.layer_norm_eps, dtype="float32", name="LayerNorm")
    layer.build((None, config.hidden_size))
    return layer
