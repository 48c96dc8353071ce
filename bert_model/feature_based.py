"""The feature-based approach of the paper (section 5.3): a BiLSTM on the hidden states of a frozen BERT.

The paper has a "two-layer 768-dimensional" BiLSTM for base. Here each direction has as many units as the hidden size of
the encoder, 768 in base. The BiLSTM reads all tokens; the prediction at the first token of a word is that of the word.

Letters in shapes: B examples, S positions, H hidden size, I size of an input, U units of a direction.
"""

from typing import Any

import keras
from keras import ops

from beambert.bert_model.checkpoints.variable_names import BILSTM_LAYERS, FEATURE_LAYERS, feature_size
from beambert.bert_model.config import BertConfig
from beambert.bert_model.encoder import BertEncoder
from beambert.bert_model.layers import initializer_seed
from beambert.bert_model.ops import dropout, fold_in

Tensor = Any


def frozen_features(encoder: BertEncoder, input_ids: Tensor, input_mask: Tensor, segment_ids: Tensor) -> Tensor:
    """Return the concatenated hidden states of the last four layers, lowest layer first.

    The encoder has neither dropout nor gradients.

    Args:
        encoder: the encoder; with fewer than four layers, all of them are used.
        input_ids, input_mask, segment_ids: int [B, S].

    Returns:
        float32 [B, S, 4 H].
    """
    layers = list(encoder.hidden_states(input_ids, input_mask, segment_ids))[1:][-FEATURE_LAYERS:]
    return ops.stop_gradient(ops.concatenate(layers, axis=-1))


class LstmDirection(keras.layers.Layer):
    """The parameters of one direction, with the concatenated gates: input, forget, candidate, output.

    Kernels have the Glorot initializer and recurrent kernels the orthogonal one; biases are 0, and 1 for the forget
    gate.

    Args:
        input_size: size of the inputs, I.
        units: number of units, U.
    """

    def __init__(self, input_size: int, units: int, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        glorot = keras.initializers.GlorotUniform(seed=initializer_seed())
        self.kernel = self.add_weight((input_size, 4 * units), glorot, name="kernel")
        orthogonal = keras.initializers.Orthogonal(seed=initializer_seed())
        self.recurrent_kernel = self.add_weight((units, 4 * units), orthogonal, name="recurrent_kernel")
        self.bias = self.add_weight((4 * units,), _forget_gate_initializer, name="bias")
        self.built = True


class BidirectionalLstm(keras.layers.Layer):
    """A bidirectional LSTM layer, in float32 under every policy (Hochreiter and Schmidhuber, 1997; with forget gates).

    Args:
        input_size: size of the inputs, I.
        units: number of units per direction, U.
    """

    def __init__(self, input_size: int, units: int, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self.units = units
        self.forward = LstmDirection(input_size, units, name="forward")
        self.backward = LstmDirection(input_size, units, name="backward")
        self.built = True

    def call(self, inputs: Tensor, input_mask: Tensor) -> Tensor:
        """Run both directions.

        Args:
            inputs: float32 [B, S, I].
            input_mask: int [B, S], 1 for tokens, 0 for padding, which leaves the state unchanged.

        Returns:
            float32 [B, S, 2 U], forward and backward.
        """
        batch = ops.shape(inputs)[0]
        # One tensor per step: Keras's scan needs a static length for several tensors.
        real = ops.expand_dims(ops.cast(input_mask, "float32"), -1)  # [B, S, 1]
        steps = [
            ops.concatenate([ops.matmul(inputs, direction.kernel) + direction.bias, real], axis=-1)
            for direction in (self.forward, self.backward)
        ]  # [B, S, 4 U + 1]
        both = ops.stack([steps[0], ops.flip(steps[1], axis=1)])  # [2, B, S, 4 U + 1]
        kernels = (self.forward.recurrent_kernel, self.backward.recurrent_kernel)
        recurrent = ops.stack([ops.cast(kernel, "float32") for kernel in kernels])  # [2, U, 4 U]

        def step(state: tuple[Tensor, Tensor], inputs: Tensor) -> tuple[Any, Any]:
            output, cell = state  # [2, B, U]
            gates = inputs[..., :-1] + ops.matmul(output, recurrent)  # [2, B, 4 U]
            enter, forget, candidate, leave = ops.split(gates, 4, axis=-1)  # [2, B, U]
            new_cell = ops.sigmoid(forget) * cell + ops.sigmoid(enter) * ops.tanh(candidate)
            new_output = ops.sigmoid(leave) * ops.tanh(new_cell)
            moves = inputs[..., -1:] > 0  # [2, B, 1]
            state = (ops.where(moves, new_output, output), ops.where(moves, new_cell, cell))
            return state, state

        zeros = ops.zeros((2, batch, self.units), "float32")
        _, (outputs, _) = ops.scan(step, (zeros, zeros), ops.transpose(both, (2, 0, 1, 3)))  # [S, 2, B, U]
        forward, backward = ops.transpose(outputs[:, 0], (1, 0, 2)), ops.transpose(outputs[:, 1], (1, 0, 2))
        return ops.concatenate([forward, ops.flip(backward, axis=1)], axis=-1)  # [B, S, 2 U]


class FeatureBasedLayers(keras.layers.Layer):
    """The layers between the encoder and the head: two bidirectional layers, with dropout before each.

    Uses `BILSTM_LAYERS` consecutive dropout seeds. The paper states no dropout rate; the encoder's is used.

    Args:
        config: configuration of the encoder.
    """

    def __init__(self, config: BertConfig, **kwargs: Any) -> None:
        super().__init__(dtype="float32", **kwargs)
        self.dropout_rate = config.hidden_dropout_prob
        sizes = [feature_size(config), *[2 * config.hidden_size] * (BILSTM_LAYERS - 1)]
        self.layers = [
            BidirectionalLstm(size, config.hidden_size, name=f"layer_{index}") for index, size in enumerate(sizes)
        ]
        self.built = True

    def call(self, features: Tensor, input_mask: Tensor, seed: Tensor | None = None) -> Tensor:
        """Run the layers.

        Args:
            features: float32 [B, S, 4 H], from `frozen_features`.
            input_mask: int [B, S], 1 for tokens, 0 for padding.
            seed: int32 [2] or [B, 2], first dropout seed, or None.

        Returns:
            float32 [B, S, 2 H].
        """
        hidden = ops.cast(features, "float32")
        for index, layer in enumerate(self.layers):
            hidden = layer(dropout(hidden, self.dropout_rate, fold_in(seed, index)), input_mask)
        return hidden


def _forget_gate_initializer(shape: tuple[int, ...], dtype: Any = None) -> Tensor:
    units = shape[0] // 4
    return ops.concatenate([ops.zeros(units, dtype), ops.ones(units, dtype), ops.zeros(2 * units, dtype)])
