"""The names of a model's variables in this package, in TF1 checkpoints and in Hugging Face models.

This file imports neither Keras nor TensorFlow.
"""

import operator
from typing import Any, NamedTuple

from beambert.bert_model.config import BertConfig, ConfigError

# Fine-tuning tasks, with the number of labels where it is fixed.
TASKS: dict[str, int | None] = {
    "classification": None,
    "regression": 1,
    "span": 2,
    "token_classification": None,
    "token_classification_bilstm": None,
    "multiple_choice": 1,
}
PRETRAINING = "pretraining"
# The feature-based approach (`feature_based.py`), for which transformers has no class.
FEATURE_BASED = "token_classification_bilstm"
# TF1 names of the variables with one row per token.
TOKEN_VARIABLES = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")
# Prefix of the TF1 names of the next-sentence head.
NEXT_SENTENCE_HEAD = "cls/seq_relationship/"
POSITION_EMBEDDINGS = "bert/embeddings/position_embeddings"
FEATURE_LAYERS = 4
BILSTM_LAYERS = 2


class VariableName(NamedTuple):
    """The names of a variable.

    Attributes:
        ours: attribute path in a `BertForPretraining` or `BertForTask`; a number is an index of a list.
        tf1: name in TF1 checkpoints, and in checkpoints of beambert.
        hugging_face: name in the state dict of the task's class, where a `kernel` is transposed.
        shape: shape in TF1 checkpoints, and in the model except for vocabulary padding (`bert_model/size.py`).
    """

    ours: str
    tf1: str
    hugging_face: str
    shape: tuple[int, ...]


# Name here, in TF1, in Hugging Face; shape. Letters in shapes: V vocab_size, H hidden_size, I intermediate_size,
# P max_position_embeddings, T type_vocab_size, n labels of a task, 2 classes of next-sentence prediction.
# The first line of a group has the prefixes of its names.
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
# The released code has no regression, multiple choice and token classification; they use the names of its classifier.
_CLASSIFIER = """
head.           -               classifier.

output_weights  output_weights  weight  n,H
output_bias     output_bias     bias    n
"""
_SPAN = """
head.           cls/squad/      qa_outputs.

output_weights  output_weights  weight  n,H
output_bias     output_bias     bias    n
"""
# Names of this project only. Shapes: F features of a position, G gates of a direction, D output of both directions.
_BILSTM_LAYER = """
bilstm.layers.N.           bilstm/layer_N/            bilstm.layers.N.

forward.kernel             forward/kernel             forward.kernel             F,G
forward.recurrent_kernel   forward/recurrent_kernel   forward.recurrent_kernel   H,G
forward.bias               forward/bias               forward.bias               G
backward.kernel            backward/kernel            backward.kernel            F,G
backward.recurrent_kernel  backward/recurrent_kernel  backward.recurrent_kernel  H,G
backward.bias              backward/bias              backward.bias              G
"""


def label_count(task: str, num_labels: int | None = None) -> int:
    """Return the number of labels of a task.

    Args:
        task: one of `TASKS`.
        num_labels: requested number; None where the task has a fixed number.

    Raises:
        ConfigError: the task is unknown, or num_labels is not valid for it.
    """
    if task not in TASKS:
        raise ConfigError(f"unknown task {task!r}; choose from {', '.join(TASKS)}")
    fixed = TASKS[task]
    if num_labels is None and fixed is not None:
        return fixed
    if num_labels is None or num_labels < 1 or (fixed is not None and num_labels != fixed):
        needed = "at least 1" if fixed is None else f"{fixed}, or None"
        raise ConfigError(f"invalid num_labels {num_labels} for task {task}: must be {needed}")
    return num_labels


def feature_size(config: BertConfig) -> int:
    """Return the number of features per position in the feature-based approach."""
    return min(FEATURE_LAYERS, config.num_hidden_layers) * config.hidden_size


def variable_names(config: BertConfig, task: str = PRETRAINING, num_labels: int | None = None) -> list[VariableName]:
    """Return the variables of a model, in the order of the forward pass.

    The pretraining model of size base has 206: 5 of the embeddings, 16 per layer, 2 of the pooler, 5 of the masked-LM
    head and 2 of the next-sentence head. A fine-tuned model has 2 of its head instead of the last 7.

    Args:
        config: configuration of the model.
        task: "pretraining" for a `BertForPretraining`, or the task of a `BertForTask`.
        num_labels: number of labels; None where the task has a fixed number.

    Returns:
        The names of each variable.

    Raises:
        ConfigError: the task is unknown, or num_labels is not valid for it.
    """
    sizes = {
        "V": config.vocab_size,
        "H": config.hidden_size,
        "I": config.intermediate_size,
        "P": config.max_position_embeddings,
        "T": config.type_vocab_size,
        "2": 2,
    }
    if task == PRETRAINING:
        heads = [_MASKED_LM, _NEXT_SENTENCE]
    else:
        sizes["n"] = label_count(task, num_labels)
        heads = [_SPAN if task == "span" else _CLASSIFIER]
    if task == FEATURE_BASED:
        sizes |= {"F": feature_size(config), "G": 4 * config.hidden_size, "D": 2 * config.hidden_size}
        upper = [_numbered(_BILSTM_LAYER.replace("F,G", "D,G"), index) for index in range(1, BILSTM_LAYERS)]
        heads = [_numbered(_BILSTM_LAYER, 0), *upper, _CLASSIFIER.replace("n,H", "n,D")]

    layers = [_numbered(_LAYER, index) for index in range(config.num_hidden_layers)]
    names = []
    for group in (_EMBEDDINGS, *layers, _POOLER, *heads):
        head, rows = group.strip().split("\n\n")
        prefixes = ["" if prefix == "-" else prefix for prefix in head.split()]
        for row in rows.splitlines():
            *columns, shape = row.split()
            ours, tf1, hugging_face = (prefix + column for prefix, column in zip(prefixes, columns, strict=True))
            names.append(VariableName(ours, tf1, hugging_face, tuple(sizes[letter] for letter in shape.split(","))))
    return names


def _numbered(layer: str, index: int) -> str:
    return layer.replace("N.", f"{index}.").replace("N/", f"{index}/")


def variables_by_tf1_name(model: Any) -> dict[str, Any]:
    """Return the variables of a `BertForPretraining` or `BertForTask` by TF1 name, in the order of `variable_names`."""
    names = variable_names(model.config, model.task, model.num_labels)
    return {name.tf1: _attribute(model, name.ours) for name in names}


def _attribute(model: Any, path: str) -> Any:
    value = model
    for part in path.split("."):
        value = operator.getitem(value, int(part)) if part.isdigit() else getattr(value, part)
    return value
