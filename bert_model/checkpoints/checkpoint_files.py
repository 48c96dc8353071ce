"""Find the files of a checkpoint in any format, without reading its weights."""

from pathlib import Path
from typing import NamedTuple

from beambert.bert_model.checkpoints import (
    archive,
    hugging_face,
    hugging_face_config,
    keras_hub,
    native,
    saved_model,
    tf1,
)
from beambert.bert_model.checkpoints.path_contents import contents_of
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads.head import Head

_REMEDY = (
    "give a directory with bert_model.ckpt.index, model.safetensors or pytorch_model.bin, a directory written by "
    "`beambert pretrain`, a SavedModel or KerasHub preset of BERT, or a released zip archive"
)


class CheckpointFiles(NamedTuple):
    """The files of a checkpoint, found without reading weights.

    Attributes:
        kind, path, config, vocab_file, record: as in `Checkpoint`.
        home: directory of the configuration and the vocabulary.
        prefix: prefix of a TensorFlow checkpoint, without `.index`; None for Hugging Face and KerasHub models.
        head: head of the model; None where only the weights determine it.
        labels: names of the classes; None where they have no names.
    """

    kind: str
    path: Path
    home: Path
    config: BertConfig
    vocab_file: Path | None
    prefix: Path | None = None
    record: native.ModelRecord | None = None
    head: Head | None = None
    labels: tuple[str, ...] | None = None


def find_files(path: Path, config: BertConfig | None = None) -> CheckpointFiles | None:
    """Find the files of a checkpoint without reading its weights.

    Args:
        path, config: as for `open_checkpoint`.

    Returns:
        The files; None for a zip archive, whose file names are checked only.

    Raises:
        CheckpointError, ConfigError: as `open_checkpoint`, for errors in file names and small files.
    """
    if path.is_file() and path.suffix == ".zip":
        names = archive.file_names(path)
        if not any(name.endswith(".ckpt.index") or name in hugging_face.WEIGHTS_FILE_NAMES for name in names):
            raise CheckpointError(f"{path} is not a checkpoint; {_REMEDY}")
        return None
    return files_at(path, path, config)


def files_at(path: Path, location: Path, config: BertConfig | None) -> CheckpointFiles:
    """Return the files of a checkpoint that is not packed.

    Args:
        path: path for messages.
        location: where the files are; another place than `path` for a zip archive.
        config: as for `find_files`.

    Raises:
        CheckpointError, ConfigError: as `find_files`.
    """
    directory = location if location.is_dir() else location.parent
    if location.is_dir() and native.load(location):
        return _named_files(path, location, native.model_checkpoint(location), config)
    if hugging_face.is_model(directory) and (location.is_dir() or location.is_file()):
        description = hugging_face_config.describe(directory)
        head = description.head
        return CheckpointFiles(
            kind="huggingface",
            path=path,
            home=directory,
            config=description.config,
            vocab_file=hugging_face.vocabulary_file(directory),
            head=head,
            labels=description.labels if head is None or head.has_classes else None,
        )
    if location.is_dir() and keras_hub.is_preset(location):
        return CheckpointFiles(
            kind="keras_hub",
            path=path,
            home=location,
            config=keras_hub.config_of(location),
            vocab_file=keras_hub.vocabulary_file(location),
        )
    if saved_model.is_saved_model(location):
        prefix = saved_model.prefix_of(location)
        return CheckpointFiles(
            kind="saved_model",
            path=path,
            home=location,
            prefix=prefix,
            config=_config(location, config) or saved_model.infer_config(location, tf1.read_variables(prefix)),
            vocab_file=saved_model.vocabulary_file(location),
        )
    prefix = location.with_suffix("") if location.suffix == ".index" else location
    if location.is_dir():
        last = native.checkpoint(location)
        if last:
            return _named_files(path, location, last, config)
    elif Path(f"{prefix}.index").is_file():
        return _named_files(path, directory, prefix, config)
    raise CheckpointError(f"{path} is not a checkpoint: it {contents_of(path)}; {_REMEDY}")


def _named_files(path: Path, directory: Path, prefix: Path | None, config: BertConfig | None) -> CheckpointFiles:
    """Return the files of a checkpoint with TF1 names; a run's other files are in the parent directory."""
    if prefix is None:
        raise CheckpointError(f"{path} has {native.FILE_NAME} but no checkpoint yet; train the model first")
    home = directory
    if directory.name == native.CHECKPOINTS_NAME and (directory.parent / native.CONFIG_FILE_NAME).is_file():
        home = directory.parent
    config = _config(home, config) or _config_of_shapes(path, prefix)
    if config is None:
        raise CheckpointError(
            f"{path} has no {native.CONFIG_FILE_NAME} in its directory; copy the one it was trained with"
        )
    record = native.load(home)
    vocab_file = home / native.VOCAB_FILE_NAME
    return CheckpointFiles(
        kind="native" if record else "tf1",
        path=path,
        home=home,
        prefix=prefix,
        config=config,
        vocab_file=vocab_file if vocab_file.is_file() else None,
        record=record,
        head=record.head if record else None,
        labels=record.labels if record else None,
    )


def _config(home: Path, given: BertConfig | None) -> BertConfig | None:
    """Return the configuration in a directory, or else the given one."""
    path = home / native.CONFIG_FILE_NAME
    return BertConfig.load(path) if path.is_file() else given


def _config_of_shapes(path: Path, prefix: Path) -> BertConfig | None:
    """Return the configuration that the shapes of a Model Garden checkpoint imply; None for other checkpoints."""
    variables = tf1.read_variables(prefix)
    return saved_model.infer_config(path, variables) if tf1.num_attention_heads(variables) else None
