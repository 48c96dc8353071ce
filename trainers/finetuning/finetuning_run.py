"""A fine-tuning run: build the model, train, evaluate and predict."""

import dataclasses
import functools
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from beambert.bert_model.checkpoints import native
from beambert.bert_model.checkpoints.variable_names import FEATURE_BASED
from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.size import training_flops_per_token
from beambert.common.formatting import replace_surrogates
from beambert.common.local_files import write_atomic
from beambert.common.terminal import print_labeled
from beambert.trainers.backends.backend import Distribution, active_backend, uses_xla
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.checkpoints.initial_checkpoint import LoadedWeights, load_weights
from beambert.trainers.data.pipeline import Batches, InputShard
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.batches import (
    ACCELERATOR_WIDTH_MULTIPLE,
    STATIC_WIDTH_MULTIPLE,
    Width,
    evaluation_batches,
    evaluation_order,
    mean_width,
    train_batches,
)
from beambert.trainers.finetuning.evaluation_loss import evaluation_loss
from beambert.trainers.finetuning.finetuning_objectives import SHOWN_METRICS, finetuning_objective
from beambert.trainers.finetuning.finetuning_task import DEV, TRAIN, Logits, Rows, split_warnings
from beambert.trainers.finetuning.plan import FinetuningPlan
from beambert.trainers.finetuning.text_pairs import HEADS, pairs_in
from beambert.trainers.metrics.chance_levels import is_level, with_level
from beambert.trainers.monitoring.metrics_jsonl import FILE_NAME as METRICS_NAME
from beambert.trainers.monitoring.throughput import StepCost
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.objective import Features, Objective, Tensor
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.run_report.run_warnings import EVALUATION_NAME, score_warnings_in
from beambert.trainers.training import run_manifest
from beambert.trainers.training.loop import TrainData
from beambert.trainers.training.run_files import require_best, stale_best
from beambert.trainers.training.several_processes import decided_by_chief, restore, send
from beambert.trainers.training_run import Outcome, TrainingRun

# Prefix of the frozen variables of the feature-based approach.
FROZEN_PREFIX = "bert/"
# Example input of `beambert predict`, by head.
_EXAMPLES = {
    "span": "'question ||| context'",
    "multiple_choice": "'context ||| one choice ||| another'",
}


class FinetuningRun(TrainingRun[FinetuningPlan]):
    """A fine-tuning run on its devices.

    Args:
        plan: validated plan.
        distribution: the devices.
    """

    extending_flag = "--num_train_epochs"

    def __init__(self, plan: FinetuningPlan, distribution: Distribution) -> None:
        super().__init__(plan, distribution)
        config = plan.config
        assert config.best_metric is not None
        self.shown_metrics = SHOWN_METRICS | {config.best_metric: config.best_metric}
        self.patience = config.early_stopping or 0
        # XLA compiles each width separately, a TPU needs one static width; the softmax of spans includes padding. On a
        # CPU, the computation of padding takes longer than the compilation of a few widths.
        is_jax = keras.backend.backend() == "jax"
        multiple = ACCELERATOR_WIDTH_MULTIPLE if distribution.is_accelerated else 1
        multiple = STATIC_WIDTH_MULTIPLE if is_jax else multiple
        fixed = distribution.is_tpu or (is_jax and distribution.is_accelerated)
        fixed_in_training = fixed or (uses_xla(config, distribution) and not is_jax) or plan.task.head == "span"
        self.train_width = Width(plan.max_seq_length, fixed_in_training, multiple)
        self.eval_width = Width(plan.max_seq_length, fixed, multiple)
        self.stale_best = stale_best(self.checkpoint_directory)
        self._answers = active_backend().outputs_of(self._predict_logits, list(self.variables.values()), distribution)
        # Logits of the current model for evaluated splits, which are reused for predictions.
        self._scored: dict[str, Logits] = {}

    def build_model(self) -> BertForTask:
        """Return the model, with random weights."""
        plan = self.plan
        num_labels = None if plan.task.labels is None else len(plan.task.labels)
        return BertForTask(plan.model_config, plan.task.head, num_labels, causal_attention=plan.causal_attention)

    def build_objective(self) -> Objective:
        """Return the objective of the model."""
        task = self.plan.task
        return finetuning_objective(
            self.model,
            multi_label=task.multi_label,
            class_weights=self.plan.class_weights,
            frozen_prefix=FROZEN_PREFIX if task.head == FEATURE_BASED else None,
        )

    def train_data(self) -> list[TrainData]:
        """Return the training examples."""
        rows, head = self.plan.rows[TRAIN], self.plan.task.head
        grouped = bool(self.plan.config.group_by_length)
        batches = functools.partial(
            train_batches, rows, head, self.plan.config.seed, width=self.train_width, grouped=grouped
        )
        width = mean_width(rows, self.plan.config.train_batch_size, self.train_width, grouped=grouped)

        def work(stage: Stage) -> StepCost:
            tokens = stage.batch_size * rows.choices * width
            flops = tokens * training_flops_per_token(self.plan.model_config, round(width))
            unpadded = stage.batch_size * len(rows.ids) / len(rows)
            return StepCost(stage.batch_size, tokens, flops, unpadded_tokens=unpadded)

        return [TrainData(self.objective, batches, work)]

    def load_initial(self) -> LoadedWeights:
        """Load the weights of --init_checkpoint, those of its head only if it is the head of the task."""
        assert self.plan.initial is not None
        excluded = set() if self.plan.keeps_head else {name for name in self.variables if not name.startswith("bert/")}
        return load_weights(self.plan.initial, self.variables, excluded)

    def initialize_head(self) -> None:
        """Set the bias of a new regression head to the mean of the targets."""
        if self.plan.task.head == "regression" and not self.plan.keeps_head:
            # Adam moves a bias by at most the learning rate a step, so that one from 0 would not reach the mean of
            # targets from 0 to 5; the encoder would learn it instead, and lose what it was pretrained for.
            self.variables["output_bias"].assign([np.mean(self.plan.rows[TRAIN].targets["label_values"])])

    def describe_training(self) -> str:
        """Return the number of examples and of steps."""
        plan = self.plan
        return (
            f"on {len(plan.rows[TRAIN]):,} examples of {plan.task.name} for {plan.num_train_steps} steps of batch size "
            f"{plan.config.train_batch_size}"
        )

    def model_record(self, origin: str | None) -> native.ModelRecord:
        """Return the record of the model without its step and metrics."""
        plan, task = self.plan, self.plan.task
        if plan.initial is not None:
            origin = f"fine-tuning began with the weights of {plan.initial.path.name}"
        return native.ModelRecord(
            task=task.head,
            num_labels=None if task.labels is None else len(task.labels),
            labels=task.labels,
            **dataclasses.asdict(plan.word_rules),
            max_seq_length=plan.max_seq_length,
            data_fingerprint=plan.record.data_fingerprint,
            origin=origin,
            causal_attention=plan.causal_attention,
            multi_label=task.multi_label,
            text_pairs=pairs_in(plan.rows[TRAIN]) if task.head in HEADS else None,
        )

    def logits(self, rows: Rows) -> Logits:
        """Return the current model's logits of rows, as `finetuning_task.Logits`."""
        head = self.plan.task.head
        batch_size = self.eval_batch_size
        order = evaluation_order(rows)

        def batches(share: InputShard) -> Batches:
            return evaluation_batches(rows, head, batch_size, share, self.eval_width)

        answers: list[np.ndarray] = []
        for batch in self._answers(batches):
            answers.extend(batch)
        by_row: list[Any] = [None] * len(order)
        for row, answer in zip(order, answers, strict=False):  # The last batch is padded.
            length = rows.row_splits[row + 1] - rows.row_splits[row] if rows.choices == 1 else 0
            if head == "span":
                answer = answer[:, :length]
            elif head.startswith("token_classification"):
                answer = answer[:length]
            by_row[row] = answer
        return np.stack(by_row) if head in ("classification", "regression", "multiple_choice") else by_row

    def _predict_logits(self, features: Features) -> Tensor:
        logits = self.model(features)
        return ops.stack(logits, axis=1) if self.plan.task.head == "span" else logits  # [B, 2, S]

    def evaluate(self, _stage: Stage) -> tuple[dict[str, float], list[str]]:
        """Evaluate the current model on the first development split; return its metrics."""
        self._require_best()
        split = self.plan.task.eval_splits[0]
        return self._metrics(split, self.logits(self.plan.rows[split])), []

    def _metrics(self, split: str, logits: Logits) -> dict[str, float]:
        """Return the metrics and the loss of a split; `loss` and `eval_loss` for the main split, as google-research."""
        task, rows = self.plan.task, self.plan.rows[split]
        metrics = task.metrics(split, rows, logits) | task.chance_levels(split, rows)
        loss = evaluation_loss(task.head, task.multi_label, rows, logits)
        if loss is None:
            return metrics
        if split != task.eval_splits[0]:
            return {**metrics, f"{split.replace(DEV, 'eval', 1)}_loss": loss}
        return {**metrics, "eval_loss": loss, "loss": loss}

    def finish(self) -> Outcome:
        """Evaluate, select the best checkpoint, and predict, as configured."""
        config = self.plan.config
        if not config.do_train and self.distribution.is_chief:
            self._write_record()
        checkpoint = self._restore_model()
        # A run that stopped early has evaluated its last checkpoint already.
        ended_early = config.do_train and checkpoint is not None and checkpoint.step < self.plan.num_train_steps
        results = self._score(checkpoint) if config.do_eval and not ended_early else None
        if config.do_train and config.eval_steps:
            # The best checkpoint of all evaluations, including the last one, becomes the model.
            best_step = decided_by_chief(self.distribution, self._best_step)
            if checkpoint is not None and best_step not in (None, checkpoint.step):
                print_status(f"Best checkpoint by {config.best_metric}: step {best_step}, which becomes the model")
                checkpoint = self._restore_model(best_step)
                results = self._score(checkpoint)
        return Outcome(checkpoint, results, self._predict() if config.do_predict else [])

    def _score(self, checkpoint: Checkpoint | None) -> dict[str, float]:
        """Evaluate all development splits, write the result files and return the metrics."""
        plan = self.plan
        metrics: dict[str, float] = {}
        details: dict[str, dict[str, Any]] = {}
        for split in plan.task.eval_splits:
            self._scored[split] = logits = self.logits(plan.rows[split])
            metrics |= self._metrics(split, logits)
            details[split] = plan.task.details(split, plan.rows[split], logits)
        if not self.distribution.is_chief:
            return metrics
        if TRAIN in plan.rows and (warnings := split_warnings(plan.task, TRAIN, plan.rows[TRAIN])):
            details[TRAIN] = {"warnings": warnings}
        for split, line in plan.unknown_tokens.items():
            details.setdefault(split, {})["unknown_tokens"] = line
        for split, lines in plan.input_warnings.items():
            if lines:
                details.setdefault(split, {})["input_warnings"] = list(lines)
        step = 0 if checkpoint is None else checkpoint.step
        last = checkpoint_manager.checkpoints(self.checkpoint_directory)[-1:]
        if not plan.records_evaluation:
            print_status(
                f"Not the run's own development examples: {METRICS_NAME} and the model card keep their metrics"
            )
        # The evaluation of an earlier checkpoint was logged when it was the last one.
        elif checkpoint is not None and last == [checkpoint]:
            if self.plan.config.do_train:
                self._require_best()
            self.record_metrics(checkpoint, metrics)
        self.output.mkdir(parents=True, exist_ok=True)
        self.write_results(step, metrics)
        content = json.dumps({"task": plan.task.name, "splits": details}, ensure_ascii=False, indent=1)
        write_atomic(self.output / EVALUATION_NAME, replace_surrogates(content).encode() + b"\n")
        return metrics

    def _predict(self) -> list[Path]:
        task = self.plan.task
        files: list[Path] = []
        for split in task.predict_splits:
            logits = self._scored[split] if split in self._scored else self.logits(self.plan.rows[split])
            if self.distribution.is_chief:
                self.output.mkdir(parents=True, exist_ok=True)
                files += task.write_predictions(split, self.plan.rows[split], logits, self.output)
        return files

    def _restore_model(self, step: int | None = None) -> Checkpoint | None:
        """Restore the weights of the checkpoint at a step, else of the model's checkpoint, else of the last one.

        Return None where there is no checkpoint and the weights are those of --init_checkpoint.
        """
        self._scored = {}
        restored_step = decided_by_chief(self.distribution, lambda: self._step_to_restore(step))
        if restored_step is None:
            if self.plan.initial is None:
                raise TrainingError(f"{self.output} contains no checkpoint: train the model with --do_train")
            self.load_initial()
            send(self.distribution, self.variables)
            return None
        checkpoint = Checkpoint.of_step(self.checkpoint_directory, restored_step)
        restore(self.distribution, checkpoint, self.variables, self.objective.vocab_size)
        return checkpoint

    def _step_to_restore(self, step: int | None) -> int | None:
        """Return the step of the checkpoint that `_restore_model` restores; None where there is no checkpoint."""
        steps = [checkpoint.step for checkpoint in checkpoint_manager.checkpoints(self.checkpoint_directory)]
        if step is None and not self.plan.config.do_train:
            record = native.load(self.output)
            step = None if record is None else record.steps
        if step in steps:
            return step
        return steps[-1] if steps else None

    def _best_step(self) -> int | None:
        """Return the step of the best checkpoint; None without a record of it."""
        self._require_best()
        best = checkpoint_manager.best(self.checkpoint_directory)
        return None if best is None else best.step

    def _require_best(self) -> None:
        """Check that the best checkpoint still exists; otherwise a worse one would become the best."""
        if self.distribution.is_chief:
            require_best(self.checkpoint_directory, self.stale_best)

    def _write_record(self) -> None:
        """Write run.json, which marks the directory as one of this command, where no run has written it."""
        path = self.output / run_manifest.FILE_NAME
        if not path.exists():
            self.output.mkdir(parents=True, exist_ok=True)
            write_atomic(path, self.plan.record.to_json().encode())

    def expected_files(self, outcome: Outcome) -> list[str]:
        """Return the file of the evaluation."""
        return [EVALUATION_NAME] if outcome.metrics else []

    def print_results(self, outcome: Outcome) -> None:
        """Print the scores with warnings about them, and the files with predictions."""
        if outcome.metrics:
            scores = {
                name: value for name, value in sorted(outcome.metrics.items()) if name != "loss" and not is_level(name)
            }
            numbers = ", ".join(
                with_level(f"{name} {_format_score(value)}", name, outcome.metrics, ".4g")
                for name, value in scores.items()
            )
            print_labeled("Evaluation   ", f"{self.output / 'eval_results.txt'}: {numbers}", sys.stdout)
            for line in score_warnings_in(self.output):
                warn(line)
        for file in outcome.predictions:
            print_status(f"Predictions  {file}")

    def next_commands(self, outcome: Outcome) -> list[str]:
        """Return an example of `beambert predict`."""
        if outcome.checkpoint is None:
            return []
        pairs = any(rows.segment_ids.any() for rows in self.plan.rows.values())
        example = _EXAMPLES.get(self.plan.task.head, "'a text ||| another'" if pairs else "'some text'")
        return [f"Try it       beambert predict {shlex.quote(str(self.output))} {example}"]


def _format_score(value: float) -> str:
    """Return a score with four digits, and a count with all of them."""
    return str(value) if isinstance(value, int) else f"{value:.4g}"
