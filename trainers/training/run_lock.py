"""Two commands never write into the directory of one run.

This file imports neither Keras nor TensorFlow: a command is refused before either is started.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from beambert_common.atomic_files import remove_unfinished
from bert_model.checkpoints import native
from pipelines.io.directory_lock import lock_directory


@contextlib.contextmanager
def run_lock(output: Path, strategy: str) -> Iterator[None]:
    """Hold the directory of a run, made where needed, while the body runs.

    Of several machines that train together only the chief holds it, the one that writes its files. What a killed
    process was writing there is removed.

    Args:
        output: the value of --output.
        strategy: the value of --strategy.

    Raises:
        OutputError: another process holds it, or it cannot be written.
    """
    several = strategy in ("auto", "multi_worker") and "TF_CONFIG" in os.environ
    if several and not _is_chief(os.environ["TF_CONFIG"]):
        yield
        return
    with lock_directory(f"--output {output}", output, "another --output"):
        for directory in (output, output / native.CHECKPOINTS_NAME):
            remove_unfinished(directory)
        yield


def _is_chief(tf_config: str) -> bool:
    """Return what `Distribution.is_chief` will be; True where TF_CONFIG cannot be read, which is reported later."""
    try:
        content = json.loads(tf_config)
        kind, index = content["task"]["type"], int(content["task"]["index"])
        return kind == "chief" or (index == 0 and "chief" not in content["cluster"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return True
