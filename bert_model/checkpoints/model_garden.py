"""Names of the TensorFlow Model Garden and of its encoders on TensorFlow Hub (version 3 and later).

Source: the variable names of `official.nlp.modeling.networks.BertEncoder` and `models.BertPretrainerV2`.
"""

import re
from collections.abc import Mapping

from beambert.bert_model.checkpoints.stored_tensors import StoredTensor, merged_heads, transposed

_NAMES = {
    "word_embeddings/embeddings": "bert/embeddings/word_embeddings",
    "type_embeddings/embeddings": "bert/embeddings/token_type_embeddings",
    "position_embedding/embeddings": "bert/embeddings/position_embeddings",
    "embeddings/layer_norm/gamma": "bert/embeddings/LayerNorm/gamma",
    "embeddings/layer_norm/beta": "bert/embeddings/LayerNorm/beta",
    "pooler_transform/kernel": "bert/pooler/dense/kernel",
    "pooler_transform/bias": "bert/pooler/dense/bias",
    "cls/predictions/output_bias/bias": "cls/predictions/output_bias",
}
_LAYER = re.compile(r"transformer/layer_(\d+)/(\w+(?:/\w+)?)/(kernel|bias|gamma|beta)")
_PARTS = {
    "self_attention/query": "attention/self/query",
    "self_attention/key": "attention/self/key",
    "self_attention/value": "attention/self/value",
    "self_attention/attention_output": "attention/output/dense",
    "self_attention_layer_norm": "attention/output/LayerNorm",
    "intermediate": "intermediate/dense",
    "output": "output/dense",
    "output_layer_norm": "output/LayerNorm",
}
_HEADS = ("cls/predictions/", "next_sentence/")
# The next-sentence head of `BertPretrainerV2` has a pooler of its own, which was trained in place of the encoder's.
_NEXT_SENTENCE = {
    "next_sentence/pooler_dense/kernel": "bert/pooler/dense/kernel",
    "next_sentence/pooler_dense/bias": "bert/pooler/dense/bias",
    "next_sentence/logits/kernel": "cls/seq_relationship/output_weights",
    "next_sentence/logits/bias": "cls/seq_relationship/output_bias",
    # Checkpoints converted from TF1.
    "predictions/transform/logits/kernel": "cls/seq_relationship/output_weights",
    "predictions/transform/logits/bias": "cls/seq_relationship/output_bias",
}


def by_tf1_name(variables: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return variables by TF1 name and in TF1 shapes; those of other models are returned unchanged.

    Args:
        variables: variables by full name (`object_graph.by_full_name`).
    """
    if not _is_encoder(variables):
        return dict(variables)
    renamed: dict[str, StoredTensor] = {}
    for name, tensor in variables.items():
        tf1_name = _tf1_name(name)
        renamed.setdefault(tf1_name, merged_heads(tf1_name, tensor))
    for name, tf1_name in _NEXT_SENTENCE.items():
        if name in renamed:
            tensor = renamed.pop(name)
            renamed[tf1_name] = transposed(tensor) if tf1_name.endswith("output_weights") else tensor
    return renamed


def _is_encoder(variables: Mapping[str, StoredTensor]) -> bool:
    """Return whether variables have the names of a Model Garden encoder."""
    return "word_embeddings/embeddings" in variables


def num_attention_heads(variables: Mapping[str, StoredTensor]) -> int | None:
    """Return the number of heads, a dimension of the projections; None for variables of another kind."""
    query = variables.get("transformer/layer_0/self_attention/query/kernel")
    return query.shape[1] if query is not None and len(query.shape) == 3 else None


def _tf1_name(name: str) -> str:
    if match := _LAYER.fullmatch(name):
        layer, part, variable = match.groups()
        return f"bert/encoder/layer_{layer}/{_PARTS[part]}/{variable}" if part in _PARTS else name
    for head in _HEADS:
        if head in name:
            # In a scope that depends on the model's name.
            name = name[name.index(head) :]
    return _NAMES.get(name, name)
