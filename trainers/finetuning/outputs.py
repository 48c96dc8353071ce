"""Write the model files of a fine-tuning run, and print its summary."""

import dataclasses
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from beambert.bert_model.checkpoints import native
from beambert.bert_model.checkpoints.model_card import model_card
from beambert.bert_model.heads.head import Inputs
from beambert.bert_model.size import parameter_counts
from beambert.common.local_files import write_atomic
from beambert.common.terminal import print_labeled
from beambert.trainers.checkpoints.checkpoint_manager import Checkpoint
from beambert.trainers.finetuning.finetuning_task import TRAIN
from beambert.trainers.finetuning.plan import FinetuningPlan
from beambert.trainers.metrics.chance_levels import is_level, with_level
from beambert.trainers.monitoring.goodput import GoodputSeconds, summary
from beambert.trainers.monitoring.metrics_jsonl import FILE_NAME as METRICS_NAME
from beambert.trainers.monitoring.training_progress import print_status, warn
from beambert.trainers.run_report.run_report import FILE_NAME as REPORT_NAME
from beambert.trainers.run_report.run_warnings import EVALUATION_NAME, score_warnings_in
from beambert.trainers.training.run_files import (
    first_files,
    require_files,
)
from beambert.trainers.training.run_setup import (
    RESULTS_JSON_NAME,
    RESULTS_TEXT_NAME,
)


def write_model(plan: FinetuningPlan, step: int | None, results: Mapping[str, float] | None) -> None:
    """Write `beambert.json` and the model card, which make the directory a model for all commands.

    Args:
        plan: the run's inputs.
        step: step of the model's checkpoint; None during training, for the last checkpoint.
        results: metrics of the checkpoint; None to keep recorded metrics of the same step.
    """
    before = native.load(plan.output)
    origin = before.origin if before else None
    if plan.initial is not None:
        origin = f"fine-tuning began with the weights of {Path(plan.initial.path).name}"
    metrics = before.metrics if before and before.steps == step else {}
    labels = plan.task.labels
    trained_on_texts = TRAIN in plan.rows and plan.task.head.inputs is Inputs.TEXT
    model = native.ModelRecord(
        **plan.task.head.recorded,
        num_labels=None if labels is None else len(labels),
        labels=labels,
        **dataclasses.asdict(plan.word_rules),
        max_seq_length=plan.max_seq_length,
        data_fingerprint=plan.record.data_fingerprint or (before.data_fingerprint if before else None),
        steps=step,
        metrics=dict(results) if results is not None else metrics,
        origin=origin,
        causal_attention=plan.causal_attention,
        text_pairs=plan.rows[TRAIN].are_pairs() if trained_on_texts else before.text_pairs if before else None,
    )
    parameters = parameter_counts(plan.model_config, plan.task.head, model.num_labels).total
    write_atomic(plan.output / native.MODEL_CARD_FILE_NAME, model_card(plan.model_config, model, parameters).encode())
    write_atomic(plan.output / native.FILE_NAME, model.to_json().encode())


def require_outputs(
    plan: FinetuningPlan,
    checkpoint: Checkpoint | None,
    results: Mapping[str, float] | None,
    files: list[Path],
    *,
    has_trained: bool,
) -> None:
    """Check that the files of the summary exist. Raise TrainingError, naming the file, where one was removed."""
    contents: dict[str, bytes | None] = dict.fromkeys(
        (REPORT_NAME, *(str(file.relative_to(plan.output)) for file in files))
    )
    if plan.config.do_train:
        contents |= first_files(plan.vocabulary, plan.model_config, plan.record)
        contents |= dict.fromkeys((native.FILE_NAME, native.MODEL_CARD_FILE_NAME))
    if has_trained:
        contents[METRICS_NAME] = None
    if results:
        contents |= dict.fromkeys((RESULTS_TEXT_NAME, RESULTS_JSON_NAME, EVALUATION_NAME))
    require_files(plan.output, contents, None if checkpoint is None else checkpoint.prefix)


def print_summary(
    plan: FinetuningPlan,
    checkpoint: Checkpoint | None,
    results: Mapping[str, float] | None,
    files: list[Path],
    goodput: GoodputSeconds | None,
) -> None:
    """Print the paths of the results and an example command, and after training the goodput."""
    output = plan.output
    if checkpoint is not None:
        print_status(f"Checkpoint   {checkpoint.prefix} (step {checkpoint.step})")
    if results:
        scores = {name: value for name, value in sorted(results.items()) if name != "loss" and not is_level(name)}
        numbers = ", ".join(
            with_level(f"{name} {_shown(value)}", name, results, ".4g") for name, value in scores.items()
        )
        print_labeled("Evaluation   ", f"{output / 'eval_results.txt'}: {numbers}", sys.stdout)
        for line in score_warnings_in(output):
            warn(line)
    for file in files:
        print_status(f"Predictions  {file}")
    if goodput is not None:
        print_labeled("Goodput      ", summary(goodput), sys.stdout)
    print_status(f"Report       {output / 'report.html'}")
    if checkpoint is not None:
        pairs = any(rows.segment_ids.any() for rows in plan.rows.values())
        example = plan.task.head.input_example or ("'a text ||| another'" if pairs else "'some text'")
        print_status(f"Try it       beambert predict {shlex.quote(str(output))} {example}")


def _shown(value: float) -> str:
    """Return a score with four digits, and a count with all of them."""
    return str(value) if isinstance(value, int) else f"{value:.4g}"
