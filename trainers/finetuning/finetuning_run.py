"""A fine-tuning run: build the model, train, evaluate and predict."""

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from beambert.bert_model.checkpoints import native
from beambert.bert_model.finetuning_models import BertForTask
from beambert.bert_model.heads.head import Logits
from beambert.bert_model.parameters import seeded_initialization
from beambert.bert_model.size import training_flops_per_token
from beambert.bert_model.variable_names import variables_by_tf1_name
from beambert.common.formatting import replace_surrogates
from beambert.common.local_files import write_atomic
from beambert.trainers.backends.backend import Distribution, active_backend
from beambert.trainers.backends.rematerialization import set_activation_checkpointing
from beambert.trainers.checkpoints import best_checkpoint, checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.checkpoints.initial_checkpoint import LoadedWeights, load_weights
from beambert.trainers.data.batches import Batches, InputShard
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.batches import (
    ACCELERATOR_WIDTH_MULTIPLE,
    STATIC_WIDTH_MULTIPLE,
    Width,
    evaluation_batches,
    evaluation_order,
    mean_width,
    row_lengths,
    train_batches,
)
from beambert.trainers.finetuning.finetuning_objective import SHOWN_METRICS, finetuning_objective
from beambert.trainers.finetuning.finetuning_task import TRAIN, Rows, metric_prefix, split_warnings
from beambert.trainers.finetuning.outputs import print_summary, require_outputs, write_model
from beambert.trainers.finetuning.plan import FinetuningPlan
from beambert.trainers.monitoring.metrics_jsonl import FILE_NAME as METRICS_NAME
from beambert.trainers.monitoring.throughput import StepCost
from beambert.trainers.monitoring.training_monitor import MonitorState, TrainingMonitor
from beambert.trainers.monitoring.training_progress import print_status
from beambert.trainers.optimization.schedule import Stage, check_batch_sizes
from beambert.trainers.run_report.run_report import write_report
from beambert.trainers.run_report.run_warnings import EVALUATION_NAME
from beambert.trainers.training import run_manifest
from beambert.trainers.training.chief_checkpoints import decided_by_chief, last_checkpoint, restore, send
from beambert.trainers.training.loop import TrainData, record_evaluation, train
from beambert.trainers.training.process_agreement import check_agreement
from beambert.trainers.training.run_files import (
    directory_errors,
    first_files,
    require_best,
    require_checkpoint,
    stale_best,
    write_first_files,
)
from beambert.trainers.training.run_setup import (
    eval_batch_size_of,
    loop_config_of,
    open_devices,
    peak_flops_of,
    resume,
    train_config_of,
    uses_xla,
    write_results,
)


def train_evaluate_predict(plan: FinetuningPlan) -> int:
    """Train, evaluate and predict, as configured. The backend must have been started.

    Returns:
        The exit code of `beambert finetune`.

    Raises:
        TrainingError: the run cannot continue; the message is one line for the user.
    """
    distribution = open_devices(plan.config)
    check_batch_sizes(plan.stages, distribution.replicas, plan.config.gradient_accumulation_steps)
    with distribution.machine_errors(), directory_errors(plan.output, plan.record, is_chief=distribution.is_chief):
        check_agreement(distribution, plan.record, plan.model_config, causal_attention=plan.causal_attention)
        return FinetuningRun(plan, distribution).run()


class FinetuningRun:
    """A fine-tuning run on its devices.

    Args:
        plan: the run's inputs.
        distribution: the run's devices.
    """

    def __init__(self, plan: FinetuningPlan, distribution: Distribution) -> None:
        config = plan.config
        self.config, self.plan, self.distribution = config, plan, distribution
        self.output = plan.output
        self.checkpoint_directory = plan.output / native.CHECKPOINTS_NAME
        labels = plan.task.labels
        with distribution.scope(), seeded_initialization(config.seed):
            num_labels = None if labels is None else len(labels)
            self.model = BertForTask(
                plan.model_config, plan.task.head.name, num_labels, causal_attention=plan.causal_attention
            )
        set_activation_checkpointing(self.model.encoder, config.activation_checkpointing)
        self.variables = variables_by_tf1_name(self.model)
        self.task = finetuning_objective(self.model, class_weights=plan.class_weights)
        self.loop_config = dataclasses.replace(
            loop_config_of(config, distribution), patience=config.early_stopping or 0
        )
        # XLA compiles each width separately, a TPU needs one static width. On a CPU, the computation of padding
        # takes longer than the compilation of a few widths.
        is_jax = keras.backend.backend() == "jax"
        multiple = ACCELERATOR_WIDTH_MULTIPLE if distribution.is_accelerated else 1
        multiple = STATIC_WIDTH_MULTIPLE if is_jax else multiple
        fixed = distribution.is_tpu or (is_jax and distribution.is_accelerated)
        fixed_in_training = (
            fixed or (uses_xla(config, distribution) and not is_jax) or plan.task.head.loss_reads_padding
        )
        self.train_width = Width(plan.max_seq_length, fixed_in_training, multiple)
        self.eval_width = Width(plan.max_seq_length, fixed, multiple)
        self.has_trained = False
        # Of a run that trains; it also records the last evaluation.
        self.monitor: TrainingMonitor | None = None
        self.stale_best = stale_best(self.checkpoint_directory)
        self._answers = active_backend().outputs_of(self.model, list(self.variables.values()), distribution)
        # Logits of the current model for evaluated splits, which are reused for predictions.
        self._scored: dict[str, Logits] = {}

    def run(self) -> int:
        """Train, evaluate, predict, and write the result files; return the exit code."""
        config = self.config
        if config.do_train:
            stopped = self._train()
            if stopped is not None:
                if self.distribution.is_chief:
                    write_report(self.output)
                return 128 + stopped
        elif self.distribution.is_chief:
            self._write_record()
        checkpoint = self._restore_model()
        # A run that stopped early has evaluated its last checkpoint already.
        ended_early = config.do_train and checkpoint is not None and checkpoint.step < self.plan.num_train_steps
        results = self._score(checkpoint) if config.do_eval and not ended_early else None
        if config.do_train and self.loop_config.eval_steps:
            # The best checkpoint of all evaluations, including the last one, becomes the model.
            best_step = decided_by_chief(self.distribution, self._best_step)
            if checkpoint is not None and best_step not in (None, checkpoint.step):
                print_status(
                    f"Best checkpoint by {self.loop_config.best_metric}: step {best_step}, which becomes the model"
                )
                checkpoint = self._restore_model(best_step)
                results = self._score(checkpoint)
        files = self._predict() if config.do_predict else []
        if self.distribution.is_chief:
            if checkpoint is not None and (config.do_train or (results is not None and self.plan.records_evaluation)):
                write_model(self.plan, checkpoint.step, results)
            write_report(self.output)
            require_outputs(self.plan, checkpoint, results, files, has_trained=self.has_trained)
            print_summary(self.plan, checkpoint, results, files, self.monitor.goodput if self.monitor else None)
        return 0

    def logits(self, rows: Rows) -> Logits:
        """Return the current model's logits of rows, as `finetuning_task.Logits`."""
        head = self.plan.task.head
        batch_size = eval_batch_size_of(self.config, self.distribution)
        order = evaluation_order(rows)

        def batches(share: InputShard) -> Batches:
            return evaluation_batches(rows, head, batch_size, share, self.eval_width)

        answers: list[np.ndarray] = []
        for batch in self._answers(batches):
            answers.extend(batch)
        by_row: list[Any] = [None] * len(order)
        for row, answer in zip(order, answers, strict=False):  # The last batch is padded.
            by_row[row] = answer
        return head.rows_of_batch(by_row, row_lengths(rows).tolist())

    def evaluate(self, _stage: Stage | None = None) -> tuple[dict[str, float], list[str]]:
        """Evaluate the current model on the first development split, and return metrics and warnings."""
        self._require_best()
        split = self.plan.task.eval_splits[0]
        return self._metrics(split, self.logits(self.plan.rows[split])), []

    def _metrics(self, split: str, logits: Logits) -> dict[str, float]:
        """Return the metrics and the loss of a split; `loss` and `eval_loss` for the main split, as google-research."""
        task, rows = self.plan.task, self.plan.rows[split]
        metrics = task.metrics(split, rows, logits) | task.chance_levels(split, rows)
        loss = task.head.evaluation_loss(rows.targets, logits) if rows.targets else None
        if loss is None:
            return metrics
        if split != task.eval_splits[0]:
            return {**metrics, f"{metric_prefix(split)}_loss": loss}
        return {**metrics, "eval_loss": loss, "loss": loss}

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
            state = checkpoint_manager.state_of(checkpoint, MonitorState)
            with self.monitor or self._monitor(step, state, trains=False) as monitor:
                monitor.record_evaluation(step, metrics)
            if self.config.do_train:
                self._require_best()
                record_evaluation(self.checkpoint_directory, step, self.loop_config, metrics, plan.stages)
        self.output.mkdir(parents=True, exist_ok=True)
        write_results(self.output, {"global_step": step, **metrics})
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
            self._load_initial()
            send(self.distribution, self.variables)
            return None
        checkpoint = Checkpoint.of_step(self.checkpoint_directory, restored_step)
        restore(self.distribution, checkpoint, self.variables, self.task.vocab_size)
        return checkpoint

    def _step_to_restore(self, step: int | None) -> int | None:
        """Return the step of the checkpoint that `_restore_model` restores; None where there is no checkpoint."""
        steps = [checkpoint.step for checkpoint in checkpoint_manager.checkpoints(self.checkpoint_directory)]
        if step is None and not self.config.do_train:
            record = native.load(self.output)
            step = None if record is None else record.steps
        if step in steps:
            return step
        return steps[-1] if steps else None

    def _best_step(self) -> int | None:
        """Return the step of the best checkpoint; None without a record of it."""
        self._require_best()
        best = best_checkpoint.best(self.checkpoint_directory)
        return None if best is None else best.step

    def _load_initial(self) -> LoadedWeights:
        assert self.plan.initial is not None
        excluded = set() if self.plan.keeps_head else {name for name in self.variables if not name.startswith("bert/")}
        return load_weights(self.plan.initial, self.variables, excluded)

    def _train(self) -> int | None:
        """Train, resuming from an existing checkpoint; return the number of the signal that stopped it, or None."""
        config, plan = self.config, self.plan
        if self.distribution.is_chief:
            self._write_run_files()
        saved = last_checkpoint(self.distribution, self.checkpoint_directory)
        if saved is not None and saved.step >= plan.num_train_steps:
            print_status(f"{self.output} is already trained to step {saved.step}; raise --num_train_epochs to continue")
            return None
        self.has_trained = True
        trainer = active_backend().make_trainer(
            self.task, train_config_of(config, self.distribution), self.distribution
        )
        step, state = resume(trainer, self.output, self.loop_config)
        if state is None:
            self._initialize_weights()
        evaluate = self.evaluate if plan.task.eval_splits and self.loop_config.eval_steps else None
        self.monitor = self._monitor(step, state or {}, plan.start)
        with self.monitor as monitor:
            stopped = train(
                trainer,
                step,
                plan.stages,
                [self._source()],
                self.loop_config,
                self.checkpoint_directory,
                monitor,
                evaluate,
            )
        if self.distribution.is_chief:
            require_checkpoint(self.checkpoint_directory, monitor.step)
        return stopped

    def _initialize_weights(self) -> None:
        """Load the weights of --init_checkpoint, and print the numbers of parameters, examples and steps."""
        plan, config = self.plan, self.config
        if plan.initial is not None:
            weights = self._load_initial()
            if self.distribution.is_chief:
                write_atomic(self.output / run_manifest.INITIAL_WEIGHTS_NAME, weights.to_text().encode())
            print_status(f"Weights loaded from {plan.initial.path}: {'; '.join(weights.lines())}")
        bias = plan.task.head.initial_bias(plan.rows[TRAIN].targets)
        if bias is not None and not plan.keeps_head:
            self.model.linear.output_bias.assign(bias)
        if config.init_checkpoint:
            # The files of the other processes may differ.
            send(self.distribution, self.variables)
        parameters = sum(math.prod(variable.shape) for variable in self.task.variables.values())
        devices = f" on {self.distribution.replicas} devices" if self.distribution.replicas > 1 else ""
        print_status(
            f"Training {parameters:,} parameters on {len(plan.rows[TRAIN]):,} examples of {plan.task.name} for "
            f"{config.num_train_steps} steps of batch size {config.train_batch_size}{devices}; compiling first"
        )

    def _source(self) -> TrainData:
        rows, head = self.plan.rows[TRAIN], self.plan.task.head
        grouped = bool(self.config.group_by_length)
        batches = functools.partial(
            train_batches, rows, head, self.config.seed, width=self.train_width, grouped=grouped
        )
        width = mean_width(rows, self.config.train_batch_size, self.train_width, grouped=grouped)

        def work(stage: Stage) -> StepCost:
            tokens = stage.batch_size * rows.choices * width
            flops = tokens * training_flops_per_token(self.plan.model_config, round(width))
            unpadded = stage.batch_size * len(rows.ids) / len(rows)
            return StepCost(stage.batch_size, tokens, flops, unpadded_tokens=unpadded)

        return TrainData(self.task, batches, work)

    def _monitor(
        self, step: int, state: Mapping, start: float | None = None, *, trains: bool = True
    ) -> TrainingMonitor:
        output = self.output if self.distribution.is_chief else None
        last = max(self.plan.num_train_steps, step)
        peak = peak_flops_of(self.config, self.distribution)
        best_metric = self.loop_config.best_metric
        shown = SHOWN_METRICS | {best_metric: best_metric}
        return TrainingMonitor(output, last, shown, state, step=step, peak_flops=peak, start=start, trains=trains)

    def _write_record(self) -> None:
        """Write run.json, which marks the directory as one of this command, where no run has written it."""
        path = self.output / run_manifest.FILE_NAME
        if not path.exists():
            self.output.mkdir(parents=True, exist_ok=True)
            write_atomic(path, self.plan.record.to_json().encode())

    def _write_run_files(self) -> None:
        """Write the files of a run directory before the first step."""
        output, last_step = self.output, run_manifest.last_step(self.output)
        old = run_manifest.load(output)
        if old is not None and last_step is not None and last_step >= self.plan.num_train_steps:
            # No step follows, and the record must describe the steps that the checkpoint was trained for.
            record = dataclasses.replace(old, evaluation_fingerprint=self.plan.record.evaluation_fingerprint)
            self.plan = self.plan._replace(record=record)
        plan = self.plan
        write_first_files(output, first_files(plan.vocabulary, plan.model_config, plan.record))
        write_model(self.plan, None, None)

    def _require_best(self) -> None:
        """Check that the best checkpoint still exists; otherwise a worse one would become the best."""
        if self.distribution.is_chief:
            require_best(self.checkpoint_directory, self.stale_best)
