"""A pretraining run: build the model on its devices, train and evaluate."""

import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from beambert.bert_model.checkpoints import native
from beambert.bert_model.heads import PRETRAINING
from beambert.bert_model.pretraining import BertForPretraining
from beambert.bert_model.size import parameter_counts
from beambert.common.terminal import print_labeled
from beambert.common.word_rules import WordRules
from beambert.pipelines import dataset as manifest
from beambert.trainers.backends.backend import Distribution, Trainer, active_backend, uses_xla
from beambert.trainers.data.dynamic_masking import mask_rate_at
from beambert.trainers.data.pipeline import Batches, InputShard, train_batches, validation_batches
from beambert.trainers.data.shard_reader import CorruptRecordPolicy
from beambert.trainers.errors import TrainingError
from beambert.trainers.metrics import baseline_record
from beambert.trainers.metrics.baseline_record import BaselineRecord, passed_at
from beambert.trainers.metrics.chance_levels import pretraining_levels, with_level
from beambert.trainers.metrics.diagnosis import UPDATE_RATIO, WEIGHT_RMS, findings_of_run
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.monitoring.mlm_samples import mlm_samples
from beambert.trainers.monitoring.throughput import StepCost, cost_of_step, rows_of
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.objective import Objective
from beambert.trainers.optimization.schedule import Stage, check_batch_sizes
from beambert.trainers.optimization.update_measures import update_measures
from beambert.trainers.pretraining.baselines import baselines_of
from beambert.trainers.pretraining.plan import PretrainingPlan
from beambert.trainers.pretraining.pretraining_objective import SHOWN_METRICS, pretraining_objective
from beambert.trainers.pretraining.time_budget import print_time_left, with_measured_steps
from beambert.trainers.run_report.run_facts import facts_of, findings_of, read_run
from beambert.trainers.run_report.run_warnings import score_warnings
from beambert.trainers.training import run_manifest
from beambert.trainers.training.loop import TrainData
from beambert.trainers.training.several_processes import last_checkpoint, restore
from beambert.trainers.training_run import Outcome, TrainingRun

# Validation examples that are considered for the masked-LM samples.
_SAMPLE_ROWS = 8


class PretrainingRun(TrainingRun[PretrainingPlan]):
    """A pretraining run with its model on the devices.

    Args:
        plan: validated plan.
        distribution: the devices.

    Raises:
        TrainingError: the time of --max_train_time is too short.
    """

    extending_flag = "--num_train_steps"
    shown_metrics = SHOWN_METRICS

    def __init__(self, plan: PretrainingPlan, distribution: Distribution) -> None:
        super().__init__(plan, distribution)
        skip = plan.config.on_corrupt_record == "skip"
        self.corrupt_records = CorruptRecordPolicy(skip=skip)
        # Of the chief.
        self.baselines = baseline_record.load(plan.output) if distribution.is_chief else None
        self.objectives = [self._objective_of(index) for index in range(len(plan.datasets))]
        self._evaluations = [active_backend().evaluation_of(objective, distribution) for objective in self.objectives]
        self._masked_lm_logits = active_backend().compiled(
            lambda features: self.model(features).masked_lm, list(self.objective.variables.values())
        )
        self._corrupt_validation_records = [CorruptRecordPolicy(skip=skip) for _ in plan.datasets]
        # Of the chief, by data index.
        self._chance_levels: dict[int, dict[str, float]] = {}
        if plan.needs_steps:
            self._fix_steps()

    def _fix_steps(self) -> None:
        """Measure the speed, and fix the number of training steps."""
        self.trainer = self.new_trainer()
        config = self.plan.config
        evaluate = self.evaluate if config.do_eval or config.eval_steps else None
        self.plan = with_measured_steps(self.plan, self.trainer, self.train_data(), evaluate)
        config = self.plan.config
        check_batch_sizes(self.plan.stages, self.distribution.replicas, config.gradient_accumulation_steps)
        self.trainer.config = config

    def build_model(self) -> BertForPretraining:
        """Return the model, with random weights."""
        # Matrix units of accelerators need multiples of 128; on a CPU padding made no difference.
        return BertForPretraining(
            self.plan.model_config,
            pad_vocabulary=self.distribution.is_accelerated,
            causal_attention=self.plan.causal_attention,
        )

    def build_objective(self) -> Objective:
        """Return the objective of the model."""
        return pretraining_objective(self.model, next_sentence=not self.plan.config.no_next_sentence)

    def _objective_of(self, index: int) -> Objective:
        """Return the objective for the examples of a dataset."""
        # XLA compiles each sequence length separately, and a TPU gets a single length.
        if uses_xla(self.plan.config, self.distribution) or self.distribution.is_tpu:
            return self.objective
        from beambert.trainers.backends.tensorflow.input import with_static_lengths

        return with_static_lengths(self.objective, self.plan.datasets[index])

    def train_data(self) -> list[TrainData]:
        """Return the training data of each directory of --data."""
        return [self._source(index) for index in range(len(self.plan.datasets))]

    def _source(self, index: int) -> TrainData:
        config, plan = self.plan.config, self.plan
        directory, dataset = plan.directories[index], plan.datasets[index]
        rows = rows_of(dataset)
        has_lengths = len(plan.datasets) > 1

        def mask_rate(step: int) -> float | None:
            return mask_rate_at(plan.mask_rates, step, plan.num_train_steps)

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

        return TrainData(self.objectives[index], batches, work, self.corrupt_records.num_replaced_before)

    def prepare_training(self) -> None:
        """Write the baselines of the data of the first stage, unless the run has them."""
        if self.baselines is not None:
            return
        plan, index = self.plan, self.plan.stages[0].data
        self.baselines = baselines_of(
            plan.directories[index],
            plan.datasets[index],
            plan.vocabulary,
            causal=plan.causal_attention,
            next_sentence=not plan.config.no_next_sentence,
        )
        if self.baselines is not None:
            self.baselines.write(self.output)

    def model_record(self, origin: str | None) -> native.ModelRecord:
        """Return the record of the model without its step and metrics."""
        plan = self.plan
        if plan.initial is not None:
            origin = f"training began with the weights of {plan.initial.path.name}"
        return native.ModelRecord(
            **PRETRAINING.recorded,
            **dataclasses.asdict(WordRules.of(plan.record)),
            max_seq_length=plan.record.max_seq_length,
            data_fingerprint=plan.record.data_fingerprint,
            origin=origin,
            causal_attention=plan.causal_attention,
            next_sentence=plan.next_sentence,
        )

    def describe_training(self) -> str:
        """Return the number of steps and the batches of each stage."""
        plan = self.plan
        batches = " then ".join(
            f"{stage.batch_size} sequences of length {plan.datasets[stage.data].max_seq_length}"
            for stage in plan.stages
        )
        return f"for {plan.num_train_steps} steps of {batches}"

    def print_resumed(self, step: int, state: Mapping[str, Any]) -> None:
        """Print the time that is left of --max_train_time."""
        if self.plan.config.max_train_time is not None:
            print_time_left(step, self.plan.num_train_steps, state.get("seconds", 0.0))

    def monitor_options(self, step: int) -> dict[str, Any]:
        """Return the levels of the baselines and, on the chief, the observation of training."""
        levels = self.baselines.levels if self.baselines else None
        if not self.distribution.is_chief:
            return {"levels": levels}
        assert self.trainer is not None
        observer = _Observer(self.plan, self.baselines, self.trainer, step)
        observer.warn()
        return {"levels": levels, "measure": observer.measure, "observe": observer.observe}

    def evaluate(self, stage: Stage) -> tuple[dict[str, float], list[str]]:
        """Evaluate the current model on the validation split of a stage's data.

        All metrics are means over all examples: sums of weights and losses are divided once, at the end. The released
        code does the same for the four masked_lm_* and next_sentence_* metrics. Its `loss` is the mean over batches;
        here it is the sum of masked_lm_loss and next_sentence_loss, which does not depend on the batch size.

        Returns:
            The metrics, and masked-LM samples as lines of text; both empty without validation examples.
        """
        directory, dataset = self.plan.directories[stage.data], self.plan.datasets[stage.data]
        config, corrupt_records = self.plan.config, self._corrupt_validation_records[stage.data]
        batch_size = self.eval_batch_size

        def batches(share: InputShard) -> Batches:
            batches = validation_batches(
                directory,
                dataset,
                batch_size,
                config.max_eval_steps,
                **share._asdict(),
                pad_rows=self.distribution.is_tpu,
                corrupt_records=corrupt_records,
            )
            if batches is None:
                raise _NoValidationExamples
            return batches

        try:
            metrics = self._evaluations[stage.data](batches)
            if self.distribution.is_chief and stage.data not in self._chance_levels:
                # The labels of an evaluation are the same at every step.
                self._chance_levels[stage.data] = pretraining_levels(batches(InputShard()), not config.no_next_sentence)
            lines = self._mlm_samples(batches(InputShard()))
        except _NoValidationExamples:
            return {}, []
        if replaced := corrupt_records.num_replaced_before(sys.maxsize):
            warn(f"{replaced} corrupt validation examples in {directory} were replaced by other examples")
        metrics["loss"] = metrics["masked_lm_loss"] + metrics.get("next_sentence_loss", 0.0)
        metrics |= self._chance_levels.get(stage.data, {})
        return metrics, lines

    def _mlm_samples(self, batches: Batches) -> list[str]:
        """Return masked-LM samples of the first validation examples; none on a TPU host of TensorFlow."""
        if self.distribution.is_tpu or not self.distribution.is_chief:
            return []
        features = {name: values[:_SAMPLE_ROWS] for name, values in next(iter(batches)).items()}
        return mlm_samples(features, self._masked_lm_logits(features), self.plan.vocabulary)

    def finish(self) -> Outcome:
        """Evaluate the last checkpoint, if configured, and write the result files."""
        checkpoint = last_checkpoint(self.distribution, self.checkpoint_directory)
        if checkpoint is None:
            raise TrainingError(f"--output {self.output} contains no checkpoint to evaluate; train with --do_train")
        if not self.plan.config.do_eval:
            return Outcome(checkpoint, None)
        restore(self.distribution, checkpoint, self.variables, self.objective.vocab_size)
        stage = self.plan.stages[-1]
        metrics, lines = self.evaluate(stage)
        if not metrics:
            warn(
                f"{self.plan.directories[stage.data]} has no validation split, so nothing is evaluated; build the data "
                "with a --validation_fraction above 0"
            )
            return Outcome(checkpoint, None)
        if self.distribution.is_chief:
            self.record_metrics(checkpoint, metrics, lines)
            metrics = self.write_results(checkpoint.step, metrics)
        return Outcome(checkpoint, metrics)

    def expected_files(self, _outcome: Outcome) -> list[str]:
        """Return the files of the model."""
        return [manifest.VOCAB_FILE_NAME, native.CONFIG_FILE_NAME, run_manifest.FILE_NAME]

    def print_results(self, outcome: Outcome) -> None:
        """Print model, evaluation, warnings about them, and the levels that training passed."""
        output, results = self.output, outcome.metrics
        print_status(f"Model        {output / native.CONFIG_FILE_NAME}, {output / manifest.VOCAB_FILE_NAME}")
        if results:
            shown = {"masked_lm_accuracy": "masked-LM accuracy", "next_sentence_accuracy": "next-sentence accuracy"}
            shown["loss"] = "loss"
            scores = ", ".join(
                with_level(f"{label} {results[name]:.3f}", name, results)
                for name, label in shown.items()
                if name in results
            )
            print_labeled("Evaluation   ", f"{output / 'eval_results.txt'}: {scores}", sys.stdout)
            for line in score_warnings(results, {}):
                warn(line)
        run = read_run(output)
        for line in findings_of(run):
            warn(line)
        if (steps := passed_at(run.train, run.levels)) or run.levels:
            passed = ", ".join(f"{name} at step {step:,}" for name, step in steps.items())
            print_status(f"Levels       passed: {passed or 'none'}")

    def next_commands(self, _outcome: Outcome) -> list[str]:
        """Return a command for the logs, and one for the model."""
        directory, logs = shlex.quote(str(self.output)), shlex.quote(str(self.output / "logs"))
        return [
            f"TensorBoard  tensorboard --logdir {logs}",
            f"Try it       beambert fill-mask {directory} 'The capital of France is [MASK].'",
        ]


class _NoValidationExamples(Exception):
    """A dataset without validation examples."""


class _Observer:
    """Measure the optimizer during training, and warn once of a run that does not learn; on the chief.

    Args:
        plan: the run's plan.
        baselines: baselines of its training text; None if they are unknown.
        trainer: the trainer.
        step: number of completed steps.
    """

    def __init__(self, plan: PretrainingPlan, baselines: BaselineRecord | None, trainer: Trainer, step: int) -> None:
        self._trainer, self._baselines = trainer, baselines
        self._options = plan.record.options
        self._config = json.loads(plan.model_config.to_json())
        self._parameters = parameter_counts(plan.model_config).total
        lines = metrics_jsonl.read(plan.output / metrics_jsonl.FILE_NAME)
        self._lines = [line for line in lines if line["split"] == "train" and line["step"] <= step]
        # Causes that were printed, each once.
        self._printed: set[str] = set()

    def measure(self, step: int) -> dict[str, float]:
        """Return `update_measures` of the last of `step` steps."""
        rate = self._trainer.config.rate_at(step - 1)
        measures = update_measures(self._trainer.optimizer, float(rate), step - 1)
        return {} if measures is None else {UPDATE_RATIO: measures.ratio, WEIGHT_RMS: measures.weight_rms}

    def observe(self, line: Mapping[str, Any]) -> None:
        """Read a training line, and warn of new findings; those after the last step are part of the summary."""
        self._lines.append(dict(line))
        if line["step"] < (self._trainer.config.num_train_steps or 0):
            self.warn()

    def warn(self) -> None:
        """Print the findings that were not printed before."""
        facts = facts_of(self._options, self._config, self._baselines, self._lines, self._parameters)
        for finding in findings_of_run(facts) if facts else []:
            if finding.cause not in self._printed:
                self._printed.add(finding.cause)
                warn(str(finding))
