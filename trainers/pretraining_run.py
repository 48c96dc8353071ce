"""A pretraining run as `trainers.pretrain` has planned it: model, devices and data put together, trained, evaluated."""

import argparse
import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from bert_model import native
from bert_model.model_card import model_card
from bert_model.names import PRETRAINING
from bert_model.pretraining import BertForPretraining
from bert_model.size import parameter_counts
from pipelines import dataset as manifest
from trainers import checkpointing, run_record
from trainers.chance_levels import pretraining_levels, with_level
from trainers.checkpointing import Checkpoint
from trainers.distribution import Distribution, Share
from trainers.errors import TrainingError
from trainers.evaluation import evaluation_of
from trainers.filled_masks import filled_masks
from trainers.initial_checkpoint import load_weights
from trainers.input import reading_errors, train_batches, validation_batches
from trainers.loop import Source, record_evaluation, train
from trainers.metrics_log import FILE_NAME as METRICS_NAME
from trainers.pretrain import Plan
from trainers.pretraining_task import SHOWN_METRICS, pretraining_task
from trainers.progress import say, warn
from trainers.recomputation import recompute
from trainers.run_files import directory_errors, first_files, require_checkpoint, require_files, write_first_files
from trainers.run_report.report import FILE_NAME as REPORT_NAME
from trainers.run_report.report import write_report
from trainers.run_report.warnings import score_warnings
from trainers.run_setup import (
    RESULTS_JSON_NAME,
    RESULTS_TEXT_NAME,
    eval_batch_size_of,
    is_accelerated,
    open_devices,
    peak_flops_of,
    resume,
    rhythm_of,
    settings_of,
    uses_xla,
    write_results,
)
from trainers.shard_reader import Damage
from trainers.stages import Stage, check_batch_sizes
from trainers.static_shapes import with_static_lengths
from trainers.task import Features, Task
from trainers.throughput import Work, rows_of, work_of_update
from trainers.trainer import Trainer
from trainers.watching import Watch, WatchState
from trainers.whole_files import write_whole

# Rows of the validation data whose masks are shown filled.
_SHOWN_ROWS = 8


def train_and_evaluate(args: argparse.Namespace, plan: Plan) -> int:
    """Does what the options ask for; TensorFlow is started.

    Returns:
        The exit code of `beambert pretrain`.

    Raises:
        DatasetError, TrainingError: one line for the user.
    """
    distribution = open_devices(args)
    check_batch_sizes(plan.stages, distribution.replicas, args.gradient_accumulation_steps)
    with distribution.machine_errors(), directory_errors(plan.output, plan.record, is_chief=distribution.is_chief):
        return PretrainingRun(args, plan, distribution).run()


class PretrainingRun:
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
        with distribution.scope():
            # Matrix units want rows by the 128; on a CPU the padding made no difference.
            self.model = BertForPretraining(
                plan.config, pad_vocabulary=is_accelerated(), left_to_right=plan.left_to_right
            )
        recompute(self.model.encoder, args.recompute)
        self.task = pretraining_task(self.model, next_sentence=not args.no_next_sentence)
        # Two, since each counts by its own batches.
        self.damage, self.validation_damage = (Damage(skip=args.on_corrupt == "skip") for _ in range(2))
        self.rhythm = rhythm_of(args)
        self.has_trained = False
        # By the number of the data.
        self.chance_levels: dict[int, dict[str, float]] = {}
        self.tasks = [self._task(index) for index in range(len(plan.datasets))]
        self.evaluations = [evaluation_of(task, distribution) for task in self.tasks]

    def run(self) -> int:
        """Trains, evaluates, and writes the files of the run's directory; the exit code."""
        args, stopped = self.args, None
        if args.do_train:
            if self.distribution.is_chief:
                self._write_beginning()
            stopped = self._train()
            if stopped is not None:
                self._write_report()
                return 128 + stopped
        checkpoint = self._last_checkpoint()
        results = self._evaluate_checkpoint(checkpoint) if args.do_eval else None
        if self.distribution.is_chief:
            model = native.load(self.output)
            if model is not None:
                self._write_model(_trained_model(model, checkpoint, results))
            self._write_report()
            self._require_files(checkpoint, results)
            self._summarise(checkpoint, results)
        return 0

    def evaluate(self, stage: Stage) -> tuple[dict[str, float], list[str]]:
        """Evaluates the model as it is on the validation examples of a stage's data.

        All numbers are taken over the examples as a whole: sums of weights and losses are divided once, at the end. The
        released code does the same for the four masked_lm_* and next_sentence_* numbers; its `loss` is the mean over
        batches of each batch's loss, ours the sum of masked_lm_loss and next_sentence_loss, which the batch size leaves
        alone.

        Returns:
            The metrics, and a few filled masks; nothing if there are no validation examples.
        """
        directory, dataset = self.plan.directories[stage.data], self.plan.datasets[stage.data]
        batch_size = eval_batch_size_of(self.args, self.distribution)
        max_steps = self.args.max_eval_steps

        def batches(share: Share) -> tf.data.Dataset:
            found = validation_batches(
                directory,
                dataset,
                batch_size,
                max_steps,
                **share._asdict(),
                pad_rows=self.distribution.is_tpu,
                damage=self.validation_damage,
            )
            if found is None:
                raise _NothingToEvaluateOn
            return found

        try:
            with reading_errors(self.validation_damage):
                metrics = self.evaluations[stage.data](self.distribution.batches(batches))
                if self.distribution.is_chief and stage.data not in self.chance_levels:
                    # The labels of an evaluation are the same at every step.
                    self.chance_levels[stage.data] = pretraining_levels(
                        batches(Share()).as_numpy_iterator(), not self.args.no_next_sentence
                    )
                lines = self._filled_masks(batches(Share()))
        except _NothingToEvaluateOn:
            return {}, []
        if replaced := self.validation_damage.replaced_before(sys.maxsize):
            warn(f"{replaced} corrupt validation examples of {directory}: others were evaluated twice in their place")
        metrics["loss"] = metrics["masked_lm_loss"] + metrics.get("next_sentence_loss", 0.0)
        metrics |= self.chance_levels.get(stage.data, {})
        return metrics, lines

    def _task(self, index: int) -> Task:
        """The task as the rows of one dataset need it."""
        # XLA compiles every length of rows for itself, and a TPU sees one.
        return (
            self.task
            if uses_xla(self.args) or self.distribution.is_tpu
            else with_static_lengths(self.task, self.plan.datasets[index])
        )

    def _write_beginning(self) -> None:
        """What makes the run's directory one, before the first update."""
        plan, output = self.plan, self.output
        new = native.load(output) is None or run_record.last_step(output) is None
        write_first_files(output, first_files(plan.vocabulary, plan.config, plan.record))
        if new:
            origin = None
            if self.args.init_checkpoint:
                origin = f"training began with the weights of {Path(self.args.init_checkpoint).name}"
            self._write_model(
                native.ModelRecord(
                    task=PRETRAINING,
                    do_lower_case=plan.record.do_lower_case,
                    max_seq_length=plan.record.max_seq_length,
                    data_fingerprint=plan.record.data_fingerprint,
                    origin=origin,
                    left_to_right=plan.left_to_right,
                )
            )

    def _write_model(self, model: native.ModelRecord) -> None:
        """Writes `beambert.json` and the model card, which make a run's directory a model for every command."""
        card = model_card(self.plan.config, model, parameter_counts(self.plan.config).total)
        write_whole(self.output / native.MODEL_CARD_FILE_NAME, card.encode())
        write_whole(self.output / native.FILE_NAME, model.to_json().encode())

    def _train(self) -> int | None:
        """Trains, resuming if there is a checkpoint; the number of the signal that stopped it, or None."""
        args, plan = self.args, self.plan
        saved = checkpointing.checkpoints(self.checkpoint_directory)
        if saved and saved[-1].step >= args.num_train_steps:
            say(f"{self.output} is already trained to step {saved[-1].step}; a higher --num_train_steps would go on")
            return None
        self.has_trained = True
        trainer = Trainer(self.task, settings_of(args), self.distribution)
        state = resume(trainer, self.output, self.rhythm)
        if state is None:
            self._begin()
        model = native.load(self.output)
        if state is not None and model is not None and self.distribution.is_chief:
            # Until it is trained, the model is the last checkpoint and not the one that was evaluated before.
            self._write_model(dataclasses.replace(model, steps=None, metrics={}))
        step = int(trainer.global_step.numpy())
        sources = [self._source(index) for index in range(len(plan.datasets))]
        shortage = checkpointing.space_warning(
            self.checkpoint_directory, trainer.saved_variables, self.task.vocab_size, self.rhythm.keeping
        )
        if shortage and self.distribution.is_chief:
            warn(shortage)
        with self._watch(step, state or {}) as watch, reading_errors(self.damage):
            stopped = train(trainer, plan.stages, sources, self.rhythm, self.checkpoint_directory, watch, self.evaluate)
        if self.distribution.is_chief:
            require_checkpoint(self.checkpoint_directory, watch.step)
        return stopped

    def _begin(self) -> None:
        """Takes over the weights of --init_checkpoint, and says what is about to be trained."""
        plan = self.plan
        if plan.initial is not None:
            weights = load_weights(plan.initial, self.task.variables)
            if self.distribution.is_chief:
                write_whole(self.output / run_record.INITIAL_WEIGHTS_NAME, weights.to_text().encode())
            say(f"Weights read from {plan.initial.path}: {'; '.join(weights.lines())}")
        parameters = sum(variable.shape.num_elements() for variable in self.task.variables.values())
        batches = " then ".join(
            f"{stage.batch_size} sequences of {plan.datasets[stage.data].max_seq_length}" for stage in plan.stages
        )
        devices = f" on {self.distribution.replicas} devices" if self.distribution.replicas > 1 else ""
        say(
            f"Training {parameters:,} parameters for {self.args.num_train_steps} steps of {batches}{devices}; "
            "compiling takes some seconds"
        )

    def _source(self, index: int) -> Source:
        """A directory of data as the loop reads it."""
        args, plan = self.args, self.plan
        directory, dataset = plan.directories[index], plan.datasets[index]
        rows = rows_of(dataset)
        several = len(plan.datasets) > 1

        def batches(stage: Stage, step: int, share: Share) -> tf.data.Dataset:
            own = [other for other in plan.stages if other.data == index and other.first_step <= stage.first_step]
            return train_batches(
                directory,
                dataset,
                own,
                step,
                args.seed,
                **share._asdict(),
                pad_rows=self.distribution.is_tpu,
                damage=self.damage,
            )

        def work(stage: Stage) -> Work:
            label = f"length {dataset.max_seq_length}" if several else ""
            return work_of_update(plan.config, stage.batch_size, rows, label)

        return Source(self.tasks[index], batches, work, self.damage.replaced_before)

    def _watch(self, step: int, state: Mapping) -> Watch:
        output = self.output if self.distribution.is_chief else None
        return Watch(
            output,
            self.args.num_train_steps,
            SHOWN_METRICS,
            state,
            step=step,
            peak_flops=peak_flops_of(self.args, self.distribution),
        )

    def _last_checkpoint(self) -> Checkpoint:
        saved = checkpointing.checkpoints(self.checkpoint_directory)
        if not saved:
            raise TrainingError(f"{self.output} holds no checkpoint to evaluate; train it with --do_train")
        return saved[-1]

    def _evaluate_checkpoint(self, checkpoint: Checkpoint) -> dict[str, float] | None:
        """Evaluates a checkpoint and writes the result files; None if there are no validation examples."""
        checkpointing.restore(checkpoint.prefix, self.task.variables, self.task.vocab_size)
        stage = self.plan.stages[-1]
        metrics, lines = self.evaluate(stage)
        if not metrics:
            warn(
                f"{self.plan.directories[stage.data]} has no validation examples, so nothing is evaluated; build the "
                "data with some held out"
            )
            return None
        if not self.distribution.is_chief:
            return metrics
        with self._watch(checkpoint.step, checkpointing.state_of(checkpoint, WatchState)) as watch:
            watch.evaluated(checkpoint.step, metrics, lines)
        if self.args.do_train:
            record_evaluation(self.checkpoint_directory, checkpoint.step, self.rhythm, metrics)
        results = {"global_step": checkpoint.step, **metrics}
        write_results(self.output, results)
        return results

    def _filled_masks(self, batches: tf.data.Dataset) -> list[str]:
        """The first validation examples with the model's predictions; none on a TPU, for which it is not compiled."""
        if self.distribution.is_tpu or not self.distribution.is_chief:
            return []
        features: Features = {name: values[:_SHOWN_ROWS] for name, values in next(iter(batches)).items()}
        logits = self.model(features).masked_lm
        return filled_masks(
            {name: values.numpy() for name, values in features.items()}, logits.numpy(), self.plan.vocabulary
        )

    def _write_report(self) -> None:
        if self.distribution.is_chief:
            write_report(self.output)

    def _require_files(self, checkpoint: Checkpoint, results: Mapping[str, float] | None) -> None:
        """Checks that what the summary names is there. Raises TrainingError naming what vanished."""
        plan = self.plan
        contents: dict[str, bytes | None] = {
            manifest.VOCAB_FILE_NAME: None,
            native.CONFIG_FILE_NAME: None,
            run_record.FILE_NAME: None,
            REPORT_NAME: None,
        }
        if self.args.do_train:
            contents |= first_files(plan.vocabulary, plan.config, plan.record)
            contents |= dict.fromkeys((native.FILE_NAME, native.MODEL_CARD_FILE_NAME))
        if self.has_trained:
            contents[METRICS_NAME] = None
        if results:
            contents |= dict.fromkeys((RESULTS_TEXT_NAME, RESULTS_JSON_NAME))
        require_files(self.output, contents, checkpoint.prefix)

    def _summarise(self, checkpoint: Checkpoint, results: Mapping[str, float] | None) -> None:
        output = self.output
        say(f"Checkpoint   {checkpoint.prefix} (step {checkpoint.step})")
        say(f"Model        {output / native.CONFIG_FILE_NAME}, {output / manifest.VOCAB_FILE_NAME}")
        if results:
            shown = {"masked_lm_accuracy": "masked LM accuracy", "next_sentence_accuracy": "next sentence accuracy"}
            shown["loss"] = "loss"
            numbers = ", ".join(
                with_level(f"{words} {results[name]:.3f}", name, results)
                for name, words in shown.items()
                if name in results
            )
            say(f"Evaluation   {output / 'eval_results.txt'}: {numbers}")
            for line in score_warnings(results, {}):
                warn(line)
        say(f"Report       {output / 'report.html'}")
        say(f"Curves       tensorboard --logdir {output / 'logs'}")
        say(f"Try it       beambert fill-mask {output} 'The capital of France is [MASK].'")


class _NothingToEvaluateOn(Exception):
    """A dataset without validation examples."""


def _trained_model(
    model: native.ModelRecord, checkpoint: Checkpoint, results: Mapping[str, float] | None
) -> native.ModelRecord:
    """The record of a model after training or evaluation; metrics stay as long as the weights do."""
    metrics = model.metrics if model.steps == checkpoint.step else {}
    if results is not None:
        metrics = {name: value for name, value in results.items() if name != "global_step"}
    return dataclasses.replace(model, steps=checkpoint.step, metrics=metrics)
