"""Lock a run directory, so that two commands never write into it at the same time.

This file imports neither Keras nor TensorFlow, so that a second command fails at once.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from beambert.bert_model.checkpoints import native
from beambert.common.local_files import remove_unfinished
from beambert.pipelines.io.output_directory import lock_directory
from beambert.trainers.options import RunOptions


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
