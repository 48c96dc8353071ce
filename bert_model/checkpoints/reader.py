"""Open a checkpoint in any format, or find its files: TF1, Hugging Face, native, SavedModel or KerasHub.

It may be a directory, the prefix of a checkpoint or a zip archive.

In every format, the weights have their TF1 names (`variable_names.py`) and TF1 shapes.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
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
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor
from beambert.bert_model.checkpoints.variable_names import (
    FEATURE_BASED,
    NEXT_SENTENCE_HEAD,
    TASKS,
    TOKEN_VARIABLES,
    variable_names,
)
from beambert.bert_model.config import BertConfig, is_rounded_up
from beambert.common.word_rules import RecordedRules

GLOBAL_STEP = "global_step"
_REMEDY = (
    "give a directory with bert_model.ckpt.index, model.safetensors or pytorch_model.bin, a directory written by "
    "`beambert pretrain`, a SavedModel or KerasHub preset of BERT, or a released zip archive"
)


class CheckpointFiles(NamedTuple):
    """The files of a checkpoint, found without reading weights.

    Attributes:
        kind, path, config, vocab_file, record, multi_label: as in `Checkpoint`.
        home: directory of the configuration and the vocabulary.
        prefix: prefix of a TensorFlow checkpoint, without `.index`; None for Hugging Face and KerasHub models.
        task: task of the head; None where only the weights determine it.
        labels: names of the classes; None where they have no names.
    """

    kind: str
    path: Path
    home: Path
    prefix: Path | None
    config: BertConfig
    vocab_file: Path | None
    record: native.ModelRecord | None = None
    task: str | None = None
    labels: tuple[str, ...] | None = None
    multi_label: bool = False


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An open checkpoint.

    Attributes:
        kind: format: "tf1", "huggingface", "native", "saved_model" or "keras_hub".
        path: path of the checkpoint, for messages.
        config: configuration of the model.
        task: task of the head, one of `variable_names.TASKS`.
        num_labels: number of classes; None for a task without classes.
        labels: names of the classes; None where they have no names.
        vocab_file: path of `vocab.txt` or `tokenizer.json`; None where both are missing.
        word_rules: recorded rules that split text into words.
        tensors: weights by TF1 name, in the order of `variable_names`, without missing ones.
        optimizer: global_step and the slots `<weight>/<slot>` of the optimizer, where present.
        missing: TF1 names of the task's weights that the file lacks, or that were never trained.
        ignored: names of further tensors in the file.
        record: content of `beambert.json` of a native model, else None.
        multi_label: whether a text may have several labels, with a sigmoid per label instead of the softmax.
    """

    kind: str
    path: Path
    config: BertConfig
    task: str
    num_labels: int | None
    labels: tuple[str, ...] | None
    vocab_file: Path | None
    word_rules: RecordedRules
    tensors: Mapping[str, StoredTensor]
    optimizer: Mapping[str, StoredTensor]
    missing: tuple[str, ...]
    ignored: tuple[str, ...]
    record: native.ModelRecord | None = None
    multi_label: bool = False

    @property
    def parameters(self) -> int:
        """Return the number of parameters, without optimizer state."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())


@contextlib.contextmanager
def open_checkpoint(path: Path, task: str | None = None, config: BertConfig | None = None) -> Iterator[Checkpoint]:
    """Open a checkpoint; the tensors of a zip archive can be read only inside the block.

    Args:
        path: a directory, a released zip archive, the prefix of a TF1 checkpoint with or without `.index`, or a weight
            file in a Hugging Face directory.
        task: task of the head, to override that of the files; None to use the recorded task.
        config: configuration of a TF1 checkpoint without `bert_config.json`; None to require the file.

    Yields:
        The checkpoint.

    Raises:
        CheckpointError, ConfigError: there is no checkpoint, it is corrupt, or its weights do not have the shapes of
            its configuration.
    """
    with contextlib.ExitStack() as stack:
        location = stack.enter_context(archive.unpacked(path)) if path.is_file() and path.suffix == ".zip" else path
        yield _open(path, location, task, config)


def _open(path: Path, location: Path, task: str | None, config: BertConfig | None) -> Checkpoint:
    files = _files_at(path, location, config)
    slots: dict[str, StoredTensor] = {}
    if files.kind == "huggingface":
        stored = hugging_face.read(files.home)
        word_rules = hugging_face_config.word_rules(files.home)
        task = task or files.task or _hugging_face_task_of(stored)
        num_labels = _num_labels(path, task, stored.get("classifier.bias"))
        names = variable_names(files.config, task, num_labels)
        weights, ignored = hugging_face.by_tf1_name(stored, names)
    else:
        stored, word_rules = _read_named(files)
        task = task or files.task or _task_of(stored)
        num_labels = _num_labels(path, task, stored.get("output_bias"))
        names = variable_names(files.config, task, num_labels)
        slots = {name: tensor for name, tensor in stored.items() if _is_optimizer(name, stored)}
        weights = {name.tf1: stored[name.tf1] for name in names if name.tf1 in stored}
        ignored = [name for name in stored if name not in weights and name not in slots]
    return _checked(
        Checkpoint(
            kind=files.kind,
            path=path,
            config=files.config,
            task=task,
            num_labels=num_labels,
            labels=files.labels if num_labels or files.record else None,
            vocab_file=files.vocab_file,
            word_rules=word_rules,
            tensors=weights,
            optimizer=slots,
            missing=tuple(name.tf1 for name in names if name.tf1 not in weights),
            ignored=tuple(ignored),
            record=files.record,
            multi_label=files.multi_label and task == "classification",
        )
    )


def _read_named(files: CheckpointFiles) -> tuple[dict[str, StoredTensor], RecordedRules]:
    """Return the tensors by TF1 name of a checkpoint in another format than Hugging Face's, and its word rules."""
    if files.prefix is None:
        return keras_hub.read(files.home), RecordedRules(keras_hub.do_lower_case(files.home))
    tensors = tf1.read(files.prefix)
    if files.kind == "saved_model":
        tensors = saved_model.without_scope(tensors)
        return tensors, RecordedRules(saved_model.pop_do_lower_case(tensors))
    if files.record is None:
        return tensors, RecordedRules()
    if not files.record.next_sentence:
        # With the slots of the optimizer.
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(NEXT_SENTENCE_HEAD)}
    return tensors, files.record.word_rules


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
    return _files_at(path, path, config)


def _files_at(path: Path, location: Path, config: BertConfig | None) -> CheckpointFiles:
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
        has_classes = description.task is None or TASKS.get(description.task, 0) is None
        return CheckpointFiles(
            kind="huggingface",
            path=path,
            home=directory,
            prefix=None,
            config=description.config,
            vocab_file=_first_file(directory / "vocab.txt", directory / "tokenizer.json"),
            task=description.task,
            labels=description.labels if has_classes else None,
            multi_label=description.multi_label,
        )
    if location.is_dir() and keras_hub.is_preset(location):
        return CheckpointFiles(
            kind="keras_hub",
            path=path,
            home=location,
            prefix=None,
            config=keras_hub.config_of(location),
            vocab_file=_first_file(location / "assets/tokenizer/vocabulary.txt"),
        )
    if saved_model.is_saved_model(location):
        prefix = saved_model.prefix_of(location)
        return CheckpointFiles(
            kind="saved_model",
            path=path,
            home=location,
            prefix=prefix,
            config=_config(location, config) or saved_model.infer_config(location, tf1.read_variables(prefix)),
            vocab_file=_first_file(location / "assets/vocab.txt"),
        )
    prefix = location.with_suffix("") if location.suffix == ".index" else location
    if location.is_dir():
        last = native.checkpoint(location)
        if last:
            return _named_files(path, location, last, config)
    elif Path(f"{prefix}.index").is_file():
        return _named_files(path, directory, prefix, config)
    raise CheckpointError(f"{path} is not a checkpoint: it {contents_of(path)}; {_REMEDY}")


def _first_file(*paths: Path) -> Path | None:
    """Return the first path that is a file, or None."""
    return next((path for path in paths if path.is_file()), None)


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
    return CheckpointFiles(
        kind="native" if record else "tf1",
        path=path,
        home=home,
        prefix=prefix,
        config=config,
        vocab_file=_first_file(home / native.VOCAB_FILE_NAME),
        record=record,
        task=record.task if record else None,
        labels=record.labels if record else None,
        multi_label=record is not None and record.multi_label,
    )


def _config(home: Path, given: BertConfig | None) -> BertConfig | None:
    """Return the configuration in a directory, or else the given one."""
    path = home / native.CONFIG_FILE_NAME
    return BertConfig.load(path) if path.is_file() else given


def _config_of_shapes(path: Path, prefix: Path) -> BertConfig | None:
    """Return the configuration that the shapes of a Model Garden checkpoint imply; None for other checkpoints."""
    variables = tf1.read_variables(prefix)
    return saved_model.infer_config(path, variables) if tf1.num_attention_heads(variables) else None


def _checked(checkpoint: Checkpoint) -> Checkpoint:
    """Check that a checkpoint is a BERT with the shapes of its configuration. Raise CheckpointError where it is not."""
    if "bert/embeddings/word_embeddings" not in checkpoint.tensors:
        raise CheckpointError(f"{checkpoint.path} has no word embeddings of BERT; use a BERT checkpoint")
    # Some programs round vocab_size up in the weights only.
    rows, vocab_size = next(iter(checkpoint.tensors[TOKEN_VARIABLES[0]].shape), 0), checkpoint.config.vocab_size
    if rows > vocab_size and is_rounded_up(rows, vocab_size):
        checkpoint = dataclasses.replace(
            checkpoint,
            tensors=first_token_rows(checkpoint.tensors, vocab_size),
            optimizer=first_token_rows(checkpoint.optimizer, vocab_size),
            ignored=(*checkpoint.ignored, f"rows {vocab_size} to {rows - 1} of {TOKEN_VARIABLES[0]}"),
        )
    layers = checkpoint.config.num_hidden_layers
    surplus = (f"bert/encoder/layer_{layers}/", f"bert.encoder.layer.{layers}.")
    if any(name.startswith(surplus) for name in checkpoint.ignored):
        raise CheckpointError(
            f"{checkpoint.path} has more layers than num_hidden_layers {layers} of its configuration; use the "
            "configuration that it was trained with"
        )
    for name in variable_names(checkpoint.config, checkpoint.task, checkpoint.num_labels):
        tensor = checkpoint.tensors.get(name.tf1)
        if tensor and tensor.shape != name.shape:
            raise CheckpointError(
                f"{checkpoint.path} has {name.tf1} of shape {list(tensor.shape)}, while its configuration implies "
                f"{list(name.shape)}; use the configuration that it was trained with"
            )
    # Heads are optional, and so is the pooler, which some heads do not use; all other weights are required.
    lacking = [name for name in checkpoint.missing if name.startswith(("bert/embeddings/", "bert/encoder/"))]
    if lacking:
        raise CheckpointError(
            f"{checkpoint.path} is missing {len(lacking)} weights of the encoder, such as {lacking[0]}; copy it again, "
            "or use the configuration that it was trained with"
        )
    if checkpoint.labels and checkpoint.num_labels != len(checkpoint.labels):
        raise CheckpointError(
            f"{checkpoint.path} has {len(checkpoint.labels)} labels, but its head has {checkpoint.num_labels}; "
            "copy the model from its source again"
        )
    return checkpoint


def first_token_rows(tensors: Mapping[str, StoredTensor], count: int) -> dict[str, StoredTensor]:
    """Return tensors, of which those with one row per token and their optimizer slots have the first rows only."""
    names = {name for name in tensors if name in TOKEN_VARIABLES or name.rpartition("/")[0] in TOKEN_VARIABLES}

    def first_rows(tensor: StoredTensor) -> StoredTensor:
        return StoredTensor((count, *tensor.shape[1:]), tensor.dtype, lambda: tensor.read()[:count])

    return {name: first_rows(tensor) if name in names else tensor for name, tensor in tensors.items()}


def _is_optimizer(name: str, tensors: Mapping[str, StoredTensor]) -> bool:
    return name == GLOBAL_STEP or name.rpartition("/")[0] in tensors


def _task_of(tensors: Mapping[str, StoredTensor]) -> str:
    """Infer the task from the heads of the released code; token classifiers look like text classifiers."""
    if "cls/squad/output_weights" in tensors:
        return "span"
    if any(name.startswith("bilstm/") for name in tensors):
        return FEATURE_BASED
    if "output_weights" in tensors:
        return "regression" if tensors["output_weights"].shape[:1] == (1,) else "classification"
    return "pretraining"


def _hugging_face_task_of(tensors: Mapping[str, StoredTensor]) -> str:
    if "qa_outputs.weight" in tensors:
        return "span"
    if "classifier.weight" in tensors:
        return "regression" if tensors["classifier.weight"].shape[:1] == (1,) else "classification"
    return "pretraining"


def _num_labels(path: Path, task: str, head_bias: StoredTensor | None) -> int | None:
    """Return the number of classes of the head; None for a task without classes."""
    if task not in TASKS or TASKS[task] is not None:
        return None
    if head_bias is None or len(head_bias.shape) != 1:
        raise CheckpointError(f"{path} has no {task} head; omit --task, or use a checkpoint with such a head")
    return head_bias.shape[0]
