"""SavedModels and TensorFlow Hub modules of BERT: `variables/`, `assets/vocab.txt`, and no configuration."""

from collections.abc import Mapping
from pathlib import Path

from beambert.bert_model.checkpoints import model_garden, tf1
from beambert.bert_model.checkpoints.inferred_config import infer_config
from beambert.bert_model.checkpoints.stored_tensors import StoredTensor
from beambert.bert_model.config import BertConfig

FILE_NAME = "saved_model.pb"
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"


def is_saved_model(directory: Path) -> bool:
    """Return whether a directory contains a SavedModel with variables."""
    return (directory / FILE_NAME).is_file() and prefix_of(directory).with_suffix(".index").is_file()


def prefix_of(directory: Path) -> Path:
    """Return the path of the variables, without `.index`."""
    return directory / "variables" / "variables"


def vocabulary_file(directory: Path) -> Path | None:
    """Return the path of the vocabulary; None where it is missing."""
    path = directory / "assets" / "vocab.txt"
    return path if path.is_file() else None


def config_of_shapes(directory: Path) -> BertConfig:
    """Return the configuration that the shapes of the variables imply.

    Raises:
        CheckpointError, ConfigError: as `infer_config`, or the index cannot be read.
    """
    variables = tf1.read_variables(prefix_of(directory))
    tensors = without_scope(model_garden.by_tf1_name(variables))
    return infer_config(directory, tensors, model_garden.num_attention_heads(variables))


def pop_do_lower_case(tensors: dict[str, StoredTensor]) -> bool | None:
    """Remove the variable in which encoders of the Model Garden record lower-casing; return it, or None without it."""
    recorded = tensors.pop("do_lower_case", None)
    return None if recorded is None or recorded.shape else bool(recorded.read())


def without_scope(tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return tensors without the scope of a module, such as `module/`, in front of their names."""
    scope = next((name.removesuffix(_WORD_EMBEDDINGS) for name in tensors if name.endswith(_WORD_EMBEDDINGS)), "")
    return {name.removeprefix(scope): tensor for name, tensor in tensors.items()}
