"""Define the validated plan of a pretraining run."""

from pathlib import Path
from typing import NamedTuple

from bert_model.checkpoints.reader import Checkpoint as OpenCheckpoint
from bert_model.config import BertConfig
from pipelines.dataset import Dataset
from tokenizer.vocabulary import Vocabulary
from trainers.config.pretrain_config import PretrainConfig
from trainers.optimization.schedule import Stage
from trainers.training.run_manifest import RunRecord


class PretrainingPlan(NamedTuple):
    """The validated inputs of a run, before TensorFlow starts.

    Attributes:
        config: resolved configuration.
        directories: the directories of --data.
        datasets: manifest of each directory.
        vocabulary: the vocabulary that all datasets share.
        stages: all stages of training.
        model_config: configuration of the model.
        causal_attention: whether the model uses causal attention.
        record: content of the new `run.json`.
        output: the run directory.
        initial: checkpoint with the initial weights of a new run, or None.
        start: monotonic time at which the command started, in seconds.
    """

    config: PretrainConfig
    directories: tuple[Path, ...]
    datasets: tuple[Dataset, ...]
    vocabulary: Vocabulary
    stages: list[Stage]
    model_config: BertConfig
    causal_attention: bool
    record: RunRecord
    output: Path
    initial: OpenCheckpoint | None
    start: float
