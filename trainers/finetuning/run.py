"""A fine-tuning run as `trainers.finetune` has planned it: model and rows put together, trained, scored, answered."""

import argparse
import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert_model import native
from bert_model.model_card import model_card
from bert_model.names import FEATURE_BASED, variables_by_tf1_name
from bert_model.size import parameter_counts, training_flops_per_token
from bert_model.tasks import BertForTask
from trainers import best_checkpoint, checkpointing, run_record
from trainers.chance_levels import is_level, with_level
from trainers.checkpointing import Checkpoint
from trainers.distribution import Distribution, Share
from trainers.errors import TrainingError
from trainers.finetune import Plan
from trainers.finetuning.batches import Width, evaluation_batches, evaluation_order, mean_width, train_batches
from trainers.finetuning.contract import DEV, TRAIN, Logits, Rows
from trainers.finetuning.evaluation_loss import evaluation_loss
from trainers.finetuning.losses import SHOWN_METRICS, finetuning_task
from trainers.initial_checkpoint import LoadedWeights, load_weights
from trainers.loop import Source, record_evaluation, train
from trainers.metrics_log import FILE_NAME as METRICS_NAME
from trainers.progress import say, warn
from trainers.recomputation import recompute
from trainers.run_files import (
    directory_errors,
    first_files,
    require_best,
    require_checkpoint,
    require_files,
    stale_best,
    write_first_files,
)
from trainers.run_report.report import FILE_NAME as REPORT_NAME
from trainers.run_report.report import write_report
from trainers.run_report.warnings import EVALUATION_NAME, score_warnings_in
from trainers.run_setup import (
    RESULTS_JSON_NAME,
    RESULTS_TEXT_NAME,
    eval_batch_size_of,
    open_devices,
    peak_flops_of,
    resume,
    rhythm_of,
    settings_of,
    uses_xla,
    write_results,
)
from trainers.stages import Stage, check_batch_sizes
from trainers.task import Features
from trainers.text_pairs import HEADS, pairs_in
from trainers.throughput import Work
from trainers.trainer import Trainer
from trainers.watching import Watch, WatchState
from trainers.whole_files import write_whole

# What is not trained under the head of the feature-based route.
FROZEN_PREFIX = "bert/"


def train_evaluate_predict(args: argparse.Namespace, plan: Plan) -> int:
    """Does what the options ask for; TensorFlow is started.

    Returns:
        The exit code of `beambert finetune`.

    Raises:
        TrainingError: one line for the user.
    """
    distribution = open_devices(args)
    check_batch_sizes(plan.stages, distribution.replicas, args.gradient_accumulation_steps)
    with distribution.machine_errors(), directory_errors(plan.output, plan.record, is_chief=distribution.is_chief):
        return FinetuningRun(args, plan, distribution).run()


class FinetuningRun:
    """A model on its devices.

    Args:
        args: the options, defaults filled in.
        plan: of the run.
        distribution: the devices.
    """

    def __init__(self, args: argparse.Namespace, plan: Plan, distribution: Distribution) -> None:
        self.args, self.plan, self.distribution = args, plan, distribution
        self.output = plan.output
        self.checkpoint_directory = plan.output / native.CHECKPOINTS_NAME
        labels = plan.task.labels
        with distribution.scope():
            num_labels = None if labels is None else len(labels)
            self.model = BertForTask(plan.config, plan.task.head, num_labels, left_to_right=plan.left_to_right)
        recompute(self.model.encoder, args.recompute)
        self.variables = {name: variable.value for name, variable in variables_by_tf1_name(self.model).items()}
        self.task = finetuning_task(
            self.model,
            multi_label=plan.task.multi_label,
            class_weights=plan.class_weights,
            frozen_prefix=FROZEN_PREFIX if plan.task.head == FEATURE_BASED else None,
        )
        self.rhythm = dataclasses.replace(rhythm_of(args), patience=args.early_stopping or 0)
        # XLA compiles every length of rows for itself, a TPU sees one, and the softmax of spans counts padding.
        fixed = uses_xla(args) or distribution.is_tpu
        self.train_width = Width(plan.max_seq_length, fixed or plan.task.head == "span")
        self.eval_width = Width(plan.max_seq_length, distribution.is_tpu)
        self.has_trained = False
        self.stale_best = stale_best(self.checkpoint_directory)
        self._answer = tf.function(self._answered, autograph=False)
        # What the model as it is said of splits that were scored, since the same may be written as answers.
        self._scored: dict[str, Logits] = {}

    def run(self) -> int:
        """Trains, evaluates, predicts, and writes the files of the run's directory; the exit code."""
        args = self.args
        if args.do_train:
            stopped = self._train()
            if stopped is not None:
                self._write_report()
                return 128 + stopped
        elif self.distribution.is_chief:
            self._write_record()
        checkpoint = self._restore_model()
        # A run that ended early has scored its last checkpoint already.
        ended_early = args.do_train and checkpoint is not None and checkpoint.step < args.num_train_steps
        results = self._score(checkpoint) if args.do_eval and not ended_early else None
        if args.do_train and self.rhythm.eval_steps:
            # The best of all evaluations, the last among them, is the model. Who does not write waits to know it.
            self.distribution.meet()
            self._require_best()
            best = best_checkpoint.best(self.checkpoint_directory)
            if best is not None and checkpoint is not None and best.step != checkpoint.step:
                say(f"The best checkpoint by {best.metric} is that of step {best.step}: it becomes the model")
                checkpoint = self._restore_model(best.step)
                results = self._score(checkpoint)
        files = self._predict() if args.do_predict else []
        if self.distribution.is_chief:
            if checkpoint is not None and (args.do_train or results is not None):
                self._write_model(checkpoint.step, results)
            self._write_report()
            self._require_files(checkpoint, results, files)
            self._summarise(checkpoint, results, files)
        return 0

    def logits(self, rows: Rows) -> Logits:
        """What the model as it is says of rows, as `contract.Logits`."""
        head = self.plan.task.head
        batch_size = eval_batch_size_of(self.args, self.distribution)
        order = evaluation_order(rows)

        def batches(share: Share) -> tf.data.Dataset:
            return evaluation_batches(rows, head, batch_size, share, self.eval_width)

        answers: list[np.ndarray] = []
        for features in self.distribution.batches(batches):
            answers.extend(self._answer(features).numpy())
        by_row: list[Any] = [None] * len(order)
        for row, answer in zip(order, answers, strict=False):  # The last batch is filled up.
            length = rows.row_splits[row + 1] - rows.row_splits[row] if rows.choices == 1 else 0
            if head == "span":
                answer = answer[:, :length]
            elif head.startswith("token_classification"):
                answer = answer[:length]
            by_row[row] = answer
        return np.stack(by_row) if head in ("classification", "regression", "multiple_choice") else by_row

    def evaluate(self, _stage: Stage | None = None) -> tuple[dict[str, float], list[str]]:
        """Scores the model as it is on the first of the task's development splits."""
        self._require_best()
        split = self.plan.task.eval_splits[0]
        return self._metrics(split, self.logits(self.plan.rows[split])), []

    def _answered(self, features: Features) -> tf.Tensor:
        def forward(features: Features) -> tf.Tensor:
            logits = self.model(features)
            return tf.stack(logits, axis=1) if self.plan.task.head == "span" else logits  # [B, 2, S]

        return self.distribution.gather(self.distribution.run(forward, features))

    def _metrics(self, split: str, logits: Logits) -> dict[str, float]:
        """The task's scores and the loss, which is google's `loss` and `eval_loss` alike for the main split."""
        task, rows = self.plan.task, self.plan.rows[split]
        metrics = task.metrics(split, rows, logits) | task.chance_levels(split, rows)
        loss = evaluation_loss(task.head, task.multi_label, rows, logits)
        if loss is None:
            return metrics
        if split != task.eval_splits[0]:
            return {**metrics, f"{split.replace(DEV, 'eval', 1)}_loss": loss}
        return {**metrics, "eval_loss": loss, "loss": loss}

    def _score(self, checkpoint: Checkpoint | None) -> dict[str, float]:
        """Scores every development split and writes the result files."""
        plan = self.plan
        metrics: dict[str, float] = {}
        details = {}
        for split in plan.task.eval_splits:
            self._scored[split] = logits = self.logits(plan.rows[split])
            metrics |= self._metrics(split, logits)
            details[split] = plan.task.details(split, plan.rows[split], logits)
        if not self.distribution.is_chief:
            return metrics
        step = 0 if checkpoint is None else checkpoint.step
        last = checkpointing.checkpoints(self.checkpoint_directory)[-1:]
        # What is logged of an earlier checkpoint was logged when it was the last.
        if checkpoint is not None and last == [checkpoint]:
            with self._watch(step, checkpointing.state_of(checkpoint, WatchState)) as watch:
                watch.evaluated(step, metrics)
            if self.args.do_train:
                self._require_best()
                record_evaluation(self.checkpoint_directory, step, self.rhythm, metrics)
        self.output.mkdir(parents=True, exist_ok=True)
        write_results(self.output, {"global_step": step, **metrics})
        content = json.dumps({"task": plan.task.name, "splits": details}, ensure_ascii=False, indent=1)
        write_whole(self.output / EVALUATION_NAME, content.encode("utf-8", "surrogatepass") + b"\n")
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
        """Gives the model the weights of a checkpoint: of that step, else of the model's, else the last; None when
        there is none and the weights are those of --init_checkpoint."""
        self._scored = {}
        saved = checkpointing.checkpoints(self.checkpoint_directory)
        if not saved:
            if self.plan.initial is None:
                raise TrainingError(f"{self.output} holds no checkpoint; train it with --do_train")
            self._load_initial()
            return None
        if step is None and not self.args.do_train:
            record = native.load(self.output)
            step = None if record is None else record.steps
        checkpoint = next((one for one in saved if one.step == step), saved[-1])
        checkpointing.restore(checkpoint.prefix, self.variables, self.task.vocab_size)
        return checkpoint

    def _load_initial(self) -> LoadedWeights:
        assert self.plan.initial is not None
        leave = set() if self.plan.keeps_head else {name for name in self.variables if not name.startswith("bert/")}
        return load_weights(self.plan.initial, self.variables, leave)

    def _train(self) -> int | None:
        """Trains, resuming if there is a checkpoint; the number of the signal that stopped it, or None."""
        args, plan = self.args, self.plan
        if self.distribution.is_chief:
            self._write_beginning()
        saved = checkpointing.checkpoints(self.checkpoint_directory)
        if saved and saved[-1].step >= args.num_train_steps:
            say(f"{self.output} is already trained to step {saved[-1].step}; more --num_train_epochs would go on")
            return None
        self.has_trained = True
        trainer = Trainer(self.task, settings_of(args), self.distribution)
        state = resume(trainer, self.output, self.rhythm)
        if state is None:
            self._begin()
        step = int(trainer.global_step.numpy())
        evaluate = self.evaluate if plan.task.eval_splits and self.rhythm.eval_steps else None
        with self._watch(step, state or {}) as watch:
            stopped = train(
                trainer, plan.stages, [self._source()], self.rhythm, self.checkpoint_directory, watch, evaluate
            )
        if self.distribution.is_chief:
            require_checkpoint(self.checkpoint_directory, watch.step)
        return stopped

    def _begin(self) -> None:
        """Takes over the weights of --init_checkpoint, and says what is about to be trained."""
        plan, args = self.plan, self.args
        if plan.initial is not None:
            weights = self._load_initial()
            if self.distribution.is_chief:
                write_whole(self.output / run_record.INITIAL_WEIGHTS_NAME, weights.to_text().encode())
            say(f"Weights read from {plan.initial.path}: {'; '.join(weights.lines())}")
        parameters = sum(variable.shape.num_elements() for variable in self.task.variables.values())
        devices = f" on {self.distribution.replicas} devices" if self.distribution.replicas > 1 else ""
        say(
            f"Training {parameters:,} parameters on {len(plan.rows[TRAIN]):,} examples of {plan.task.name} for "
            f"{args.num_train_steps} steps of {args.train_batch_size}{devices}; compiling takes some seconds"
        )

    def _source(self) -> Source:
        rows, head = self.plan.rows[TRAIN], self.plan.task.head
        batches = functools.partial(train_batches, rows, head, self.args.seed, width=self.train_width)
        width = mean_width(rows, self.args.train_batch_size, self.train_width)

        def work(stage: Stage) -> Work:
            tokens = stage.batch_size * rows.choices * width
            flops = tokens * training_flops_per_token(self.plan.config, round(width))
            return Work(stage.batch_size, tokens, flops)

        return Source(self.task, batches, work)

    def _watch(self, step: int, state: Mapping) -> Watch:
        output = self.output if self.distribution.is_chief else None
        last = getattr(self.args, "num_train_steps", step)
        peak = peak_flops_of(self.args, self.distribution)
        shown = SHOWN_METRICS | {self.args.best_metric: self.args.best_metric}
        return Watch(output, last, shown, state, step=step, peak_flops=peak)

    def _write_record(self) -> None:
        """Write the file by which the same command knows the directory as its own, if nothing was trained there."""
        path = self.output / run_record.FILE_NAME
        if not path.exists():
            self.output.mkdir(parents=True, exist_ok=True)
            write_whole(path, self.plan.record.to_json().encode())

    def _write_beginning(self) -> None:
        """What makes the run's directory one, before the first update."""
        plan, output = self.plan, self.output
        write_first_files(output, first_files(plan.vocabulary, plan.config, plan.record))
        self._write_model(None, None)

    def _write_model(self, step: int | None, results: Mapping[str, float] | None) -> None:
        """Writes `beambert.json` and the model card, which make the directory a model for every command.

        Args:
            step: of the checkpoint that is the model; None while it is trained: then it is the last.
            results: of its evaluation; None to leave those that stand there if they are of the same step.
        """
        plan = self.plan
        before = native.load(self.output)
        origin = before.origin if before else None
        if plan.initial is not None:
            origin = f"fine-tuning began with the weights of {Path(plan.initial.path).name}"
        metrics = before.metrics if before and before.steps == step else {}
        labels = plan.task.labels
        trained_on_texts = TRAIN in plan.rows and plan.task.head in HEADS
        model = native.ModelRecord(
            task=plan.task.head,
            num_labels=None if labels is None else len(labels),
            labels=labels,
            do_lower_case=plan.do_lower_case,
            max_seq_length=plan.max_seq_length,
            data_fingerprint=plan.record.data_fingerprint or (before.data_fingerprint if before else None),
            steps=step,
            metrics=dict(results) if results is not None else metrics,
            origin=origin,
            left_to_right=plan.left_to_right,
            multi_label=plan.task.multi_label,
            text_pairs=pairs_in(plan.rows[TRAIN]) if trained_on_texts else before.text_pairs if before else None,
        )
        parameters = parameter_counts(plan.config, model.task, model.num_labels).total
        write_whole(self.output / native.MODEL_CARD_FILE_NAME, model_card(plan.config, model, parameters).encode())
        write_whole(self.output / native.FILE_NAME, model.to_json().encode())

    def _write_report(self) -> None:
        if self.distribution.is_chief:
            write_report(self.output)

    def _require_best(self) -> None:
        """Checks that the best checkpoint so far did not vanish, for then a worse one would become the best."""
        if self.distribution.is_chief:
            require_best(self.checkpoint_directory, self.stale_best)

    def _require_files(
        self, checkpoint: Checkpoint | None, results: Mapping[str, float] | None, files: list[Path]
    ) -> None:
        """Checks that what the summary names is there. Raises TrainingError naming what vanished."""
        plan = self.plan
        contents: dict[str, bytes | None] = dict.fromkeys(
            (REPORT_NAME, *(str(file.relative_to(self.output)) for file in files))
        )
        if self.args.do_train:
            contents |= first_files(plan.vocabulary, plan.config, plan.record)
            contents |= dict.fromkeys((native.FILE_NAME, native.MODEL_CARD_FILE_NAME))
        if self.has_trained:
            contents[METRICS_NAME] = None
        if results:
            contents |= dict.fromkeys((RESULTS_TEXT_NAME, RESULTS_JSON_NAME, EVALUATION_NAME))
        require_files(self.output, contents, None if checkpoint is None else checkpoint.prefix)

    def _summarise(self, checkpoint: Checkpoint | None, results: Mapping[str, float] | None, files: list[Path]) -> None:
        output = self.output
        if checkpoint is not None:
            say(f"Checkpoint   {checkpoint.prefix} (step {checkpoint.step})")
        if results:
            scores = {name: value for name, value in sorted(results.items()) if name != "loss" and not is_level(name)}
            numbers = ", ".join(
                with_level(f"{name} {value:.4g}", name, results, ".4g") for name, value in scores.items()
            )
            say(f"Evaluation   {output / 'eval_results.txt'}: {numbers}")
            for line in score_warnings_in(output):
                warn(line)
        for file in files:
            say(f"Answers      {file}")
        say(f"Report       {output / 'report.html'}")
        if checkpoint is not None:
            pairs = any(rows.segment_ids.any() for rows in self.plan.rows.values())
            example = _EXAMPLES.get(self.plan.task.head, "'a text ||| another'" if pairs else "'some text'")
            say(f"Try it       beambert predict {output} {example}")


# What predict takes, by head.
_EXAMPLES = {
    "span": "'question ||| context'",
    "multiple_choice": "'context ||| one choice ||| another'",
}
