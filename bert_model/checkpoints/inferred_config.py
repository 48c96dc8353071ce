"""Infer the configuration of an encoder from the shapes of its variables, for models without `bert_config.json`."""

from collections.abc import Mapping
from pathlib import Path

from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor
from beambert.bert_model.config import COMPACT_MODELS, HIDDEN_PER_HEAD, PRESETS, BertConfig

_RELEASED_HIDDEN_SIZES = {hidden for _, hidden in [*PRESETS.values(), *COMPACT_MODELS.values()]}


def infer_config(path: Path, tensors: Mapping[str, StoredTensor], heads: int | None) -> BertConfig:
    """Return the configuration of an encoder, with the GELU and the dropout rates of the released models.

    Args:
        path: path for messages.
        tensors: variables by TF1 name.
        heads: number of attention heads; None where the shapes do not contain it. It is then that of the released
            models of this hidden size, whose heads have size 64.

    Raises:
        CheckpointError: the variables are not those of BERT, or no released model has this hidden size.
        ConfigError: the sizes are not those of a BERT.
    """
    encoder = {name: tensor.shape for name, tensor in tensors.items() if name.startswith("bert/")}
    try:
        vocab_size, hidden_size = encoder["bert/embeddings/word_embeddings"]
        positions, _ = encoder["bert/embeddings/position_embeddings"]
        types, _ = encoder["bert/embeddings/token_type_embeddings"]
        _, intermediate_size = encoder["bert/encoder/layer_0/intermediate/dense/kernel"]
    except (KeyError, ValueError) as error:
        raise CheckpointError(
            f"{path} does not have the variables of a BERT encoder; give the model that it was exported from, or a "
            "SavedModel of BERT from TensorFlow Hub"
        ) from error
    if heads is None and hidden_size not in _RELEASED_HIDDEN_SIZES:
        raise CheckpointError(
            f"{path} does not record the number of attention heads, and no released BERT has its hidden size "
            f"{hidden_size}; add bert_config.json to its directory"
        )
    layers = {name.split("/")[2] for name in encoder if name.startswith("bert/encoder/layer_")}
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=len(layers),
        num_attention_heads=heads or hidden_size // HIDDEN_PER_HEAD,
        intermediate_size=intermediate_size,
        max_position_embeddings=positions,
        type_vocab_size=types,
    )
