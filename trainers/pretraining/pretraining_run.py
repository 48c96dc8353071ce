"""Run pretraining: build the model on its devices, train and evaluate."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

from beambert.bert_model.checkpoints import native
from beambert.bert_model.heads import PRETRAINING
from beambert.bert_model.parameters import seeded_initialization
from beambert.bert_model.pretraining import BertForPretraining
from beambert.common.local_files import write_atomic
from beambert.common.word_rules import WordRules
from beambert.trainers.backends.backend import Distribution, Trainer, active_backend
from beambert.trainers.backends.rematerialization import set_activation_checkpointing
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.checkpoints.initial_checkpoint import load_weights
from beambert.trainers.data.batches import Batches, InputShard
from beambert.trainers.data.mask_rate_schedule import mask_rate_at
from beambert.trainers.data.pipeline import train_batches
from beambert.trainers.data.shard_reader import CorruptRecordPolicy
from beambert.trainers.errors import TrainingError
from beambert.trainers.metrics import baseline_record
from beambert.trainers.metrics.baseline_record import BaselineRecord
from beambert.trainers.monitoring.throughput import StepCost, cost_of_step, rows_of
from beambert.trainers.monitoring.training_monitor import MonitorState, TrainingMonitor
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.objective import Objective
from beambert.trainers.optimization.schedule import Stage, check_batch_sizes
from beambert.trainers.pretraining.baselines import baselines_of
from beambert.trainers.pretraining.outputs import print_summary, require_outputs, trained_model, write_model
from beambert.trainers.pretraining.plan import PretrainingPlan
from beambert.trainers.pretraining.pretraining_objective import SHOWN_METRICS, pretraining_task
from beambert.trainers.pretraining.run_observer import RunObserver
from beambert.trainers.pretraining.time_budget import print_time_left, with_measured_steps
from beambert.trainers.pretraining.validation import Validation
from beambert.trainers.run_report.run_report import write_report
from beambert.trainers.training import run_manifest
from beambert.trainers.training.chief_checkpoints import last_checkpoint, restore, send
from beambert.trainers.training.loop import TrainData, record_evaluation, train
from beambert.trainers.training.process_agreement import check_agreement
from beambert.trainers.training.run_files import (
    directory_errors,
    first_files,
    require_checkpoint,
    write_first_files,
)
from beambert.trainers.training.run_setup import (
    loop_config_of,
    open_devices,
    peak_flops_of,
    resume,
    train_config_of,
    uses_xla,
    write_results,
)


def train_and_evaluate(plan: PretrainingPlan) -> int:
    """Train and evaluate; the backend must have been started.

    Returns:
        The exit code of `beambert pretrain`.

    Raises:
        DatasetError, TrainingError: a one-line message.
    """
    distribution = open_devices(plan.config)
    check_batch_sizes(plan.stages, distribution.replicas, plan.config.gradient_accumulation_steps)
    with distribution.machine_errors():
        check_agreement(distribution, plan.record, plan.model_config, causal_attention=plan.causal_attention)
        run = PretrainingRun(plan, distribution)
        if plan.needs_steps:
            run.fix_steps()
        with directory_errors(plan.output, run.plan.record, is_chief=distribution.is_chief):
            return run.run()


class PretrainingRun:
    """A pretraining run with its model on the devices.

    Args:
        plan: validated plan.
        distribution: the devices.
    """

    def __init__(self, plan: PretrainingPlan, distribution: Distribution) -> None:
        config = plan.config
        self.config, self.plan, self.distribution = config, plan, distribution
        self.output = plan.output
        self.checkpoint_directory = plan.output / native.CHECKPOINTS_NAME
        with distribution.scope(), seeded_initialization(config.seed):
            # Matrix units of accelerators need multiples of 128; on a CPU padding made no difference.
            self.model = BertForPretraining(
                plan.model_config, pad_vocabulary=distribution.is_accelerated, causal_attention=plan.causal_attention
            )
        set_activation_checkpointing(self.model.encoder, config.activation_checkpointing)
        self.task = pretraining_task(self.model, next_sentence=not config.no_next_sentence)
        self.corrupt_records = CorruptRecordPolicy(skip=config.on_corrupt_record == "skip")
        self.loop_config = loop_config_of(config, distribution)
        self.has_trained = False
        self.trainer: Trainer | None = None
        # Of a run that trains; it also records the last evaluation.
        self.monitor: TrainingMonitor | None = None
        # Of the chief.
        self.baselines = baseline_record.load(plan.output) if distribution.is_chief else None
        self.tasks = [self._task(index) for index in range(len(plan.datasets))]
        self.evaluate = Validation(plan, distribution, self.model, self.tasks).evaluate

    def fix_steps(self) -> None:
        """Measure the speed, and fix the number of training steps. Raises TrainingError if the time is too short."""
        self.trainer = self._new_trainer()
        sources = [self._source(index) for index in range(len(self.plan.datasets))]
        evaluate = self.evaluate if self.config.do_eval or self.config.eval_steps else None
        self.plan = with_measured_steps(self.plan, self.trainer, sources, evaluate, self.loop_config)
        self.config = self.plan.config
        check_batch_sizes(self.plan.stages, self.distribution.replicas, self.config.gradient_accumulation_steps)
        self.loop_config = loop_config_of(self.config, self.distribution)
        self.trainer.config = train_config_of(self.config, self.distribution)

    def run(self) -> int:
        """Train, evaluate and write the output files; return the exit code."""
        config, stopped = self.config, None
        if config.do_train:
            if self.distribution.is_chief:
                self._write_run_files()
                self.baselines = self.baselines or self._write_baselines()
            stopped = self._train()
            if stopped is not None:
                if self.distribution.is_chief:
                    write_report(self.output)
                return 128 + stopped
        checkpoint = self._last_checkpoint()
        results = self._evaluate_checkpoint(checkpoint) if config.do_eval else None
        if self.distribution.is_chief:
            model = native.load(self.output)
            if model is not None:
                write_model(self.plan, trained_model(model, checkpoint, results))
            write_report(self.output)
            require_outputs(self.plan, checkpoint, results, has_trained=self.has_trained)
            print_summary(self.output, checkpoint, results, self.monitor.goodput if self.monitor else None)
        return 0

    def _task(self, index: int) -> Objective:
        """Return the objective for the examples of a dataset."""
        # XLA compiles each sequence length separately, and a TPU gets a single length.
        if uses_xla(self.config, self.distribution) or self.distribution.is_tpu:
            return self.task
        from beambert.trainers.backends.tensorflow.static_lengths import with_static_lengths

        return with_static_lengths(self.task, self.plan.datasets[index])

    def _write_run_files(self) -> None:
        """Write the files that identify the run directory, before the first step."""
        output, last_step = self.output, run_manifest.last_step(self.output)
        old = run_manifest.load(output)
        if old is not None and last_step is not None and last_step >= self.plan.stages[-1].end_step:
            # No step follows, and the record must describe the steps that the checkpoint was trained for.
            self.plan = self.plan._replace(record=old)
        plan = self.plan
        new = native.load(output) is None or last_step is None
        write_first_files(output, first_files(plan.vocabulary, plan.model_config, plan.record))
        if new:
            origin = None
            if self.config.init_checkpoint:
                origin = f"training began with the weights of {Path(self.config.init_checkpoint).name}"
            write_model(
                plan,
                native.ModelRecord(
                    **PRETRAINING.recorded,
                    **dataclasses.asdict(WordRules.of(plan.record)),
                    max_seq_length=plan.record.max_seq_length,
                    data_fingerprint=plan.record.data_fingerprint,
                    origin=origin,
                    causal_attention=plan.causal_attention,
                    next_sentence=plan.next_sentence,
                ),
            )

    def _write_baselines(self) -> BaselineRecord | None:
        """Compute the baselines of the data of the first stage, and write them to the run directory."""
        plan, index = self.plan, self.plan.stages[0].data
        record = baselines_of(
            plan.directories[index],
            plan.datasets[index],
            plan.vocabulary,
            causal=plan.causal_attention,
            next_sentence=not self.config.no_next_sentence,
        )
        if record is not None:
            record.write(self.output)
        return record

    def _train(self) -> int | None:
        """Train, resuming from the last checkpoint if any; return the signal that stopped training, or None."""
        config, plan = self.config, self.plan
        saved = last_checkpoint(self.distribution, self.checkpoint_directory)
        if saved is not None and saved.step >= plan.stages[-1].end_step:
            print_status(f"{self.output} is already trained to step {saved.step}; raise --num_train_steps to continue")
            return None
        self.has_trained = True
        trainer = self.trainer or self._new_trainer()
        step, state = resume(trainer, self.output, self.loop_config)
        if state is None:
            self._begin()
        elif config.max_train_time is not None:
            print_time_left(step, plan.stages[-1].end_step, state.get("seconds", 0.0))
        model = native.load(self.output)
        if state is not None and model is not None and self.distribution.is_chief:
            # During training the model is the last checkpoint, whose metrics are not known yet.
            write_model(plan, dataclasses.replace(model, steps=None, metrics={}))
        sources = [self._source(index) for index in range(len(plan.datasets))]
        self.monitor = self._monitor(step, state or {}, plan.start, trainer)
        with self.monitor as monitor:
            stopped = train(
                trainer, step, plan.stages, sources, self.loop_config, self.checkpoint_directory, monitor, self.evaluate
            )
        if self.distribution.is_chief:
            require_checkpoint(self.checkpoint_directory, monitor.step)
        return stopped

    def _new_trainer(self) -> Trainer:
        config = train_config_of(self.config, self.distribution)
        return active_backend().make_trainer(self.task, config, self.distribution)

    def _begin(self) -> None:
        """Load the weights of --init_checkpoint, and print a summary of the training to come."""
        plan = self.plan
        if plan.initial is not None:
            weights = load_weights(plan.initial, self.task.variables)
            if self.distribution.is_chief:
                write_atomic(self.output / run_manifest.INITIAL_WEIGHTS_NAME, weights.to_text().encode())
            print_status(f"Weights loaded from {plan.initial.path}: {'; '.join(weights.lines())}")
        if self.config.init_checkpoint:
            # The files of the other processes may differ.
            send(self.distribution, self.task.variables)
        parameters = sum(math.prod(variable.shape) for variable in self.task.variables.values())
        batches = " then ".join(
            f"{stage.batch_size} sequences of length {plan.datasets[stage.data].max_seq_length}"
            for stage in plan.stages
        )
        devices = f" on {self.distribution.replicas} devices" if self.distribution.replicas > 1 else ""
        print_status(
            f"Training {parameters:,} parameters for {self.config.num_train_steps} steps of {batches}{devices}; "
            "compiling first"
        )

    def _source(self, index: int) -> TrainData:
        """Return a data directory as training data for the loop."""
        config, plan = self.config, self.plan
        directory, dataset = plan.directories[index], plan.datasets[index]
        rows = rows_of(dataset)
        has_lengths = len(plan.datasets) > 1
        last_step = plan.stages[-1].end_step

        def mask_rate(step: int) -> float | None:
            return mask_rate_at(plan.mask_rates, step, last_step)

        def batches(stage: Stage, step: int, share: InputShard) -> Batches:
            own = [other for other in plan.stages if other.data == index and other.first_step <= stage.first_step]
            return train_batches(
                directory,
                dataset,
                own,
                step,
                config.seed,
                **share._asdict(),
                pad_rows=self.distribution.is_tpu,
                corrupt_records=self.corrupt_records,
                mask_rate=mask_rate,
            )

        def work(stage: Stage) -> StepCost:
            label = f"length {dataset.max_seq_length}" if has_lengths else ""
            return cost_of_step(plan.model_config, stage.batch_size, rows, label)

        return TrainData(self.tasks[index], batches, work, self.corrupt_records.num_replaced_before)

    def _monitor(
        self, step: int, state: Mapping, start: float | None = None, trainer: Trainer | None = None
    ) -> TrainingMonitor:
        output = self.output if self.distribution.is_chief else None
        observer = RunObserver(self.plan, self.baselines, trainer, step) if output and trainer else None
        if observer:
            observer.warn()
        return TrainingMonitor(
            output,
            max(self.plan.stages[-1].end_step, step),
            SHOWN_METRICS,
            state,
            step=step,
            peak_flops=peak_flops_of(self.config, self.distribution),
            start=start,
            clock=self.plan.clock,
            levels=self.baselines.levels if self.baselines else None,
            measure=observer.measure if observer else None,
            observe=observer.observe if observer else None,
            trains=trainer is not None,
        )

    def _last_checkpoint(self) -> Checkpoint:
        saved = last_checkpoint(self.distribution, self.checkpoint_directory)
        if saved is None:
            raise TrainingError(f"--output {self.output} contains no checkpoint to evaluate; train with --do_train")
        return saved

    def _evaluate_checkpoint(self, checkpoint: Checkpoint) -> dict[str, float] | None:
        """Evaluate a checkpoint and write the result files; return None without validation examples."""
        restore(self.distribution, checkpoint, self.task.variables, self.task.vocab_size)
        stage = self.plan.stages[-1]
        metrics, lines = self.evaluate(stage)
        if not metrics:
            warn(
                f"{self.plan.directories[stage.data]} has no validation split, so nothing is evaluated; build the data "
                "with a --validation_fraction above 0"
            )
            return None
        if not self.distribution.is_chief:
            return metrics
        state = checkpoint_manager.state_of(checkpoint, MonitorState)
        with self.monitor or self._monitor(checkpoint.step, state) as monitor:
            monitor.record_evaluation(checkpoint.step, metrics, lines)
        if self.config.do_train:
            record_evaluation(self.checkpoint_directory, checkpoint.step, self.loop_config, metrics, self.plan.stages)
        results = {"global_step": checkpoint.step, **metrics}
        write_results(self.output, results)
        return results
