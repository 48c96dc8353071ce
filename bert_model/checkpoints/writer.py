"""Write an open checkpoint as any of the three kinds."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from beambert_common import file_errors
from bert_model.checkpoints import hugging_face, hugging_face_config, model_card, native, tf1
from bert_model.checkpoints.reader import GLOBAL_STEP, Checkpoint
from bert_model.checkpoints.stored_tensors import CheckpointError
from bert_model.checkpoints.variable_names import variable_names

KINDS = ("native", "tf1", "huggingface")
TF1_CHECKPOINT_NAME = "bert_model.ckpt"


def write(
    checkpoint: Checkpoint,
    destination: Path,
    kind: str,
    vocabulary: bytes,
    do_lower_case: bool,
    keep_optimizer: bool = False,
) -> list[str]:
    """Write a directory that is complete or absent.

    Args:
        checkpoint: open.
        destination: the directory; must not exist, or be empty.
        kind: one of `KINDS`.
        vocabulary: content of `vocab.txt`.
        do_lower_case: whether text is lower-cased before WordPiece; a TF1 directory has no place for it.
        keep_optimizer: write global_step and the slots too, which Hugging Face's format has no place for.

    Returns:
        TF1 names of weights that were left out because the target has no place for them.

    Raises:
        CheckpointError: the destination holds something, a tensor cannot be read, or the optimizer's state is to be
            kept where there is no place for it.
    """
    check_destination(destination)
    if keep_optimizer and kind == "huggingface":
        raise CheckpointError("Hugging Face's format has no place for the optimizer's state; give --optimizer drop")
    with new_directory(destination) as unfinished:
        (unfinished / native.VOCAB_FILE_NAME).write_bytes(vocabulary)
        left_out: list[str] = []
        if kind == "tf1":
            _write_named(checkpoint, unfinished, TF1_CHECKPOINT_NAME, keep_optimizer)
            names = [native.CONFIG_FILE_NAME, f"{TF1_CHECKPOINT_NAME}.index"]
        elif kind == "native":
            _write_native(checkpoint, unfinished, do_lower_case, keep_optimizer)
            names = [native.CONFIG_FILE_NAME, f"{native.CHECKPOINT_NAME}.index", native.FILE_NAME]
        else:
            left_out = _write_hugging_face(checkpoint, unfinished, do_lower_case)
            names = [hugging_face_config.CONFIG_FILE_NAME, hugging_face_config.TOKENIZER_CONFIG_FILE_NAME]
        require_files(unfinished, [native.VOCAB_FILE_NAME, *names])
    return left_out


@contextlib.contextmanager
def new_directory(destination: Path) -> Iterator[Path]:
    """Make a directory that appears under its name complete, when the block ends, or not at all.

    Args:
        destination: the directory; must not exist, or be empty.

    Yields:
        An empty directory beside it, to be filled.

    Raises:
        CheckpointError: what was written was removed meanwhile.
        FileError: the directory cannot be made.
    """
    unfinished = destination.with_name(f".{destination.name}.unfinished")
    with file_errors.writing(destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
    try:
        yield unfinished
        # A directory, which `beambert_common.atomic_files` has no function for. Takes the place of an empty one too.
        unfinished.replace(destination)
    except Exception as error:
        # Each library that writes files has an error of its own for a directory that is missing.
        vanished = next((path for path in (destination.parent, unfinished) if not path.is_dir()), None)
        if vanished is None:
            raise
        raise CheckpointError(f"{vanished} was removed while the command ran; run the same command again") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def require_files(directory: Path, names: Iterable[str]) -> None:
    """Check that files that were written are still there.

    Raises:
        CheckpointError: it names the first that is missing.
    """
    for name in names:
        if not (directory / name).exists():
            raise CheckpointError(f"{directory / name} was removed while the command ran; run the same command again")


def check_destination(destination: Path) -> None:
    """Refuse a destination that holds something, is a file, or is the current directory.

    Raises:
        CheckpointError: it is one of these.
    """
    if destination.exists() and not destination.is_dir():
        raise CheckpointError(f"{destination} is a file; give a new directory")
    if destination.is_dir() and any(destination.iterdir()):
        raise CheckpointError(f"{destination} is there already; give a new directory, or remove it first")
    parent = next(path for path in (destination, *destination.parents) if path.exists())
    if not parent.is_dir():
        raise CheckpointError(f"{destination} cannot be written: {parent} is a file; give a new directory")
    if os.path.realpath(destination) == os.path.realpath(Path.cwd()):
        # What is written takes the place of the directory, and the shell would stay in the one that was there.
        raise CheckpointError(f"{destination} is the current directory; give a new directory, such as ./model")


def steps(checkpoint: Checkpoint) -> int | None:
    """Return the number of steps that a checkpoint was trained for, None if it is not recorded."""
    if GLOBAL_STEP in checkpoint.optimizer:
        return int(checkpoint.optimizer[GLOBAL_STEP].read())
    return checkpoint.record.steps if checkpoint.record else None


def _write_named(checkpoint: Checkpoint, directory: Path, name: str, keep_optimizer: bool) -> None:
    """Write the configuration, and a checkpoint with TF1 names."""
    optimizer = checkpoint.optimizer if keep_optimizer else {}
    (directory / native.CONFIG_FILE_NAME).write_text(checkpoint.config.to_json(), encoding="utf-8")
    tf1.write(directory / name, {**checkpoint.tensors, **optimizer})


def _write_native(checkpoint: Checkpoint, directory: Path, do_lower_case: bool, keep_optimizer: bool) -> None:
    _write_named(checkpoint, directory, native.CHECKPOINT_NAME, keep_optimizer)
    old = checkpoint.record or native.ModelRecord(
        task=checkpoint.task, origin=f"converted from the {checkpoint.kind} checkpoint {checkpoint.path.name}"
    )
    record = dataclasses.replace(
        old,
        task=checkpoint.task,
        num_labels=checkpoint.num_labels,
        labels=checkpoint.labels,
        do_lower_case=do_lower_case,
        steps=steps(checkpoint),
        multi_label=checkpoint.multi_label,
    )
    card = model_card.model_card(checkpoint.config, record, checkpoint.parameters)
    (directory / native.MODEL_CARD_FILE_NAME).write_text(card, encoding="utf-8")
    (directory / native.FILE_NAME).write_text(record.to_json(), encoding="utf-8")


def _write_hugging_face(checkpoint: Checkpoint, directory: Path, do_lower_case: bool) -> list[str]:
    names = variable_names(checkpoint.config, checkpoint.task, checkpoint.num_labels)
    text = hugging_face_config.tokenizer_config(checkpoint.config, do_lower_case)
    (directory / hugging_face_config.TOKENIZER_CONFIG_FILE_NAME).write_text(text, encoding="utf-8")
    return hugging_face.write(
        directory,
        checkpoint.config,
        checkpoint.task,
        checkpoint.num_labels,
        checkpoint.labels,
        checkpoint.tensors,
        names,
        checkpoint.multi_label,
    )
