"""Define what a run of pretraining and of fine-tuning have in common: weights, resuming, monitor, files, summary."""

import abc
import dataclasses
import json
import math
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import keras

from beambert.bert_model.checkpoints import native
from beambert.bert_model.checkpoints.model_card import model_card
from beambert.bert_model.layers import seeded_initialization
from beambert.bert_model.size import parameter_counts
from beambert.bert_model.variable_names import variables_by_tf1_name
from beambert.common.local_files import write_atomic
from beambert.common.terminal import print_labeled
from beambert.trainers.backends.backend import Distribution, Trainer, active_backend
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.checkpoints.initial_checkpoint import LoadedWeights, load_weights
from beambert.trainers.monitoring.goodput import summary
from beambert.trainers.monitoring.metrics_jsonl import FILE_NAME as METRICS_NAME
from beambert.trainers.monitoring.throughput import peak_flops
from beambert.trainers.monitoring.training_monitor import MonitorState, TrainingMonitor
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.objective import Objective
from beambert.trainers.optimization.schedule import Stage, check_batch_sizes
from beambert.trainers.options import RunOptions
from beambert.trainers.run_report.run_report import FILE_NAME as REPORT_NAME
from beambert.trainers.run_report.run_report import write_report
from beambert.trainers.training import run_manifest
from beambert.trainers.training.loop import TrainData, record_evaluation, train
from beambert.trainers.training.run_files import (
    directory_errors,
    first_files,
    require_checkpoint,
    require_files,
    write_first_files,
)
from beambert.trainers.training.several_processes import (
    check_agreement,
    decided_by_chief,
    last_checkpoint,
    restore,
    send,
)
from beambert.trainers.training_plan import TrainingPlan

P = TypeVar("P", bound=TrainingPlan)


RESULTS_TEXT_NAME = "eval_results.txt"
RESULTS_JSON_NAME = "eval_results.json"


class Outcome(NamedTuple):
    """The result of a run.

    Attributes:
        checkpoint: checkpoint of the model; None where the weights are those of --init_checkpoint.
        metrics: metrics of the evaluation; None without one.
        predictions: paths of the files with predictions.
    """

    checkpoint: Checkpoint | None
    metrics: Mapping[str, float] | None
    predictions: Sequence[Path] = ()


def open_devices(config: RunOptions) -> Distribution:
    """Seed all random generators, set the precision and open the devices; the backend must have been started.

    Raises:
        TrainingError: the devices are not available.
    """
    if keras.backend.backend() == "tensorflow":
        keras.utils.set_random_seed(config.seed)
    else:
        # The generator of Keras's initializers. The function of Keras imports TensorFlow where it is installed.
        random.seed(config.seed)
    keras.config.set_dtype_policy("mixed_bfloat16" if config.precision == "bfloat16" else "float32")
    strategy = "mirrored" if config.strategy == "auto" and config.cpu_devices > 1 else config.strategy
    return active_backend().open_distribution(strategy, config.tpu_name, config.tpu_zone, config.gcp_project)


def start(run_type: "type[TrainingRun[P]]", plan: P) -> int:
    """Run a plan; the backend must have been started.

    Args:
        run_type: `PretrainingRun` or `FinetuningRun`.
        plan: validated plan.

    Returns:
        The exit code of the command: 0 on completion; 130 or 143 if stopped by Ctrl-C or SIGTERM, after a checkpoint.

    Raises:
        DatasetError, TrainingError: a one-line message.
    """
    distribution = open_devices(plan.config)
    with distribution.machine_errors():
        run = run_type(plan, distribution)
        with directory_errors(run.output, run.plan.record, is_chief=distribution.is_chief):
            return run.run()


class TrainingRun(abc.ABC, Generic[P]):
    """A run with its model on the devices.

    Args:
        plan: validated plan.
        distribution: the devices.

    Attributes:
        extending_flag: flag that extends a run which is trained to its last step.
        shown_metrics: metrics of the progress line and of evaluations, with their labels.
    """

    extending_flag: str
    shown_metrics: Mapping[str, str]

    def __init__(self, plan: P, distribution: Distribution) -> None:
        self.plan, self.distribution = plan, distribution
        self.output = plan.output
        self.checkpoint_directory = plan.output / native.CHECKPOINTS_NAME
        check_batch_sizes(plan.stages, distribution.replicas, plan.config.gradient_accumulation_steps)
        check_agreement(distribution, plan.record, plan.model_config, causal_attention=plan.causal_attention)
        with distribution.scope(), seeded_initialization(plan.config.seed):
            self.model = self.build_model()
        self.variables = variables_by_tf1_name(self.model)
        self.model.encoder.set_activation_checkpointing(plan.config.activation_checkpointing)
        self.objective = self.build_objective()
        # Number of consecutive evaluations without improvement that ends training; 0 for no early stopping.
        self.patience = 0
        self.has_trained = False
        self.trainer: Trainer | None = None
        # Of a run that trains; it also records the last evaluation.
        self.monitor: TrainingMonitor | None = None

    @abc.abstractmethod
    def build_model(self) -> Any:
        """Return the model, with random weights."""

    @abc.abstractmethod
    def build_objective(self) -> Objective:
        """Return the objective of the model."""

    @abc.abstractmethod
    def train_data(self) -> list[TrainData]:
        """Return the training data, in the order of the data indices of the stages."""

    @abc.abstractmethod
    def evaluate(self, stage: Stage) -> tuple[Mapping[str, float], Sequence[str]]:
        """Evaluate the current model; return its metrics and lines of text to print."""

    @abc.abstractmethod
    def finish(self) -> Outcome:
        """Evaluate the model after training, or without it, and write predictions."""

    @abc.abstractmethod
    def model_record(self, origin: str | None) -> native.ModelRecord:
        """Return the record of the model without its step and metrics; `origin` describes its initial weights."""

    @abc.abstractmethod
    def describe_training(self) -> str:
        """Return what the steps train on, for the line before the first step."""

    @abc.abstractmethod
    def print_results(self, outcome: Outcome) -> None:
        """Print the results for the summary, with warnings about them."""

    @abc.abstractmethod
    def next_commands(self, outcome: Outcome) -> list[str]:
        """Return the last lines of the summary: commands for the model."""

    def load_initial(self) -> LoadedWeights:
        """Load the weights of --init_checkpoint."""
        assert self.plan.initial is not None
        return load_weights(self.plan.initial, self.variables)

    def initialize_head(self) -> None:
        """Set the weights of the head whose initial values depend on the data."""

    def prepare_training(self) -> None:
        """Write the further files that the run needs before its first step; called on the chief."""

    def print_resumed(self, _step: int, _state: Mapping[str, Any]) -> None:
        """Print a line about a run that resumes.

        Args:
            _step: number of completed steps.
            _state: state of the monitor at that step.
        """

    def monitor_options(self, _step: int) -> dict[str, Any]:
        """Return further arguments of the monitor of a run that trains from a step."""
        return {}

    def expected_files(self, _outcome: Outcome) -> list[str]:
        """Return the files that a run without training reports as written, besides those of all runs."""
        return []

    def run(self) -> int:
        """Train, evaluate and write the output files; return the exit code."""
        if self.plan.config.do_train:
            stopped = self._train()
            if stopped is not None:
                if self.distribution.is_chief:
                    write_report(self.output)
                return 128 + stopped
        outcome = self.finish()
        if self.distribution.is_chief:
            has_results = outcome.metrics is not None and self.plan.records_evaluation
            if outcome.checkpoint is not None and (self.plan.config.do_train or has_results):
                self.write_model(outcome.checkpoint.step, outcome.metrics)
            write_report(self.output)
            self._require_outputs(outcome)
            self._print_summary(outcome)
        return 0

    def new_trainer(self) -> Trainer:
        """Return a trainer of the objective on the devices."""
        return active_backend().make_trainer(self.objective, self.plan.config, self.distribution)

    def write_model(self, step: int | None, metrics: Mapping[str, float] | None) -> None:
        """Write `beambert.json` and the model card, which make the directory a model for all commands.

        Args:
            step: step of the model's checkpoint; None during training, for the last checkpoint.
            metrics: metrics of the checkpoint; None keeps the recorded metrics of the same step.
        """
        plan, before = self.plan, native.load(self.output)
        if plan.config.do_train:
            model = self.model_record(before.origin if before else None)
        elif before is not None:
            model = before
        else:
            return
        kept = before.metrics if before is not None and before.steps == step else {}
        new = None if metrics is None else {name: value for name, value in metrics.items() if name != "global_step"}
        model = dataclasses.replace(model, steps=step, metrics=kept if new is None else new)
        parameters = parameter_counts(plan.model_config, model.head, model.num_labels).total
        card = model_card(plan.model_config, model, parameters)
        write_atomic(self.output / native.MODEL_CARD_FILE_NAME, card.encode())
        write_atomic(self.output / native.FILE_NAME, model.to_json().encode())

    def record_metrics(self, checkpoint: Checkpoint, metrics: Mapping[str, float], lines: Sequence[str] = ()) -> None:
        """Log the evaluation of the last checkpoint, and record the checkpoint as the best if it improved."""
        state = checkpoint_manager.state_of(checkpoint, MonitorState)
        with self.monitor or self._make_monitor(checkpoint.step, state, trains=False) as monitor:
            monitor.record_evaluation(checkpoint.step, metrics, lines)
        if self.plan.config.do_train:
            plan = self.plan
            record_evaluation(self.checkpoint_directory, checkpoint.step, plan.config, metrics, plan.stages)

    def write_results(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """Write the step and the metrics of an evaluation, and return them.

        The files are sorted lines of `key = value`, like those of the released code, and JSON.
        """
        results = {"global_step": step, **metrics}
        text = "".join(f"{name} = {value}\n" for name, value in sorted(results.items()))
        write_atomic(self.output / RESULTS_TEXT_NAME, text.encode())
        # JSON has no non-finite numbers.
        values = {name: value if math.isfinite(value) else None for name, value in results.items()}
        write_atomic(self.output / RESULTS_JSON_NAME, json.dumps(values, indent=2, sort_keys=True).encode() + b"\n")
        return results

    @property
    def eval_batch_size(self) -> int:
        """Return --eval_batch_size, rounded up to a multiple of the number of replicas."""
        replicas = self.distribution.replicas
        return -(-self.plan.config.eval_batch_size // replicas) * replicas

    def _train(self) -> int | None:
        """Train, resuming from the last checkpoint if any; return the signal that stopped training, or None."""
        if self.distribution.is_chief:
            self._write_first_files()
            self.prepare_training()
        saved = last_checkpoint(self.distribution, self.checkpoint_directory)
        if saved is not None and saved.step >= self.plan.num_train_steps:
            print_status(
                f"{self.output} is already trained to step {saved.step}; raise {self.extending_flag} to continue"
            )
            return None
        self.has_trained = True
        trainer = self.trainer = self.trainer or self.new_trainer()
        step, state = self._restore(trainer, saved)
        if state is None:
            self._initialize_weights()
        else:
            self.print_resumed(step, state)
        if self.distribution.is_chief:
            # During training the model is the last checkpoint, whose metrics are not known yet.
            self.write_model(None, None)
        sources = self.train_data()
        self.monitor = self._make_monitor(step, state or {}, trains=True)
        with self.monitor as monitor:
            stopped = train(
                trainer,
                step,
                self.plan.stages,
                sources,
                self.checkpoint_directory,
                monitor,
                self.evaluate,
                patience=self.patience,
            )
        if self.distribution.is_chief:
            require_checkpoint(self.checkpoint_directory, monitor.step)
        return stopped

    def _restore(self, trainer: Trainer, saved: Checkpoint | None) -> tuple[int, dict[str, Any] | None]:
        """Restore a new trainer from a checkpoint, and warn if the disk has no space for further checkpoints.

        Returns:
            The number of completed steps, and the state of the monitor at the checkpoint; (0, None) without one.
        """
        vocab_size = trainer.objective.vocab_size
        shortage = checkpoint_manager.space_warning(
            self.checkpoint_directory, trainer.saved_variables, vocab_size, trainer.config
        )
        if shortage and self.distribution.is_chief:
            warn(shortage)
        if saved is None:
            return 0, None
        restore(self.distribution, saved, trainer.saved_variables, vocab_size)
        print_status(f"Resuming {self.output} from step {saved.step} of {self.plan.num_train_steps}")
        state = decided_by_chief(self.distribution, lambda: checkpoint_manager.state_of(saved, MonitorState))
        return saved.step, state

    def _initialize_weights(self) -> None:
        """Load the weights of --init_checkpoint, and print what is trained."""
        plan = self.plan
        if plan.initial is not None:
            weights = self.load_initial()
            if self.distribution.is_chief:
                write_atomic(self.output / run_manifest.INITIAL_WEIGHTS_NAME, weights.to_text().encode())
            print_status(f"Weights loaded from {plan.initial.path}: {'; '.join(weights.lines())}")
        self.initialize_head()
        if plan.config.init_checkpoint:
            # The files of the other processes may differ.
            send(self.distribution, self.variables)
        parameters = sum(math.prod(variable.shape) for variable in self.objective.variables.values())
        devices = f" on {self.distribution.replicas} devices" if self.distribution.replicas > 1 else ""
        print_status(f"Training {parameters:,} parameters {self.describe_training()}{devices}; compiling first")

    def _make_monitor(self, step: int, state: Mapping[str, Any], *, trains: bool) -> TrainingMonitor:
        return TrainingMonitor(
            self.output if self.distribution.is_chief else None,
            max(self.plan.num_train_steps, step),
            self.shown_metrics,
            state,
            step=step,
            peak_flops=self._peak_flops(),
            start=self.plan.start if trains else None,
            clock=self.plan.clock,
            trains=trains,
            **(self.monitor_options(step) if trains else {}),
        )

    def _peak_flops(self) -> float | None:
        """Return the peak of all devices together in FLOP/s; None if unknown."""
        config, replicas = self.plan.config, self.distribution.replicas
        if config.peak_tflops is not None:
            return config.peak_tflops * 1e12 * replicas
        peak = peak_flops(self.distribution.device_name, config.precision)
        return None if peak is None else peak * replicas

    def _write_first_files(self) -> None:
        """Write the files that identify the run directory, before the first step."""
        last_step, old = run_manifest.last_step(self.output), run_manifest.load(self.output)
        if old is not None and last_step is not None and last_step >= self.plan.num_train_steps:
            # No step follows, and the record must describe the steps that the checkpoint was trained for.
            fingerprint = self.plan.record.evaluation_fingerprint
            record = dataclasses.replace(old, evaluation_fingerprint=fingerprint)
            self.plan = dataclasses.replace(self.plan, record=record)
        plan = self.plan
        write_first_files(self.output, first_files(plan.vocabulary, plan.model_config, plan.record))

    def _require_outputs(self, outcome: Outcome) -> None:
        """Check that the files of the summary exist. Raise StorageError with the name of a missing file."""
        plan = self.plan
        names = [REPORT_NAME, *self.expected_files(outcome)]
        names += [str(path.relative_to(self.output)) for path in outcome.predictions]
        if outcome.metrics:
            names += [RESULTS_TEXT_NAME, RESULTS_JSON_NAME]
        if self.has_trained:
            names.append(METRICS_NAME)
        contents: dict[str, bytes | None] = dict.fromkeys(names)
        if plan.config.do_train:
            contents |= first_files(plan.vocabulary, plan.model_config, plan.record)
            contents |= dict.fromkeys((native.FILE_NAME, native.MODEL_CARD_FILE_NAME))
        require_files(self.output, contents, outcome.checkpoint.prefix if outcome.checkpoint else None)

    def _print_summary(self, outcome: Outcome) -> None:
        """Print the output files and the results, the goodput of training, and the next commands."""
        if outcome.checkpoint is not None:
            print_status(f"Checkpoint   {outcome.checkpoint.prefix} (step {outcome.checkpoint.step})")
        self.print_results(outcome)
        if self.monitor is not None:
            print_labeled("Goodput      ", summary(self.monitor.goodput), sys.stdout)
        print_status(f"Report       {self.output / 'report.html'}")
        for line in self.next_commands(outcome):
            print_status(line)
