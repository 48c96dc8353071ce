"""SavedModels and TensorFlow Hub modules of BERT: `variables/`, `assets/vocab.txt`, and no configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bert_model.checkpoints import model_garden, tf1
from bert_model.checkpoints.inferred_config import infer_config
from bert_model.checkpoints.native import CONFIG_FILE_NAME
from bert_model.checkpoints.stored_tensors import StoredTensor
from bert_model.config import BertConfig

FILE_NAME = "saved_model.pb"
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"


class SavedModel(NamedTuple):
    """The content of a SavedModel of BERT.

    Attributes:
        prefix: path of the variables, without `.index`.
        config: configuration: that of `bert_config.json` if someone has added it, else by the shapes of the variables.
        vocab_file: path of the vocabulary; None where it is missing.
    """

    prefix: Path
    config: BertConfig
    vocab_file: Path | None


def is_saved_model(directory: Path) -> bool:
    """Return whether a directory contains a SavedModel with variables."""
    return (directory / FILE_NAME).is_file() and _prefix(directory).with_suffix(".index").is_file()


def describe(directory: Path) -> SavedModel:
    """Return the parts of a SavedModel, without reading weights.

    Raises:
        CheckpointError, ConfigError: the files cannot be read, or the variables are not those of BERT.
    """
    prefix = _prefix(directory)
    vocab_file = directory / "assets" / "vocab.txt"
    config_file = directory / CONFIG_FILE_NAME
    if config_file.is_file():
        config = BertConfig.load(config_file)
    else:
        variables = tf1.read_variables(prefix)
        tensors = without_scope(model_garden.by_tf1_name(variables))
        config = infer_config(directory, tensors, model_garden.num_attention_heads(variables))
    return SavedModel(prefix, config, vocab_file if vocab_file.is_file() else None)


def pop_do_lower_case(tensors: dict[str, StoredTensor]) -> bool | None:
    """Remove the variable in which encoders of the Model Garden record lower-casing; return it, or None without it."""
    recorded = tensors.pop("do_lower_case", None)
    return None if recorded is None or recorded.shape else bool(recorded.read())


def without_scope(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return tensors without the scope of a module, such as `module/`, in front of their names."""
    scope = next((name.removesuffix(_WORD_EMBEDDINGS) for name in tensors if name.endswith(_WORD_EMBEDDINGS)), "")
    return {name.removeprefix(scope): tensor for name, tensor in tensors.items()}


def _prefix(directory: Path) -> Path:
    return directory / "variables" / "variables"
