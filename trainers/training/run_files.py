"""Lock a run directory, write the files that identify it, and check that they exist: it may be deleted in training.

This file imports neither Keras nor TensorFlow.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from beambert.bert_model.checkpoints import native
from beambert.bert_model.checkpoints.hugging_face_config import tokenizer_config
from beambert.bert_model.config import BertConfig
from beambert.common import file_errors
from beambert.common.file_errors import AGAIN
from beambert.common.local_files import remove_unfinished, write_atomic
from beambert.common.tokenizer_files import TOKENIZER_CONFIG_FILE_NAME
from beambert.common.word_rules import WordRules
from beambert.pipelines.io.output_directory import entries_of, lock_directory
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.errors import StorageError
from beambert.trainers.options import RunOptions
from beambert.trainers.training import run_manifest
from beambert.trainers.training.run_manifest import RunRecord

# Directories that training creates again if they are missing.
_RECREATED = {native.CHECKPOINTS_NAME, "logs"}
# Encoded examples are cached before the run starts; their files are named by content, so that none is ever replaced.
_CACHED = {"features"}


@contextlib.contextmanager
def run_lock(output: Path, config: RunOptions) -> Iterator[None]:
    """Lock a run directory, created if needed, while the body runs.

    Of several machines that train together, only the chief locks the directory, since it writes the files. Incomplete
    files of a killed process are removed.

    Args:
        output: value of --output.
        config: configuration with the backend chosen, and the processes that train together.

    Raises:
        OutputError: another process holds the lock, or the directory is not writable.
    """
    if not is_chief(config):
        yield
        return
    with lock_directory(f"--output {output}", output, "another --output"):
        for directory in (output, output / native.CHECKPOINTS_NAME):
            remove_unfinished(directory)
        yield


def is_chief(config: RunOptions) -> bool:
    """Return whether this process writes the files of a run, of several that train together.

    TF_CONFIG names the machines of TensorFlow only: cluster managers set it for every program.

    Args:
        config: configuration with the backend chosen.
    """
    uses_tf_config = config.backend == "tensorflow" and config.strategy in ("auto", "multi_worker")
    if uses_tf_config and "TF_CONFIG" in os.environ:
        return _is_chief(os.environ["TF_CONFIG"])
    return config.processes is None or config.processes.is_chief


def _is_chief(tf_config: str) -> bool:
    """Return the later value of `Distribution.is_chief`; True for an invalid TF_CONFIG, which is reported later."""
    try:
        content = json.loads(tf_config)
        kind, index = content["task"]["type"], int(content["task"]["index"])
        return kind == "chief" or (index == 0 and "chief" not in content["cluster"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return True


def first_files(vocabulary: Vocabulary, config: BertConfig, record: RunRecord) -> dict[str, bytes]:
    """Return the content of the files that identify a run directory, by name, in the order of writing.

    `run.json` comes first: by it the same command recognizes the directory as its own.
    """
    files = {
        run_manifest.FILE_NAME: record.to_json().encode(),
        native.VOCAB_FILE_NAME: vocabulary.to_bytes(),
        native.CONFIG_FILE_NAME: config.to_json().encode(),
    }
    if vocabulary.added_tokens:
        text = tokenizer_config(config, WordRules.of(record), vocabulary.added_by_id)
        files[TOKENIZER_CONFIG_FILE_NAME] = text.encode()
    return files


def write_first_files(output: Path, files: Mapping[str, bytes]) -> None:
    """Create a run directory and write `first_files` there, each atomically."""
    with file_errors.writing(output):
        output.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomic(output / name, content)


def model_of_run(output: Path, training: bool) -> native.ModelRecord | None:
    """Return the record of the model in a run directory; None if it is missing.

    Args:
        output: the directory.
        training: whether the command trains and therefore rewrites the record.

    Raises:
        CheckpointError: the record is invalid.
    """
    command = "the same command" if training else "the command that trained the model"
    return native.load(output, f"remove {output / native.FILE_NAME} and run {command} again")


@contextlib.contextmanager
def directory_errors(output: Path, record: RunRecord, *, is_chief: bool) -> Iterator[None]:
    """Raise an error that names the run directory if a file cannot be written because the directory is missing.

    If the directory is deleted during training, the next checkpoint or log creates it again. Without `run.json` the
    same command would refuse these as unknown files, so that file is written again.

    Args:
        output: the directory.
        record: the content of `run.json`.
        is_chief: whether this process writes the run's files.

    Raises:
        StorageError: the directory is missing.
    """
    try:
        yield
    except Exception as error:
        if is_chief and output.is_dir():
            entries = entries_of(output) - _CACHED
            if entries and entries <= _RECREATED:
                with contextlib.suppress(OSError):
                    write_atomic(output / run_manifest.FILE_NAME, record.to_json().encode())
        if not isinstance(error, FileNotFoundError) or output.is_dir():
            raise
        raise StorageError(f"{output} was removed, moved or replaced while the command ran; {AGAIN}") from error


def require_files(output: Path, contents: Mapping[str, bytes | None], checkpoint: Path | None) -> None:
    """Check that the files that a run reports as written exist. Call it last.

    A missing file whose content is known is written again, since the run could not be resumed without it.

    Args:
        output: the run directory.
        contents: expected content of each file by name; None for any content.
        checkpoint: path of the model's checkpoint without `.index`; None if there is no checkpoint.

    Raises:
        StorageError: a file is missing or has changed; the message names the first one.
    """
    if not output.is_dir():
        raise StorageError(f"{output} was removed, moved or replaced while the command ran; {AGAIN}")
    missing = [name for name in contents if not (output / name).exists()]
    for name in missing:
        content = contents[name]
        if content is not None:
            write_atomic(output / name, content)
    for name, content in contents.items():
        path = output / name
        if name in missing:
            raise StorageError(f"{path} was removed while the command ran; {AGAIN}")
        if content is not None and path.read_bytes() != content:
            raise StorageError(f"{path} was changed while the command ran; {AGAIN}")
    if checkpoint is None:
        return
    if not Path(f"{checkpoint}.index").exists() or not list(checkpoint.parent.glob(f"{checkpoint.name}.data-*")):
        raise StorageError(
            f"checkpoint {checkpoint} was removed while the command ran; {AGAIN}: it resumes from the one before it"
        )


def require_checkpoint(directory: Path, step: int) -> None:
    """Check that the last checkpoint exists, before an older one is used as the model.

    Args:
        directory: directory of the checkpoints.
        step: last step of training.

    Raises:
        StorageError: the checkpoint was removed.
    """
    checkpoint = Checkpoint.of_step(directory, step)
    if not checkpoint.index_file.exists():
        raise StorageError(f"checkpoint {checkpoint.prefix} was removed while the command ran; {AGAIN}")


def stale_best(directory: Path) -> bytes | None:
    """Return the content of `best.json` if its checkpoint is missing, as after a killed save; otherwise None."""
    record = directory / checkpoint_manager.BEST_FILE_NAME
    return record.read_bytes() if record.exists() and checkpoint_manager.best(directory) is None else None


def require_best(directory: Path, stale: bytes | None) -> None:
    """Check that the checkpoint recorded as the best exists, before another one is used as the model.

    Args:
        directory: directory of the checkpoints.
        stale: result of `stale_best` at the start of the command, which is not an error.

    Raises:
        StorageError: the checkpoint was removed, or the record cannot be read.
    """
    if stale_best(directory) not in (None, stale):
        record = directory / checkpoint_manager.BEST_FILE_NAME
        raise StorageError(
            f"the best checkpoint, named in {record}, was removed while the command ran; run the same command again to "
            "use the last checkpoint as the model, or give another --output to train again"
        )
