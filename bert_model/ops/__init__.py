"""Operations of the model that a backend has in a faster form than the functions of `keras.ops`.

`plain.py` defines each operation and its shapes. `jax/` and `tensorflow.py` have the forms that are fast on their
devices; one of them is chosen here, once, for the backend of Keras. Tests compare every form with the plain one;
`dropout` has other masks in each.
Letters in shapes: B examples, S positions, Q query positions, A heads, D = H / A, H hidden size, V rows of a table.
"""

from typing import TYPE_CHECKING

import keras

from beambert.bert_model.ops.plain import attention_probabilities, fold_in, rematerialized

if TYPE_CHECKING:
    from beambert.bert_model.ops.plain import (
        attention,
        cross_entropy,
        dense,
        dropout,
        gelu,
        layer_normalization,
        row_major,
        take_positions,
        take_rows,
    )
elif keras.backend.backend() == "jax":
    from beambert.bert_model.ops.jax import (
        attention,
        cross_entropy,
        dense,
        dropout,
        gelu,
        layer_normalization,
        row_major,
        take_positions,
        take_rows,
    )
else:
    from beambert.bert_model.ops.tensorflow import (
        attention,
        cross_entropy,
        dense,
        dropout,
        gelu,
        layer_normalization,
        row_major,
        take_positions,
        take_rows,
    )

__all__ = [
    "attention",
    "attention_probabilities",
    "cross_entropy",
    "dense",
    "dropout",
    "fold_in",
    "gelu",
    "layer_normalization",
    "rematerialized",
    "row_major",
    "take_positions",
    "take_rows",
]
