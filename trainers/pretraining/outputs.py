"""Write the model files of a pretraining run, and print the summary at its end."""

import dataclasses
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from beambert.bert_model.checkpoints import native
from beambert.bert_model.checkpoints.model_card import model_card
from beambert.bert_model.size import parameter_counts
from beambert.common.local_files import write_atomic
from beambert.common.terminal import print_labeled
from beambert.pipelines import dataset as manifest
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.metrics.baseline_record import passed_at
from beambert.trainers.metrics.chance_levels import with_level
from beambert.trainers.monitoring.goodput import GoodputSeconds, summary
from beambert.trainers.monitoring.metrics_jsonl import FILE_NAME as METRICS_NAME
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.pretraining.plan import PretrainingPlan
from beambert.trainers.run_report.run_facts import findings_of, read_run
from beambert.trainers.run_report.run_report import FILE_NAME as REPORT_NAME
from beambert.trainers.run_report.run_warnings import score_warnings
from beambert.trainers.training import run_manifest
from beambert.trainers.training.run_files import first_files, require_files
from beambert.trainers.training.run_setup import RESULTS_JSON_NAME, RESULTS_TEXT_NAME


def write_model(plan: PretrainingPlan, model: native.ModelRecord) -> None:
    """Write `beambert.json` and the model card, with which every command can load the run directory as a model."""
    card = model_card(plan.model_config, model, parameter_counts(plan.model_config).total)
    write_atomic(plan.output / native.MODEL_CARD_FILE_NAME, card.encode())
    write_atomic(plan.output / native.FILE_NAME, model.to_json().encode())


def trained_model(
    model: native.ModelRecord, checkpoint: Checkpoint, results: Mapping[str, float] | None
) -> native.ModelRecord:
    """Return the record of a model after training or evaluation; metrics are kept while the weights are the same."""
    metrics = model.metrics if model.steps == checkpoint.step else {}
    if results is not None:
        metrics = {name: value for name, value in results.items() if name != "global_step"}
    return dataclasses.replace(model, steps=checkpoint.step, metrics=metrics)


def require_outputs(
    plan: PretrainingPlan, checkpoint: Checkpoint, results: Mapping[str, float] | None, *, has_trained: bool
) -> None:
    """Check that the files named in the summary exist. Raises TrainingError with the name of a missing file."""
    contents: dict[str, bytes | None] = {
        manifest.VOCAB_FILE_NAME: None,
        native.CONFIG_FILE_NAME: None,
        run_manifest.FILE_NAME: None,
        REPORT_NAME: None,
    }
    if plan.config.do_train:
        contents |= first_files(plan.vocabulary, plan.model_config, plan.record)
        contents |= dict.fromkeys((native.FILE_NAME, native.MODEL_CARD_FILE_NAME))
    if has_trained:
        contents[METRICS_NAME] = None
    if results:
        contents |= dict.fromkeys((RESULTS_TEXT_NAME, RESULTS_JSON_NAME))
    require_files(plan.output, contents, checkpoint.prefix)


def print_summary(
    output: Path, checkpoint: Checkpoint, results: Mapping[str, float] | None, goodput: GoodputSeconds | None
) -> None:
    """Print the output files of a run and the next commands, and after training its goodput."""
    print_status(f"Checkpoint   {checkpoint.prefix} (step {checkpoint.step})")
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
    if goodput is not None:
        print_labeled("Goodput      ", summary(goodput), sys.stdout)
    print_status(f"Report       {output / 'report.html'}")
    print_status(f"TensorBoard  tensorboard --logdir {shlex.quote(str(output / 'logs'))}")
    print_status(f"Try it       beambert fill-mask {shlex.quote(str(output))} 'The capital of France is [MASK].'")
