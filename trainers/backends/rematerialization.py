"""Apply activation checkpointing (rematerialization): compute activations again in the backward pass."""

from collections.abc import Callable
from typing import Any

import keras

from beambert.bert_model.encoder import BertEncoder


def set_activation_checkpointing(encoder: BertEncoder, scope: str) -> None:
    """Set the activation checkpointing of an encoder, from the next trace of its step.

    Gradients stay the same: dropout is a function of its seed, so that the masks of the second computation are equal.

    Args:
        encoder: encoder of any model.
        scope: as in `TrainingOptions.activation_checkpointing`. "none" stores all activations. "layer" stores only the
            input of each layer and costs a second forward pass. "attention" discards scores, softmax and dropout of
            attention, which grow with the square of the length, at a few percent of the time (Korthikanti et al. 2022,
            section 5).
    """
    encoder.wrap_layer = _rematerialized if scope == "layer" else None
    for layer in encoder.layers:
        layer.attention.wrap_mixing = _rematerialized if scope == "attention" else None


def _rematerialized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with only its arguments stored for the backward pass; an argument may be None."""

    def run(*arguments: Any) -> Any:
        # tf.recompute_grad, which Keras calls, accepts only tensors.
        present_indices = [index for index, argument in enumerate(arguments) if argument is not None]

        def with_nones(*tensors: Any) -> Any:
            present = dict(zip(present_indices, tensors, strict=True))
            return function(*(present.get(index) for index in range(len(arguments))))

        return keras.remat(with_nones)(*(arguments[index] for index in present_indices))

    return run
