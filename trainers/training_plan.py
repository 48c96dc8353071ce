"""Define what the plans of pretraining and of fine-tuning have in common, and open the run directory of a command.

This file imports neither Keras nor TensorFlow.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from beambert.bert_model.checkpoints.reader import Checkpoint as OpenCheckpoint
from beambert.bert_model.config import BertConfig
from beambert.pipelines.io.output_directory import RUN_MANIFEST, entries_of, require_own
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.backends.startup import choose_backend
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.options import RunOptions
from beambert.trainers.training.run_files import run_lock
from beambert.trainers.training.run_manifest import RunRecord

C = TypeVar("C", bound=RunOptions)


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The validated inputs of a run, before Keras is imported.

    Attributes:
        config: resolved configuration.
        output: the run directory.
        record: content of the new `run.json`.
        vocabulary: vocabulary of the model.
        model_config: configuration of the model.
        causal_attention: whether the model uses causal attention.
        stages: all stages of training; none for a fine-tuning run without training.
        initial: checkpoint with the initial weights of a new run or of an evaluation; None for random weights and for a
            run that resumes.
        start: time of the clock at which the command started, in seconds.
        clock: monotonic clock in seconds.
        records_evaluation: whether the metrics of the evaluation are written to metrics.jsonl and the model card: in
            training, and on the run's own evaluation examples.
    """

    config: RunOptions
    output: Path
    record: RunRecord
    vocabulary: Vocabulary
    model_config: BertConfig
    causal_attention: bool
    stages: list[Stage]
    initial: OpenCheckpoint | None
    start: float
    clock: Callable[[], float]
    records_evaluation: bool = True

    @property
    def num_train_steps(self) -> int:
        """Return the number of training steps, 0 without training."""
        return self.stages[-1].end_step if self.stages else 0


@contextlib.contextmanager
def open_output(config: C, command: str, cached: Collection[str] = ()) -> Iterator[C]:
    """Lock the run directory of a command while the body runs.

    Args:
        config: configuration of the command.
        command: name of the command.
        cached: entries of the directory that may exist before its first run.

    Yields:
        The configuration with the backend chosen, which determines the process that locks the directory.

    Raises:
        OutputError: the directory has files of another command, is in use or is not writable.
        TrainingError: the backend is not installed.
    """
    output = Path(config.output)
    # Checked before the lock file is written, and again under the lock, when no other process writes.
    require_own(f"--output {output}", entries_of(output) - set(cached), command, (RUN_MANIFEST,))
    config = dataclasses.replace(config, backend=choose_backend(config.backend))
    with run_lock(output, config):
        require_own(f"--output {output}", entries_of(output) - set(cached), command, (RUN_MANIFEST,))
        yield config
