"""SavedModels and TensorFlow Hub modules of BERT: `variables/`, `assets/vocab.txt`, and no configuration."""

from collections.abc import Mapping
from pathlib import Path

from beambert.bert_model.checkpoints import tf1
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor
from beambert.bert_model.config import COMPACT_MODELS, HIDDEN_PER_HEAD, PRESETS, BertConfig

FILE_NAME = "saved_model.pb"
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
_RELEASED_HIDDEN_SIZES = {hidden for _, hidden in [*PRESETS.values(), *COMPACT_MODELS.values()]}


def is_saved_model(directory: Path) -> bool:
    """Return whether a directory contains a SavedModel with variables."""
    return (directory / FILE_NAME).is_file() and prefix_of(directory).with_suffix(".index").is_file()


def prefix_of(directory: Path) -> Path:
    """Return the path of the variables, without `.index`."""
    return directory / "variables" / "variables"


def pop_do_lower_case(tensors: dict[str, StoredTensor]) -> bool | None:
    """Remove the variable in which encoders of the Model Garden record lower-casing; return it, or None without it."""
    recorded = tensors.pop("do_lower_case", None)
    return None if recorded is None or recorded.shape else bool(recorded.read())


def without_scope(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return tensors without the scope of a module, such as `module/`, in front of their names."""
    scope = next((name.removesuffix(_WORD_EMBEDDINGS) for name in tensors if name.endswith(_WORD_EMBEDDINGS)), "")
    return {name.removeprefix(scope): tensor for name, tensor in tensors.items()}


def infer_config(path: Path, variables: Mapping[str, StoredTensor]) -> BertConfig:
    """Return the configuration that shapes imply, with the GELU and the dropout rates of the released models.

    The number of attention heads is that of the released models of this hidden size, whose heads have size 64, where
    the shapes do not contain it.

    Args:
        path: path for messages.
        variables: variables of an encoder, from `tf1.read_variables`.

    Raises:
        CheckpointError: the variables are not those of BERT, or no released model has this hidden size.
        ConfigError: the sizes are not those of a BERT.
    """
    heads = tf1.num_attention_heads(variables)
    tensors = without_scope(tf1.by_tf1_name(variables))
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
