"""The names of a model's variables in this package, in TF1 checkpoints and in Hugging Face models.

The variables of the encoder are listed here, those of a head in its module of `heads`. This file imports neither Keras
nor TensorFlow.
"""

import operator
from typing import Any, NamedTuple

from beambert.bert_model.config import BertConfig

# TF1 names of the variables with one row per token.
TOKEN_VARIABLES = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")
POSITION_EMBEDDINGS = "bert/embeddings/position_embeddings"
# Prefixes of TF1 names.
POOLER = "bert/pooler/"
MASKED_LM = "cls/predictions/"
NEXT_SENTENCE = "cls/seq_relationship/"


class VariableName(NamedTuple):
    """The names of a variable.

    Attributes:
        ours: attribute path in a `BertForPretraining` or `BertForTask`; a number is an index of a list.
        tf1: name in TF1 checkpoints, and in checkpoints of beambert.
        hugging_face: name in the state dict of transformers' class, where a `kernel` is transposed.
        shape: shape in TF1 checkpoints, and in the model except for vocabulary padding (`bert_model/size.py`).
    """

    ours: str
    tf1: str
    hugging_face: str
    shape: tuple[int, ...]


# Name here, in TF1, in Hugging Face; shape. Letters in shapes: V vocab_size, H hidden_size, I intermediate_size,
# P max_position_embeddings, T type_vocab_size. The first line of a table has the prefixes of its names.
_EMBEDDINGS = """
encoder.embeddings.    bert/embeddings/       bert.embeddings.

word_embeddings        word_embeddings        word_embeddings.weight        V,H
token_type_embeddings  token_type_embeddings  token_type_embeddings.weight  T,H
position_embeddings    position_embeddings    position_embeddings.weight    P,H
norm.gamma             LayerNorm/gamma        LayerNorm.weight              H
norm.beta              LayerNorm/beta         LayerNorm.bias                H
"""
_LAYER = """
encoder.layers.N.        bert/encoder/layer_N/             bert.encoder.layer.N.

attention.query.kernel   attention/self/query/kernel       attention.self.query.weight        H,H
attention.query.bias     attention/self/query/bias         attention.self.query.bias          H
attention.key.kernel     attention/self/key/kernel         attention.self.key.weight          H,H
attention.key.bias       attention/self/key/bias           attention.self.key.bias            H
attention.value.kernel   attention/self/value/kernel       attention.self.value.weight        H,H
attention.value.bias     attention/self/value/bias         attention.self.value.bias          H
attention_output.kernel  attention/output/dense/kernel     attention.output.dense.weight      H,H
attention_output.bias    attention/output/dense/bias       attention.output.dense.bias        H
attention_norm.gamma     attention/output/LayerNorm/gamma  attention.output.LayerNorm.weight  H
attention_norm.beta      attention/output/LayerNorm/beta   attention.output.LayerNorm.bias    H
intermediate.kernel      intermediate/dense/kernel         intermediate.dense.weight          H,I
intermediate.bias        intermediate/dense/bias           intermediate.dense.bias            I
output_dense.kernel      output/dense/kernel               output.dense.weight                I,H
output_dense.bias        output/dense/bias                 output.dense.bias                  H
output_norm.gamma        output/LayerNorm/gamma            output.LayerNorm.weight            H
output_norm.beta         output/LayerNorm/beta             output.LayerNorm.bias              H
"""
_POOLER = """
encoder.pooler.  bert/pooler/  bert.pooler.

kernel           dense/kernel  dense.weight  H,H
bias             dense/bias    dense.bias    H
"""


def read_table(table: str, sizes: dict[str, int], index: int = 0) -> list[VariableName]:
    """Return the variables of a table.

    Args:
        table: a first line with the prefixes of the names, "-" for none, and a line per variable: name here, in TF1, in
            Hugging Face, and letters of its shape.
        sizes: size of each letter.
        index: replaces the N of "N." and "N/" in the prefixes, the index of a layer.
    """
    head, rows = table.strip().split("\n\n")
    prefixes = ["" if prefix == "-" else prefix for prefix in head.split()]
    prefixes = [prefix.replace("N.", f"{index}.").replace("N/", f"{index}/") for prefix in prefixes]
    names = []
    for row in rows.splitlines():
        *columns, letters = row.split()
        ours, tf1, hugging_face = (prefix + column for prefix, column in zip(prefixes, columns, strict=True))
        names.append(VariableName(ours, tf1, hugging_face, tuple(sizes[letter] for letter in letters.split(","))))
    return names


def encoder_variables(config: BertConfig) -> list[VariableName]:
    """Return the variables of the encoder, in the order of the forward pass: embeddings, layers, pooler."""
    sizes = {
        "V": config.vocab_size,
        "H": config.hidden_size,
        "I": config.intermediate_size,
        "P": config.max_position_embeddings,
        "T": config.type_vocab_size,
    }
    layers = [name for index in range(config.num_hidden_layers) for name in read_table(_LAYER, sizes, index)]
    return [*read_table(_EMBEDDINGS, sizes), *layers, *read_table(_POOLER, sizes)]


def variables_by_tf1_name(model: Any) -> dict[str, Any]:
    """Return the variables of a `BertForPretraining` or `BertForTask` by TF1 name, in the order of its head."""
    names = model.head.variable_names(model.config, model.num_labels)
    return {name.tf1: _attribute(model, name.ours) for name in names}


def _attribute(model: Any, path: str) -> Any:
    value = model
    for part in path.split("."):
        value = operator.getitem(value, int(part)) if part.isdigit() else getattr(value, part)
    return value
