"""Open a checkpoint in any format: TF1, Hugging Face, native, SavedModel or KerasHub.

It may be a directory, the prefix of a checkpoint or a zip archive.

In every format, the weights have their TF1 names (`variable_names.py`) and TF1 shapes.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from beambert.bert_model.checkpoints import (
    archive,
    hugging_face,
    hugging_face_config,
    keras_hub,
    native,
    saved_model,
    tf1,
)
from beambert.bert_model.checkpoints.checkpoint_files import CheckpointFiles, files_at
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
    files = files_at(path, location, config)
    if files.kind == "huggingface":
        return _open_hugging_face(path, files.home, task)
    return _open_named(path, files, task)


def _open_named(path: Path, files: CheckpointFiles, task: str | None) -> Checkpoint:
    """Open a checkpoint whose variables have TF1 names, or are renamed without a configuration of their own."""
    config, record = files.config, files.record
    if files.prefix is None:
        tensors = keras_hub.read(files.home)
        word_rules = RecordedRules(keras_hub.do_lower_case(files.home))
    else:
        tensors = tf1.read(files.prefix)
        word_rules = record.word_rules if record else RecordedRules()
    if record and not record.next_sentence:
        # With the slots of the optimizer.
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(NEXT_SENTENCE_HEAD)}
    if files.kind == "saved_model":
        tensors = saved_model.without_scope(tensors)
        word_rules = RecordedRules(saved_model.pop_do_lower_case(tensors))
    task = task or (record.task if record else _task_of(tensors))
    num_labels = _num_labels(path, task, tensors.get("output_bias"))
    slots = {name: tensor for name, tensor in tensors.items() if _is_optimizer(name, tensors)}
    weights = {name: tensor for name, tensor in tensors.items() if name not in slots}
    expected = {name.tf1: name.shape for name in variable_names(config, task, num_labels)}
    model_weights = {name: weights[name] for name in expected if name in weights}
    return _checked(
        Checkpoint(
            kind=files.kind,
            path=path,
            config=config,
            task=task,
            num_labels=num_labels,
            labels=files.labels,
            vocab_file=files.vocab_file,
            word_rules=word_rules,
            tensors=model_weights,
            optimizer=slots,
            missing=tuple(name for name in expected if name not in model_weights),
            ignored=tuple(name for name in weights if name not in expected),
            record=record,
            multi_label=record is not None and record.multi_label and task == "classification",
        )
    )


def _open_hugging_face(path: Path, directory: Path, task: str | None) -> Checkpoint:
    description = hugging_face_config.describe(directory)
    stored = hugging_face.read(directory)
    task = task or description.task or _hugging_face_task_of(stored)
    num_labels = _num_labels(path, task, stored.get("classifier.bias"))
    names = variable_names(description.config, task, num_labels)
    tensors, ignored = hugging_face.by_tf1_name(stored, names)
    return _checked(
        Checkpoint(
            kind="huggingface",
            path=path,
            config=description.config,
            task=task,
            num_labels=num_labels,
            labels=description.labels if num_labels else None,
            vocab_file=hugging_face.vocabulary_file(directory),
            word_rules=hugging_face_config.word_rules(directory),
            tensors=tensors,
            optimizer={},
            missing=tuple(name.tf1 for name in names if name.tf1 not in tensors),
            ignored=tuple(ignored),
            multi_label=description.multi_label and task == "classification",
        )
    )


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
