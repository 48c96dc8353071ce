"""Write an open checkpoint in any of the three formats."""

import contextlib
import dataclasses
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from beambert.bert_model.checkpoints import hugging_face, hugging_face_config, model_card, native, tf1
from beambert.bert_model.checkpoints.reader import GLOBAL_STEP, Checkpoint
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.common import file_errors
from beambert.common.tokenizer_files import TOKENIZER_CONFIG_FILE_NAME, AddedToken
from beambert.common.word_rules import WordRules

# End of the name of a temporary directory; the asset files of a SavedModel are in a second one.
_UNFINISHED = re.compile(r"[0-9a-f]{16}\.unfinished(?:\.assets)?")

KINDS = ("native", "tf1", "huggingface")
TF1_CHECKPOINT_NAME = "bert_model.ckpt"


def write(
    checkpoint: Checkpoint,
    destination: Path,
    kind: str,
    vocabulary: bytes,
    word_rules: WordRules,
    keep_optimizer: bool = False,
    further_files: Mapping[str, bytes] | None = None,
    added_tokens: Mapping[int, AddedToken] | None = None,
) -> list[str]:
    """Write a checkpoint atomically: the directory is complete or absent.

    Args:
        checkpoint: an open checkpoint.
        destination: new or empty directory.
        kind: format, one of `KINDS`.
        vocabulary: content of `vocab.txt`.
        word_rules: rules that split text into words; the TF1 format does not record them.
        keep_optimizer: whether to write global_step and the slots, which the Hugging Face format cannot store.
        further_files: content of further files by name.
        added_tokens: tokens that a tokenizer keeps whole, by id; `tokenizer_config.json` records them.

    Returns:
        TF1 names of weights that the format cannot store, and which were not written.

    Raises:
        CheckpointError: the destination is not empty, a tensor cannot be read, or the format cannot store the optimizer
            state.
    """
    check_destination(destination)
    if keep_optimizer and kind == "huggingface":
        raise CheckpointError("the Hugging Face format cannot store the optimizer state; use --optimizer drop")
    with new_directory(destination) as unfinished:
        for name, content in {native.VOCAB_FILE_NAME: vocabulary, **(further_files or {})}.items():
            (unfinished / name).write_bytes(content)
        left_out: list[str] = []
        tokenizer_files = [TOKENIZER_CONFIG_FILE_NAME] if added_tokens or kind == "huggingface" else []
        for name in tokenizer_files:
            text = hugging_face_config.tokenizer_config(checkpoint.config, word_rules, added_tokens)
            (unfinished / name).write_text(text, encoding="utf-8")
        if kind == "tf1":
            _write_named(checkpoint, unfinished, TF1_CHECKPOINT_NAME, keep_optimizer)
            names = [native.CONFIG_FILE_NAME, f"{TF1_CHECKPOINT_NAME}.index"]
        elif kind == "native":
            _write_native(checkpoint, unfinished, word_rules, keep_optimizer)
            names = [native.CONFIG_FILE_NAME, f"{native.CHECKPOINT_NAME}.index", native.FILE_NAME]
        else:
            left_out = hugging_face.write(
                unfinished,
                checkpoint.config,
                checkpoint.head,
                checkpoint.num_labels,
                checkpoint.labels,
                checkpoint.tensors,
            )
            names = [hugging_face_config.CONFIG_FILE_NAME]
        require_files(unfinished, [native.VOCAB_FILE_NAME, *(further_files or {}), *tokenizer_files, *names])
    return left_out


@contextlib.contextmanager
def new_directory(destination: Path) -> Iterator[Path]:
    """Create a directory atomically: it appears under its name when the block ends without an error.

    Temporary directories that killed processes left are removed.

    Args:
        destination: new or empty directory, locked by the caller
            (`beambert.pipelines.io.output_directory.lock_destination`).

    Yields:
        A temporary directory in the same parent directory.

    Raises:
        CheckpointError: the temporary directory was removed.
        FileError: the directory cannot be created.
    """
    unfinished = destination.with_name(f".{destination.name}.{uuid.uuid4().hex[:16]}.unfinished")
    with file_errors.writing(destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        for leftover in _unfinished_directories(destination):
            shutil.rmtree(leftover, ignore_errors=True)
        unfinished.mkdir()
    try:
        yield unfinished
        # `beambert.common.local_files` handles files only. The rename replaces an empty directory too.
        unfinished.replace(destination)
    except Exception as error:
        # Libraries raise different errors for a missing directory.
        vanished = next((path for path in (destination.parent, unfinished) if not path.is_dir()), None)
        if vanished is None:
            raise
        raise CheckpointError(f"{vanished} was removed while the command ran; run the same command again") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _unfinished_directories(destination: Path) -> list[Path]:
    """Return the temporary directories of `new_directory` for a destination."""
    prefix = f".{destination.name}."
    return [
        path
        for path in destination.parent.iterdir()
        if path.name.startswith(prefix) and _UNFINISHED.fullmatch(path.name.removeprefix(prefix))
    ]


def require_files(directory: Path, names: Iterable[str]) -> None:
    """Check that written files still exist.

    Raises:
        CheckpointError: a file is missing; the message contains the first one.
    """
    for name in names:
        if not (directory / name).exists():
            raise CheckpointError(f"{directory / name} was removed while the command ran; run the same command again")


def check_destination(destination: Path) -> None:
    """Check that a new directory can replace a destination, which does not exist or is empty.

    Raises:
        CheckpointError: the destination is not usable.
    """
    if destination.exists() and not destination.is_dir():
        raise CheckpointError(f"{destination} is a file; use a new directory")
    if destination.is_dir() and any(destination.iterdir()):
        raise CheckpointError(f"{destination} already exists; use a new directory, or remove it first")
    if destination.is_symlink():
        target = os.path.realpath(destination)
        raise CheckpointError(f"{destination} is a symbolic link; use its target, {target}, or a new directory")
    parent = next(path for path in (destination, *destination.parents) if path.exists())
    if not parent.is_dir():
        raise CheckpointError(f"{destination} cannot be written: {parent} is a file; use a new directory")
    if os.path.realpath(destination) == os.path.realpath(Path.cwd()):
        # A new directory replaces it, while the shell would remain in the old one.
        raise CheckpointError(f"{destination} is the current directory; use a new directory, such as ./model")
    if os.path.ismount(destination):
        raise CheckpointError(f"{destination} is a mount point; use a new directory in it, such as {destination}/model")


def steps(checkpoint: Checkpoint) -> int | None:
    """Return the number of training steps of a checkpoint; None where it is not recorded.

    Raises:
        CheckpointError: the recorded number is not a count.
    """
    if GLOBAL_STEP in checkpoint.optimizer:
        step = checkpoint.optimizer[GLOBAL_STEP].read()
        if step.shape or step.dtype.kind not in "iu" or not 0 <= step < 2**63:
            raise CheckpointError(f"{checkpoint.path} has a {GLOBAL_STEP} that is not a number of steps; copy it again")
        return int(step)
    return checkpoint.record.steps if checkpoint.record else None


def _write_named(checkpoint: Checkpoint, directory: Path, name: str, keep_optimizer: bool) -> None:
    """Write the configuration, and a checkpoint with TF1 names."""
    optimizer = checkpoint.optimizer if keep_optimizer else {}
    (directory / native.CONFIG_FILE_NAME).write_text(checkpoint.config.to_json(), encoding="utf-8")
    tf1.write(directory / name, {**checkpoint.tensors, **optimizer})


def _write_native(checkpoint: Checkpoint, directory: Path, word_rules: WordRules, keep_optimizer: bool) -> None:
    _write_named(checkpoint, directory, native.CHECKPOINT_NAME, keep_optimizer)
    old = checkpoint.record or native.ModelRecord(
        **checkpoint.head.recorded, origin=f"converted from the {checkpoint.kind} checkpoint {checkpoint.path.name}"
    )
    record = dataclasses.replace(
        old,
        **checkpoint.head.recorded,
        num_labels=checkpoint.num_labels,
        labels=checkpoint.labels,
        **dataclasses.asdict(word_rules),
        steps=steps(checkpoint),
    )
    card = model_card.model_card(checkpoint.config, record, checkpoint.parameters)
    (directory / native.MODEL_CARD_FILE_NAME).write_text(card, encoding="utf-8")
    (directory / native.FILE_NAME).write_text(record.to_json(), encoding="utf-8")
