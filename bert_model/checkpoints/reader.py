"""Open a checkpoint of any kind: TF1, Hugging Face or native, a directory, a checkpoint's path or a zip archive.

Whatever the kind, the weights are found under their TF1 names (names.py) and in the shapes they have there.
"""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bert_model.checkpoints import archive, hugging_face, hugging_face_config, native, tf1
from bert_model.checkpoints.path_contents import contents_of
from bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor
from bert_model.checkpoints.variable_names import FEATURE_BASED, TASKS, variable_names
from bert_model.config import BertConfig

GLOBAL_STEP = "global_step"
_SLOT = re.compile(r"(.+)/adam_[mv]")
_REMEDY = (
    "give a directory with bert_model.ckpt.index, model.safetensors, pytorch_model.bin or what `beambert pretrain` "
    "wrote, or one of Google's zip archives"
)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An open checkpoint.

    Attributes:
        kind: "tf1", "huggingface" or "native".
        path: what was opened, for messages.
        config: shape of the model.
        task: which head, a name of `variable_names.TASKS`.
        num_labels: number of the head's classes, None where the task has no such number.
        labels: names of the classes, None if they have only numbers.
        vocab_file: `vocab.txt`, or a `tokenizer.json` in its place; None if there is neither.
        do_lower_case: whether text is lower-cased before WordPiece, None if no file says.
        tensors: weights by TF1 name, in the order of the table; those that the file lacks are not there.
        optimizer: global_step and the slots `<weight>/adam_m`, `<weight>/adam_v`, as far as they are there.
        missing: TF1 names of weights that the task has and the file lacks.
        ignored: names, as in the file, of what else it holds.
        record: what `beambert.json` says, of a native model.
        multi_label: whether a text may have several labels: a sigmoid a label in place of the softmax.
    """

    kind: str
    path: Path
    config: BertConfig
    task: str
    num_labels: int | None
    labels: tuple[str, ...] | None
    vocab_file: Path | None
    do_lower_case: bool | None
    tensors: Mapping[str, StoredTensor]
    optimizer: Mapping[str, StoredTensor]
    missing: tuple[str, ...]
    ignored: tuple[str, ...]
    record: native.ModelRecord | None = None
    multi_label: bool = False

    @property
    def parameters(self) -> int:
        """Return the number of parameters, without the optimizer's."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())


@contextlib.contextmanager
def open_checkpoint(path: Path, task: str | None = None, config: BertConfig | None = None) -> Iterator[Checkpoint]:
    """Open a checkpoint; the files of a zip archive can be read only inside the block.

    Args:
        path: a directory, a zip archive as Google released them, a TF1 checkpoint with or without `.index`, or a file
            of weights in a Hugging Face directory.
        task: which head, where the files do not record it or are wrong; None to follow them.
        config: shape of the model, where there is no `bert_config.json` beside a TF1 checkpoint; None to need one.

    Raises:
        CheckpointError, ConfigError: there is no checkpoint, it is damaged, or its weights are not of the shapes that
            its configuration says.
    """
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(archive.unpacked(path)) if path.is_file() and path.suffix == ".zip" else path
        yield _opened(path, place, task, config)


class CheckpointFiles(NamedTuple):
    """The files of a checkpoint, as far as they are found without reading a weight.

    Attributes:
        kind, path, config, vocab_file, record: as of `Checkpoint`.
        home: the directory of the configuration and the vocabulary.
        prefix: of a checkpoint with TF1 names, without `.index`; None for Hugging Face's.
        task: which head, None if only the weights show it.
        labels: names of the classes of that head, None if they have only numbers.
    """

    kind: str
    path: Path
    home: Path
    prefix: Path | None
    config: BertConfig
    vocab_file: Path | None
    record: native.ModelRecord | None
    task: str | None
    labels: tuple[str, ...] | None


def find_files(path: Path, config: BertConfig | None = None) -> CheckpointFiles | None:
    """Find the files of a checkpoint without reading its weights, which may need TensorFlow.

    Args:
        path: as of `open_checkpoint`.
        config: as of `open_checkpoint`.

    Returns:
        The files; None for a zip archive, which is only checked for a checkpoint among its names.

    Raises:
        CheckpointError, ConfigError: as of `open_checkpoint`, where names and small files show it.
    """
    if path.is_file() and path.suffix == ".zip":
        names = archive.file_names(path)
        if not any(name.endswith(".ckpt.index") or name in hugging_face.WEIGHTS_FILE_NAMES for name in names):
            raise CheckpointError(f"{path} holds no checkpoint; {_REMEDY}")
        return None
    return _files(path, path, config)


def _files(path: Path, place: Path, config: BertConfig | None) -> CheckpointFiles:
    directory = place if place.is_dir() else place.parent
    if place.is_dir() and native.load(place):
        return _named_files(path, place, native.model_checkpoint(place), config)
    if hugging_face.is_model(directory) and (place.is_dir() or place.is_file()):
        description = hugging_face_config.describe(directory)
        task = description.task
        return CheckpointFiles(
            kind="huggingface",
            path=path,
            home=directory,
            prefix=None,
            config=description.config,
            vocab_file=hugging_face.vocabulary_file(directory),
            record=None,
            task=task,
            labels=description.labels if task in TASKS and TASKS[task] is None else None,
        )
    prefix = place.with_suffix("") if place.suffix == ".index" else place
    if place.is_dir():
        last = native.checkpoint(place)
        if last:
            return _named_files(path, place, last, config)
    elif Path(f"{prefix}.index").is_file():
        return _named_files(path, directory, prefix, config)
    raise CheckpointError(f"{path} holds no checkpoint: it {contents_of(path)}; {_REMEDY}")


def _named_files(path: Path, directory: Path, prefix: Path | None, config: BertConfig | None) -> CheckpointFiles:
    """Return the files of a checkpoint with TF1 names; a run's checkpoint has its other files one folder up."""
    if prefix is None:
        raise CheckpointError(f"{path} has {native.FILE_NAME} and no checkpoint yet; train the model first")
    home = directory
    if directory.name == native.CHECKPOINTS_NAME and (directory.parent / native.CONFIG_FILE_NAME).is_file():
        home = directory.parent
    config_file = home / native.CONFIG_FILE_NAME
    if config_file.is_file():
        config = BertConfig.load(config_file)
    if config is None:
        raise CheckpointError(
            f"{path} has no {native.CONFIG_FILE_NAME} beside it; copy there the one it was trained with"
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
        task=record.task if record else None,
        labels=record.labels if record else None,
    )


def _opened(path: Path, place: Path, task: str | None, config: BertConfig | None) -> Checkpoint:
    files = _files(path, place, config)
    if files.prefix is None:
        return _open_hugging_face(path, files.home, task)
    return _open_named(path, files, files.prefix, task)


def _open_named(path: Path, files: CheckpointFiles, prefix: Path, task: str | None) -> Checkpoint:
    config, record = files.config, files.record
    tensors = tf1.read(prefix)
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
            do_lower_case=record.do_lower_case if record else None,
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
            do_lower_case=hugging_face_config.do_lower_case(directory),
            tensors=tensors,
            optimizer={},
            missing=tuple(name.tf1 for name in names if name.tf1 not in tensors),
            ignored=tuple(ignored),
            multi_label=description.multi_label and task == "classification",
        )
    )


def _checked(checkpoint: Checkpoint) -> Checkpoint:
    """Refuse weights of other shapes than the configuration's, and files that are not BERT's."""
    if "bert/embeddings/word_embeddings" not in checkpoint.tensors:
        raise CheckpointError(f"{checkpoint.path} holds no word embeddings of a BERT; give a checkpoint of BERT")
    layers = checkpoint.config.num_hidden_layers
    surplus = (f"bert/encoder/layer_{layers}/", f"bert.encoder.layer.{layers}.")
    if any(name.startswith(surplus) for name in checkpoint.ignored):
        raise CheckpointError(
            f"{checkpoint.path} has more layers than its configuration's num_hidden_layers, {layers}; give the "
            "configuration that it was trained with"
        )
    for name in variable_names(checkpoint.config, checkpoint.task, checkpoint.num_labels):
        tensor = checkpoint.tensors.get(name.tf1)
        if tensor and tensor.shape != name.shape:
            raise CheckpointError(
                f"{checkpoint.path} has {name.tf1} of shape {list(tensor.shape)}, its configuration says "
                f"{list(name.shape)}; give the configuration that it was trained with"
            )
    # Heads may be missing, and the pooler, which some heads do without; the rest makes no model without any of it.
    lacking = [name for name in checkpoint.missing if name.startswith(("bert/embeddings/", "bert/encoder/"))]
    if lacking:
        raise CheckpointError(
            f"{checkpoint.path} lacks {len(lacking)} weights of the encoder, the first {lacking[0]}; copy it again, or "
            "give the configuration that it was trained with"
        )
    if checkpoint.labels and checkpoint.num_labels != len(checkpoint.labels):
        raise CheckpointError(
            f"{checkpoint.path} names {len(checkpoint.labels)} labels, its head has {checkpoint.num_labels}; "
            "take the model from its source again"
        )
    return checkpoint


def _is_optimizer(name: str, tensors: Mapping[str, StoredTensor]) -> bool:
    match = _SLOT.fullmatch(name)
    return name == GLOBAL_STEP or (match is not None and match[1] in tensors)


def _task_of(tensors: Mapping[str, StoredTensor]) -> str:
    """Return the task that the released code's heads indicate; a token classifier looks like a text classifier."""
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
    """Return the number of classes of the head, None for a task without such a number."""
    if task not in TASKS or TASKS[task] is not None:
        return None
    if head_bias is None or len(head_bias.shape) != 1:
        raise CheckpointError(f"{path} has no head of {task}; leave --task out, or give a checkpoint that has one")
    return head_bias.shape[0]
