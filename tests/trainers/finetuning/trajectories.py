"""Reproducible fine-tuning of tiny models on random rows, with the steps of beambert's training loop.

The results of transformers with the same weights and rows are in tests/fixtures/finetuning.json, written by
tests/parity/record_finetuning.py.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from beambert.bert_model.checkpoints import native, tf1
from beambert.bert_model.checkpoints.stored_tensors import StoredTensor
from beambert.bert_model.checkpoints.variable_names import variable_names, variables_by_tf1_name
from beambert.bert_model.config import BertConfig
from beambert.bert_model.finetuning_models import BertForTask
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.backends.tensorflow.train_step import Trainer
from beambert.trainers.data.pipeline import Batches, InputShard
from beambert.trainers.finetuning.batches import Width, features_of, train_batches
from beambert.trainers.finetuning.finetuning_objectives import finetuning_objective
from beambert.trainers.finetuning.finetuning_task import Rows
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.options import TrainingOptions
from tests.trainers.finetuning.rows_of_random_text import CONFIG, LABELS, random_rows

# No dropout, since every library draws its random numbers differently.
TINY = dataclasses.replace(CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
ROWS = 43
ANSWERED = 12


class Case(NamedTuple):
    """A head, and whether a row may have several labels."""

    head: str
    multi_label: bool = False

    @property
    def num_labels(self) -> int | None:
        """Return the number of classes; None where the head determines it."""
        return LABELS if self.head in ("classification", "token_classification") else None

    def rows(self) -> Rows:
        """Return training rows of 4 to 24 tokens; epochs end within a step."""
        return random_rows(self.head, ROWS, self.multi_label)

    def answered(self) -> Rows:
        """Return rows that are not trained on, whose logits are compared at the end."""
        return random_rows(self.head, ANSWERED, self.multi_label, seed=1)


CASES = {
    "classification": Case("classification"),
    "multi_label": Case("classification", multi_label=True),
    "regression": Case("regression"),
    "multiple_choice": Case("multiple_choice"),
    "span": Case("span"),
    "token_classification": Case("token_classification"),
}


class Course(NamedTuple):
    """The options of a training run.

    Learning rate and weight decay are large, so that both have an effect after few steps.

    Attributes:
        optimizer: as in `OptimizerOptions`.
        steps: number of training steps.
        warmup_steps: number of warmup steps among them.
        batch_size: number of rows per step.
        learning_rate: peak learning rate.
        weight_decay: weight decay of the optimizer.
        clip_norm: maximum global gradient norm.
        seed: random seed of the order of rows.
    """

    optimizer: str
    steps: int = 30
    warmup_steps: int = 0
    batch_size: int = 8
    learning_rate: float = 2e-3
    weight_decay: float = 0.1
    clip_norm: float = 1.0
    seed: int = 7

    def settings(self, **changes: int) -> TrainingOptions:
        """Return the options for beambert's training loop, with changed fields."""
        return TrainingOptions(
            num_train_steps=self.steps,
            num_warmup_steps=self.warmup_steps,
            learning_rate=self.learning_rate,
            seed=self.seed,
            optimizer=self.optimizer,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            **changes,
        )


# The warmup is that of the released code: after it, the learning rate is on the line that decays from the first step.
# The schedule of transformers is the same only without warmup.
COURSES = {"bert_adam": Course("bert_adam", warmup_steps=5), "adamw": Course("adamw")}

# The recorded trajectories: every head with the released optimizer, and one head with the other optimizer.
RECORDED = [*((name, "bert_adam") for name in CASES), ("classification", "adamw")]


class Trajectory(NamedTuple):
    """The results of a training run.

    Attributes:
        losses: loss of every step, before the weights change.
        logits: logits of every row after the last step, as in `finetuning_task.Logits`.
    """

    losses: list[float]
    logits: list[np.ndarray]

    def differences(self, other: "Trajectory", case: Case) -> list[float]:
        """Return the largest absolute difference between the logits of each row.

        A softmax over choices or positions does not change if a constant is added to all logits. The gradient of the
        head's bias therefore consists of rounding errors only, and the effect of the bias is subtracted.
        """

        def said(logits: np.ndarray) -> np.ndarray:
            shift_free = case.head in ("multiple_choice", "span")
            return logits - logits.mean(axis=-1, keepdims=True) if shift_free else logits

        return [
            float(np.abs(said(one) - said(another)).max())
            for one, another in zip(self.logits, other.logits, strict=True)
        ]

    def predictions(self, case: Case) -> list[list[int]]:
        """Return the most likely labels of each row or token, or the most likely start and end; [] for regression."""
        if case.head == "regression":
            return []
        if case.multi_label:
            return [np.flatnonzero(row > 0).tolist() for row in self.logits]
        return [np.atleast_1d(np.asarray(row).argmax(axis=-1)).tolist() for row in self.logits]


def weights(config: BertConfig, head: str, num_labels: int | None) -> dict[str, np.ndarray]:
    """Return weights by TF1 name, from a random stream that NumPy has frozen (NEP 19).

    Their spread is wide enough for the first step to have a measurable effect.
    """
    stream = np.random.RandomState(20)
    values = {}
    for name in variable_names(config, head, num_labels):
        value = stream.uniform(-0.25, 0.25, name.shape)
        values[name.tf1] = (value + name.tf1.endswith("gamma")).astype(np.float32)
    return values


def write_weights(
    directory: Path,
    config: BertConfig,
    case: Case,
    labels: Sequence[str] | None = None,
    vocabulary: Vocabulary | None = None,
) -> Path:
    """Write `weights` as a native model, and return its directory.

    Args:
        directory: directory to create.
        config: configuration of the model.
        case: head of the model.
        labels: names of the classes; None for made-up names of the classes of `case`.
        vocabulary: vocabulary of the model; None for a made-up one.
    """
    directory.mkdir()
    if labels is None and case.num_labels:
        labels = [f"label {number}" for number in range(case.num_labels)]
    num_labels = len(labels) if labels else None
    values = weights(config, case.head, num_labels)
    tensors = {name: StoredTensor(value.shape, "float32", lambda value=value: value) for name, value in values.items()}
    tf1.write(directory / native.CHECKPOINT_NAME, tensors)
    record = native.ModelRecord(
        task=case.head,
        num_labels=num_labels,
        labels=tuple(labels) if labels else None,
        do_lower_case=True,
        causal_attention=False,
        multi_label=case.multi_label,
    )
    if vocabulary is None:
        more = config.vocab_size - len(SPECIAL_TOKENS)
        vocabulary = Vocabulary((*SPECIAL_TOKENS, *(f"piece{number}" for number in range(more))))
    (directory / native.CONFIG_FILE_NAME).write_text(config.to_json(), encoding="utf-8")
    (directory / native.FILE_NAME).write_text(record.to_json(), encoding="utf-8")
    (directory / native.VOCAB_FILE_NAME).write_bytes(vocabulary.to_bytes())
    return directory


def our_trajectory(
    case: Case,
    course: Course,
    rows: Rows,
    answered: Rows,
    *,
    config: BertConfig = TINY,
    num_labels: int | None = None,
    class_weights: Sequence[float] | None = None,
    gradient_accumulation_steps: int = 1,
) -> Trajectory:
    """Train `weights` with the steps of beambert's training loop, on the batches that a run would have.

    Args:
        case: head to train.
        course: options of the training run.
        rows: training rows.
        answered: rows whose logits are computed at the end.
        config: configuration of the model; rows of spans are padded to `max_position_embeddings`.
        num_labels: number of classes; None for that of `case`.
        class_weights: class weights of the loss.
        gradient_accumulation_steps: number of micro-batches per step.
    """
    num_labels = num_labels or case.num_labels
    model = BertForTask(config, case.head, num_labels)
    values = weights(config, case.head, num_labels)
    for name, variable in variables_by_tf1_name(model).items():
        variable.assign(values[name])
    task = finetuning_objective(model, multi_label=case.multi_label, class_weights=class_weights)
    trainer = Trainer(task, course.settings(gradient_accumulation_steps=gradient_accumulation_steps))
    stage = Stage(0, course.batch_size, 0, course.steps, 0)
    width = Width(config.max_position_embeddings, case.head == "span")

    def batches(share: InputShard) -> Batches:
        return train_batches(rows, case.head, course.seed, stage, 0, share, width)

    losses = []
    with trainer.make_steps(batches) as run:
        for step in range(course.steps):
            results = run(step, 1, 0)
            assert results.first_nonfinite == -1
            top, bottom = results.sums["loss"]
            losses.append(top / bottom)
    return Trajectory(losses, _logits(model, case.head, answered))


def _logits(model: BertForTask, head: str, rows: Rows) -> list[np.ndarray]:
    lengths = np.diff(rows.row_splits)
    features = features_of(dataclasses.replace(rows, targets={}), head, np.arange(len(rows)), int(lengths.max()))
    logits = model(features)
    if head == "span":
        return [both[:, :length] for both, length in zip(np.stack(logits, axis=1), lengths, strict=True)]
    if head == "token_classification":
        return [scores[:length] for scores, length in zip(np.asarray(logits), lengths, strict=True)]
    return list(np.asarray(logits))
