"""Parameter layers that several modules share, with BERT's initializers."""

import keras

from bert_model.config import BertConfig


def truncated_normal(config: BertConfig) -> keras.initializers.Initializer:
    """Return the initializer of all weight matrices: a normal distribution truncated at two standard deviations."""
    return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def dense(units: int, input_size: int, config: BertConfig, name: str) -> keras.layers.Dense:
    """Return a built dense layer: kernel [input_size, units], bias [units]."""
    layer = keras.layers.Dense(units, kernel_initializer=truncated_normal(config), name=name)
    layer.build((None, input_size))
    return layer


def layer_norm(config: BertConfig) -> keras.layers.LayerNormalization:
    """Return a built layer normalization over the hidden size, in float32 under every policy: gamma [H], beta [H]."""
    layer = keras.layers.LayerNormalization(epsilon=config.layer_norm_eps, dtype="float32", name="LayerNorm")
    layer.build((None, config.hidden_size))
    return layer
