"""What a pretraining run is made of."""

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
    """What a run is made of, checked, before TensorFlow is started.

    Attributes:
        config: the options, resolved.
        directories: of --data.
        datasets: manifest of each directory.
        vocabulary: of all of them.
        stages: of the whole run.
        model_config: shape of the model.
        causal_attention: whether a position sees only itself and those before it.
        record: record of the requested run.
        output: the run's directory.
        initial: the checkpoint that a new run begins with, or None.
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
