"""One table of every variable of a pretraining model: here, in TF1 checkpoints of the released code, at Hugging Face.

This file imports neither Keras nor TensorFlow.
"""

import operator
from typing import Any, NamedTuple

from bert_model.config import BertConfig


class VariableName(NamedTuple):
    """One variable.

    Attributes:
        ours: attribute path from a `BertForPretraining`, an index standing for an element of a list.
        tf1: name in a checkpoint of the released code; also the name in our own checkpoints.
        hugging_face: name in the state dict of `BertForPreTraining`, where a `kernel` lies transposed.
        shape: shape here and in TF1 checkpoints.
    """

    ours: str
    tf1: str
    hugging_face: str
    shape: tuple[int, ...]


# Ours, TF1, Hugging Face, shape. Letters of shapes: V vocab_size, H hidden_size, I intermediate_size,
# P max_position_embeddings, T type_vocab_size, 2 the classes of next-sentence prediction.
# Each name of a group is prefixed by the names at its head.
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
_MASKED_LM = """
masked_lm.        cls/predictions/           cls.predictions.

transform.kernel  transform/dense/kernel     transform.dense.weight      H,H
transform.bias    transform/dense/bias       transform.dense.bias        H
norm.gamma        transform/LayerNorm/gamma  transform.LayerNorm.weight  H
norm.beta         transform/LayerNorm/beta   transform.LayerNorm.bias    H
output_bias       output_bias                bias                        V
"""
_NEXT_SENTENCE = """
next_sentence.  cls/seq_relationship/  cls.seq_relationship.

output_weights  output_weights         weight  2,H
output_bias     output_bias            bias    2
"""


def variable_names(config: BertConfig) -> list[VariableName]:
    """Every variable of a `BertForPretraining` of that configuration, in the order of the forward pass.

    206 for base: 5 of the embeddings, 16 a layer, 2 of the pooler, 5 of the masked-LM head, 2 of the next-sentence
    head.
    """
    sizes = {
        "V": config.vocab_size,
        "H": config.hidden_size,
        "I": config.intermediate_size,
        "P": config.max_position_embeddings,
        "T": config.type_vocab_size,
        "2": 2,
    }

    layers = [_LAYER.replace("N.", f"{index}.").replace("N/", f"{index}/") for index in range(config.num_hidden_layers)]
    names = []
    for group in (_EMBEDDINGS, *layers, _POOLER, _MASKED_LM, _NEXT_SENTENCE):
        head, rows = group.strip().split("\n\n")
        for row in rows.splitlines():
            *columns, shape = row.split()
            ours, tf1, hugging_face = (prefix + column for prefix, column in zip(head.split(), columns, strict=True))
            names.append(VariableName(ours, tf1, hugging_face, tuple(sizes[letter] for letter in shape.split(","))))
    return names


def variables_by_tf1_name(model: Any) -> dict[str, Any]:
    """The variables of a built `BertForPretraining` by their TF1 names, in the order of `variable_names`."""
    return {name.tf1: _attribute(model, name.ours) for name in variable_names(model.config)}


def _attribute(model: Any, path: str) -> Any:
    value = model
    for part in path.split("."):
        value = operator.getitem(value, int(part)) if part.isdigit() else getattr(value, part)
    return value
