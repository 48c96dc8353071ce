"""Parameter layers that several modules share, with BERT's initializers."""

from typing import Any

import keras
from keras import ops

from bert_model.config import BertConfig


def truncated_normal(config: BertConfig) -> keras.initializers.Initializer:
    """Return the initializer of all weight matrices: a normal distribution truncated at two standard deviations."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def dense(units: int, input_size: int, config: BertConfig, name: str) -> keras.layers.Dense:
    """Return a built dense layer: kernel [input_size, units], bias [units]."""
    layer = keras.layers.Dense(units, kernel_initializer=truncated_normal(config), name=name)
    layer.build((None, input_size))
    return layer


class LayerNormalization(keras.layers.LayerNormalization):
    """Keras's layer, with a faster gradient under JAX (`jax_gradients.py`)."""

    def call(self, inputs: Any) -> Any:
        """Return the normalized inputs, float32 [..., H]; inputs are float [..., H]."""
        if keras.backend.backend() != "jax":
            return super().call(inputs)
        from bert_model.jax_gradients import layer_normalization

        return layer_normalization(ops.cast(inputs, "float32"), self.gamma.value, self.beta.value, self.epsilon)


def layer_norm(config: BertConfig) -> LayerNormalization:
    """Return a built layer normalization over the hidden size, in float32 under every policy: gamma [H], beta [H]."""
    layer = LayerNormalization(epsilon=config.layer_norm_eps, dtype="float32", name="LayerNorm")
    layer.build((None, config.hidden_size))
    return layer
