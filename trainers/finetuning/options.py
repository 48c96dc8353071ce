"""The options of `beambert finetune` and of each run of `beambert tune`.

Names and defaults are those of run_classifier.py and run_squad.py where they have them. This file imports neither Keras
nor TensorFlow.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from beambert.common.command_line.flags import Number, in_quotes
from beambert.common.command_line.options import (
    BatchSize,
    Flag,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ProperFraction,
    SequenceLength,
)
from beambert.common.command_line.path_flags import ANY_OUTPUT_DIRECTORY, ANY_PATH, LOCAL_PATH, MODEL_NAME_OR_PATH
from beambert.trainers.errors import TrainingError
from beambert.trainers.options import ModelOptions, OnResume, RunOptions

# Value of --null_score_diff_threshold that selects the best threshold for F1.
BEST = "best"

_Column = Annotated[int, Meta(ge=-10_000, le=10_000)]


def _parse_threshold(text: str) -> float | str:
    if text == BEST:
        return text
    try:
        return Number()(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{in_quotes(text)} is not a number or {BEST}") from None


@dataclass(frozen=True, kw_only=True)
class XnliOptions:
    """The options of task xnli.

    Attributes:
        xnli_language: Language of evaluation and prediction, such as en (default: zh, as in run_classifier.py).
        xnli_train_language: Language of the training file multinli.train.CODE.tsv (default: --xnli_language).
    """

    xnli_language: Annotated[str | None, Flag("task: xnli", metavar="CODE"), OnResume.FREE] = None
    xnli_train_language: Annotated[str | None, Flag("task: xnli", metavar="CODE"), OnResume.FREE] = None


@dataclass(frozen=True, kw_only=True)
class SquadOptions:
    """The options of task squad, with the names and defaults of run_squad.py.

    Attributes:
        train_file: Training questions in SQuAD's JSON format (default: train-v1.1.json or train.json in --data_dir;
            train-v2.0.json with --version_2_with_negative).
        predict_file: Questions for evaluation and prediction, with or without answers (default: dev-v1.1.json,
            dev-v2.0.json or dev.json in --data_dir, and for prediction also a test file named the same way).
        version_2_with_negative: Allow questions without an answer, as in SQuAD 2.0.
        doc_stride: Stride of the sliding window over long contexts, in tokens.
        max_query_length: Maximum question length in tokens; longer questions are truncated.
        n_best_size: Number of answers per question in nbest_predictions.json, and of start and end candidates per
            window.
        max_answer_length: Maximum answer length, in tokens.
        null_score_diff_threshold: Predict no answer where the score difference in null_odds.json exceeds this
            threshold; best selects the threshold with the highest F1 on the evaluated questions (default: 0.0).
    """

    train_file: Annotated[str | None, Flag("task: squad", type=ANY_PATH, metavar="FILE"), OnResume.FREE] = None
    predict_file: Annotated[str | None, Flag("task: squad", type=ANY_PATH, metavar="FILE"), OnResume.FREE] = None
    version_2_with_negative: Annotated[bool, Flag("task: squad", nargs="?", const=True), OnResume.FREE] = False
    doc_stride: Annotated[SequenceLength, Flag("task: squad"), OnResume.FREE] = 128
    max_query_length: Annotated[SequenceLength, Flag("task: squad"), OnResume.FREE] = 64
    n_best_size: Annotated[SequenceLength, Flag("task: squad"), OnResume.FREE] = 20
    max_answer_length: Annotated[SequenceLength, Flag("task: squad"), OnResume.FREE] = 30
    null_score_diff_threshold: Annotated[
        float | Literal["best"], Flag("task: squad", type=_parse_threshold, metavar="NUMBER|best"), OnResume.FREE
    ] = 0.0


@dataclass(frozen=True, kw_only=True)
class TaggingOptions:
    """The options of task ner.

    Attributes:
        word_column: Index of the word column; 0 is the first (default: 0).
        tag_column: Index of the tag column; -1 is the last (default: -1).
        comment_prefix: Prefix of comment lines, such as "#" (default: "#" in .conllu files).
        file_tag_scheme: Tag scheme of the files; in io every word has the bare type (default: auto, detected from the
            tags).
        tag_scheme: Tag scheme of the model's labels (default: iob2).
        document_context: Fill sequences up to --max_seq_length with neighboring sentences of the same document
            (separated by -DOCSTART- lines).
        test_without_tags: Read the last column of the test file as a feature, not as tags; not needed for a file with
            words only (default: false).
        feature_based: Freeze BERT and train a BiLSTM on its last four layers (paper, section 5.3).
    """

    word_column: Annotated[_Column | None, Flag("task: ner"), OnResume.FREE] = None
    tag_column: Annotated[_Column | None, Flag("task: ner"), OnResume.FREE] = None
    comment_prefix: Annotated[str | None, Flag("task: ner", metavar="TEXT"), OnResume.FREE] = None
    file_tag_scheme: Annotated[
        Literal["auto", "iob1", "iob2", "iobes", "bilou", "bmes", "io"] | None, Flag("task: ner"), OnResume.FREE
    ] = None
    tag_scheme: Annotated[
        Literal["iob1", "iob2", "iobes", "bilou", "bmes", "io"] | None, Flag("task: ner"), OnResume.FREE
    ] = None
    document_context: Annotated[bool | None, Flag("task: ner"), OnResume.FREE] = None
    test_without_tags: Annotated[bool | None, Flag("task: ner"), OnResume.FREE] = None
    feature_based: Annotated[bool | None, Flag("task: ner"), OnResume.FREE] = None


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of task csv.

    Attributes:
        text_column: Column of the text (default: "text", else "sentence").
        text_pair_column: Column of the second text (default: "text_pair" if it exists).
        label_column: Column of the label, or for multi_label NAME,NAME,...: columns of 0 and 1, each named as its
            label.
        problem: Problem type: one class, any number of labels, or a number.
        label_separator: Separator of several labels in one cell; JSON lines and Parquet may contain lists instead.
        dev_fraction: Fraction of train to use as dev without a dev file, chosen deterministically by a hash of the
            text.
    """

    text_column: Annotated[str | None, Flag("task: csv", metavar="NAME"), OnResume.FREE] = None
    text_pair_column: Annotated[str | None, Flag("task: csv", metavar="NAME"), OnResume.FREE] = None
    label_column: Annotated[str, Flag("task: csv", metavar="NAME"), OnResume.FREE] = "label"
    problem: Annotated[Literal["classification", "multi_label", "regression"], Flag("task: csv"), OnResume.FREE] = (
        "classification"
    )
    label_separator: Annotated[str, Flag("task: csv", metavar="TEXT"), OnResume.FREE] = ","
    dev_fraction: Annotated[Annotated[float, Meta(gt=0, lt=1)] | None, Flag("task: csv"), OnResume.FREE] = None


# The options that only one task has.
TASK_OPTIONS = {"xnli": XnliOptions, "squad": SquadOptions, "ner": TaggingOptions, "csv": TableOptions}


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions(RunOptions, ModelOptions, TableOptions, TaggingOptions, SquadOptions, XnliOptions):
    """The options of a fine-tuning run.

    Attributes:
        task: Task.
        data_dir: Directory of the task's files, in their published layout; docs/reference/fine-tuning-tasks.md lists
            them.
        output: Output directory of the model, the results and the report.
        init_checkpoint: Pretrained model: a directory written by `beambert pretrain` or `convert`, a released BERT
            checkpoint, zip archive or SavedModel, or a model of Hugging Face or KerasHub.
        model: Model size or bert_config.json for training from random weights, instead of --init_checkpoint; requires
            --vocab_file.
        do_train: Train; without any --do flag, `finetune` trains and evaluates.
        do_eval: Evaluate on the development set.
        do_predict: Write predictions for the test set.
        train_batch_size: Global training batch size, in examples.
        learning_rate: Peak learning rate; the paper uses 5e-5, 3e-5 or 2e-5, and models smaller than base need higher
            rates.
        num_train_epochs: Number of training epochs.
        seeds: Number of runs with consecutive seeds from --seed, each in a subdirectory of --output; reports mean,
            standard deviation and best.
        warmup_proportion: Fraction of the training steps with linear learning rate warmup; linear decay to 0 follows.
        seed: Random seed of head initialization, example order and dropout.
        class_weights: Loss weight of each class; balanced weights classes inversely to their frequency (default: 1 for
            each).
        group_by_length: Group examples of similar length into batches, which computes less padding; every epoch still
            has every example once (default: true, but false for a regression).
        best_metric: Evaluation metric that selects the best checkpoint (default: the metric of the task).
        early_stopping: Early stopping patience: stop after N evaluations without improvement of --best_metric.
            Evaluates once per epoch unless --eval_steps is set, and restores the best checkpoint (default: off).
        max_seq_length: Maximum sequence length in tokens, including [CLS] and [SEP]; longer texts are truncated
            (default: 128, or 384 for squad).
        max_train_samples: Use only the first N training examples (default: all).
        max_eval_samples: Use only the first N development examples (default: all).
        max_predict_samples: Use only the first N test examples (default: all).
        cache_dir: Cache directory of encoded examples, shared by runs on the same files (default: features in
            --output).
        given_options: names of the flags on the command line. They override the recorded options of a run, also with
            the value of the default.

    `num_train_steps` and `num_warmup_steps` are not flags: they are computed from the number of examples.

    Raises:
        TrainingError: a value is out of range, or options contradict each other. No files are read.
    """

    task: Annotated[str, Flag("", metavar="TASK"), OnResume.FORBIDDEN]
    data_dir: Annotated[str | None, Flag("input", type=ANY_PATH, metavar="DIR"), OnResume.FREE] = None
    output: Annotated[str, Flag("output", required=True, type=ANY_OUTPUT_DIRECTORY, metavar="DIR"), OnResume.NO_EFFECT]
    init_checkpoint: Annotated[str | None, Flag("model", type=ANY_PATH, metavar="PATH"), OnResume.FREE] = None
    model: Annotated[str | None, Flag("model", type=MODEL_NAME_OR_PATH, metavar="NAME|FILE.json"), OnResume.FREE] = None
    do_train: Annotated[bool, Flag("task"), OnResume.NO_EFFECT] = False
    do_eval: Annotated[bool, Flag("task"), OnResume.NO_EFFECT] = False
    do_predict: Annotated[bool, Flag("task"), OnResume.NO_EFFECT] = False
    train_batch_size: Annotated[BatchSize, Flag("training"), OnResume.LATER_STEPS] = 32
    learning_rate: Annotated[PositiveFloat, Flag("training", metavar="RATE"), OnResume.LATER_STEPS] = 5e-5
    num_train_epochs: Annotated[PositiveFloat, Flag("training", metavar="N"), OnResume.FREE] = 3.0
    seeds: Annotated[int, Meta(ge=1, le=10_000), Flag("training"), OnResume.NO_EFFECT] = 1
    warmup_proportion: Annotated[ProperFraction, Flag("training"), OnResume.FREE] = 0.1
    seed: Annotated[NonNegativeInt, Flag("training"), OnResume.FORBIDDEN] = 12345
    class_weights: Annotated[str | None, Flag("training", metavar="balanced|LABEL=W,..."), OnResume.LATER_STEPS] = None
    group_by_length: Annotated[bool | None, Flag("training"), OnResume.FORBIDDEN] = None
    best_metric: Annotated[str | None, Flag("evaluation", metavar="NAME"), OnResume.FREE] = None
    early_stopping: Annotated[PositiveInt | None, Flag("evaluation"), OnResume.FREE] = None
    max_seq_length: Annotated[SequenceLength | None, Flag("data"), OnResume.FREE] = None
    max_train_samples: Annotated[PositiveInt | None, Flag("data"), OnResume.FREE] = None
    max_eval_samples: Annotated[PositiveInt | None, Flag("data"), OnResume.FREE] = None
    max_predict_samples: Annotated[PositiveInt | None, Flag("data"), OnResume.NO_EFFECT] = None
    cache_dir: Annotated[str | None, Flag("data", type=LOCAL_PATH, metavar="DIR"), OnResume.NO_EFFECT] = None
    given_options: Annotated[tuple[str, ...], OnResume.NO_EFFECT] = ()

    def to_json(self) -> dict[str, Any]:
        """Return all options by name, as recorded in `run.json`: without `given_options`, which change no result."""
        return {name: value for name, value in super().to_json().items() if name != "given_options"}

    def check_task(self) -> None:
        """Check that no flag of another task is set.

        Raises:
            TrainingError: such a flag is set.
        """
        for task, cls in TASK_OPTIONS.items():
            for name, default in vars(cls()).items():
                if task != self.task and getattr(self, name) != default:
                    raise TrainingError(f"--{name} is a flag of {task}, not of {self.task}: omit it")

    @property
    def task_defaults(self) -> dict[str, Any]:
        """Return the defaults of the flags that only the task has, by name."""
        return vars(TASK_OPTIONS[self.task]()) if self.task in TASK_OPTIONS else {}

    @property
    def data_directory(self) -> Path:
        """Return --data_dir, required for all tasks except squad, as `beambert.trainers.finetuning.plan` checks."""
        assert self.data_dir is not None
        return Path(self.data_dir)
