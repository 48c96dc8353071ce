"""Activation checkpointing: recompute activations in the backward pass instead of storing them."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_model.encoder import BertEncoder


def set_activation_checkpointing(encoder: BertEncoder, what: str) -> None:
    """Set which activations of an encoder are computed again in the backward pass, from the next trace of its step.

    Gradients stay the same: dropout is a function of its seed, so that the recomputed masks are equal.

    Args:
        encoder: of any model.
        what: one of `training_flags.ACTIVATION_CHECKPOINTING`: "none"; "layer", which keeps the input of each layer
            alone and costs a second forward pass; "attention", which recomputes attention from queries, keys and
            values (scores, softmax, dropout), the tensors that grow with the square of the length, at a few percent of
            the time (Korthikanti et al. 2022, section 5, "selective activation recomputation").
    """
    encoder.wrap_layer = _recomputed if what == "layer" else None
    for layer in encoder.layers:
        layer.attention.wrap_mixing = _recomputed if what == "attention" else None


def _recomputed(function: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Return the function, with only its arguments stored for the backward pass; an argument may be None."""

    def run(*arguments: Any) -> tf.Tensor:
        # tf.recompute_grad takes tensors only.
        present_indices = [index for index, argument in enumerate(arguments) if argument is not None]

        def with_nones(*tensors: tf.Tensor) -> tf.Tensor:
            present = dict(zip(present_indices, tensors, strict=True))
            return function(*(present.get(index) for index in range(len(arguments))))

        return tf.recompute_grad(with_nones)(*(arguments[index] for index in present_indices))

    return run
