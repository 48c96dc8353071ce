"""The building blocks of the model: initialization, dense layer, layer normalization and activations.

Letters in shapes: M input size, N units, H hidden size.
"""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras
from keras import ops

from beambert.bert_model.config import BertConfig
from beambert.bert_model.ops import dense, gelu, layer_normalization

Tensor = Any
Activation = Callable[[Tensor], Tensor]

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


class Dense(keras.layers.Layer):
    """A dense layer, activation(x W + b), with BERT's initializer.

    Args:
        config: configuration of the model.
        input_size: size of the inputs, M.
        units: size of the outputs, N.
        activation: function of the outputs; None for the identity.
    """

    def __init__(
        self, config: BertConfig, input_size: int, units: int, activation: Activation | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.activation = activation
        self.kernel = self.add_weight((input_size, units), truncated_normal(config), name="kernel")
        self.bias = self.add_weight((units,), "zeros", name="bias")
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        """Return float [..., N] for inputs float [..., M]."""
        return dense(inputs, self.kernel, self.bias, self.activation)


class LayerNormalization(keras.layers.Layer):
    """Layer normalization over the hidden size, in float32 under every policy (Ba et al. 2016).

    Args:
        config: configuration of the model.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(dtype="float32", autocast=False, **kwargs)
        self.epsilon = config.layer_norm_eps
        self.gamma = self.add_weight((config.hidden_size,), "ones", name="gamma", autocast=False)
        self.beta = self.add_weight((config.hidden_size,), "zeros", name="beta", autocast=False)
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        """Return the normalized inputs, float32 [..., H]; inputs are float [..., H]."""
        return layer_normalization(inputs, self.gamma, self.beta, self.epsilon)


def gelu_erf(inputs: Tensor) -> Tensor:
    """Return the exact GELU: x/2 * (1 + erf(x / sqrt(2)))."""
    return inputs * (0.5 * (1.0 + ops.erf(inputs * math.sqrt(0.5))))


def activation(config: BertConfig) -> Activation:
    """Return the activation function of `hidden_act`."""
    return {"gelu": gelu, "gelu_erf": gelu_erf, "relu": ops.relu}[config.hidden_act]


def library_activation(config: BertConfig) -> Activation:
    """Return the activation function of `hidden_act` as Keras computes it: equal up to rounding, with a slow gradient.

    TensorFlow recognizes it after a dense layer and fuses both with oneDNN.
    """
    return {
        "gelu": lambda inputs: ops.gelu(inputs, approximate=True),
        "gelu_erf": lambda inputs: ops.gelu(inputs, approximate=False),
        "relu": ops.relu,
    }[config.hidden_act]
