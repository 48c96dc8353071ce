"""Define the configuration of `beambert finetune` and of each run of `beambert tune`.

This file imports neither Keras nor TensorFlow.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beambert.common.typed_json import NonNegative, Number, Positive
from beambert.common.word_rules import WordRuleFlags
from beambert.trainers.config.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class SquadConfig:
    """The options of task squad, with the names and defaults of run_squad.py."""

    train_file: str | None = None
    predict_file: str | None = None
    version_2_with_negative: bool = False
    doc_stride: Positive = 128
    max_query_length: Positive = 64
    n_best_size: Positive = 20
    max_answer_length: Positive = 30
    null_score_diff_threshold: Number | str = 0.0


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """The options of task csv."""

    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str = "label"
    problem: str = "classification"
    label_separator: str = ","
    dev_fraction: NonNegative | None = None


@dataclass(frozen=True, kw_only=True)
class TaggingConfig:
    """The options of task ner; None is the default described in the help of the flag."""

    word_column: int | None = None
    tag_column: int | None = None
    comment_prefix: str | None = None
    file_tag_scheme: str | None = None
    tag_scheme: str | None = None
    document_context: bool | None = None
    test_without_tags: bool | None = None
    feature_based: bool | None = None


@dataclass(frozen=True, kw_only=True)
class XnliConfig:
    """The options of task xnli."""

    xnli_language: str | None = None
    xnli_train_language: str | None = None


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(SquadConfig, TableConfig, TaggingConfig, XnliConfig, WordRuleFlags, RunConfig):
    """The configuration of a fine-tuning run; the defaults are those of run_classifier.py and run_squad.py.

    `num_train_steps` and `num_warmup_steps` are not flags: they are computed from the number of examples.
    `given_options` has the names of the flags on the command line. They override the recorded options of a run, also
    with the value of the default.
    """

    task: str
    data_dir: str | None = None
    do_predict: bool = False
    vocab_file: str | None = None
    added_tokens: str | None = None
    bert_config_file: str | None = None
    learning_rate: NonNegative = 5e-5
    num_train_epochs: NonNegative = 3.0
    warmup_proportion: NonNegative = 0.1
    seeds: Positive = 1
    early_stopping: Positive | None = None
    max_seq_length: Positive | None = None
    max_train_samples: Positive | None = None
    max_eval_samples: Positive | None = None
    max_predict_samples: Positive | None = None
    class_weights: str | None = None
    group_by_length: bool | None = None
    cache_dir: str | None = None
    given_options: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return all options by name, as recorded in `run.json`: without `given_options`, which change no result."""
        return {name: value for name, value in super().to_json().items() if name != "given_options"}

    @property
    def data_directory(self) -> Path:
        """Return --data_dir, required for all tasks except squad, as `beambert.trainers.finetuning.prepare` checks."""
        assert self.data_dir is not None
        return Path(self.data_dir)
