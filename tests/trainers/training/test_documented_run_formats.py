"""Test that the reference pages of run files list exactly the fields that the code writes and reads."""

import dataclasses
import json
import re

import pytest

from beambert import cli
from beambert.bert_model.checkpoints.native import ModelRecord
from beambert.trainers.checkpoints.checkpoint_manager import HIGHER_IS_BETTER, LOWER_IS_BETTER, BestCheckpoint
from beambert.trainers.commands import pretrain
from beambert.trainers.finetuning import sweep
from beambert.trainers.metrics.baseline_record import BaselineRecord
from beambert.trainers.metrics.chance_levels import LEVELS, PRETRAINING_COUNTS
from beambert.trainers.metrics.task_metrics import CLASS_METRICS, MULTI_LABEL_METRICS, REGRESSION_METRICS
from beambert.trainers.metrics.text_measures import TextMeasures
from beambert.trainers.monitoring.metrics_jsonl import TIMING_FIELDS
from beambert.trainers.monitoring.throughput import StepCost
from beambert.trainers.monitoring.training_monitor import MonitorState, TrainingMonitor
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.training.run_manifest import RecordedOptions, RunRecord
from tests.conftest import ROOT

RUN_FORMAT = ROOT / "docs/reference/run-format.md"
CHECKPOINT_FORMATS = ROOT / "docs/reference/checkpoint-formats.md"
METRICS = ROOT / "docs/reference/metrics.md"
HEADER = {"format", "format_version"}


def section(page, heading):
    """Return the text of a section, up to the next heading of the same level or above."""
    text = page.read_text(encoding="utf-8")
    level, title = heading.split(" ", 1)
    assert f"\n{level} {title}\n" in text, heading
    rest = text.split(f"\n{level} {title}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def documented(page, heading):
    """Return the names in the first column of the tables of a section, without its subsections."""
    own = re.split(r"^#", section(page, heading), maxsplit=1, flags=re.MULTILINE)[0]
    cells = re.findall(r"^\| (`[^|]+`) \|", own, re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert len(names) == len(set(names)), heading
    return set(names)


def fields_of(schema):
    return {field.name for field in dataclasses.fields(schema)}


def test_run_json():
    assert documented(RUN_FORMAT, "## `run.json`") == fields_of(RunRecord) | HEADER
    assert documented(RUN_FORMAT, "### Stages") == set(Stage._fields)


def test_options_of_run_json_are_flags_or_documented():
    flags = {
        action.dest
        for command in ("pretrain", "finetune", "tune")
        for action in cli.make_parser(command)[0]._actions
        if action.option_strings
    }
    recorded = set(RecordedOptions.__annotations__)
    assert recorded - flags == {"task"}
    # `num_train_steps` and `num_warmup_steps` are flags of pretraining alone.
    assert documented(RUN_FORMAT, "### Options") == {"task", "num_train_steps", "num_warmup_steps"}


def test_beambert_json():
    assert documented(RUN_FORMAT, "## `beambert.json`") == fields_of(ModelRecord) | HEADER


def test_baselines_json():
    assert documented(RUN_FORMAT, "## `baselines.json`") == fields_of(BaselineRecord) | HEADER
    assert documented(RUN_FORMAT, "### Text") == fields_of(TextMeasures)


def test_best_json():
    assert documented(RUN_FORMAT, "## `best.json`") == set(BestCheckpoint._fields)
    text = section(RUN_FORMAT, "## `best.json`")
    assert all(f"`{word}`" in text for word in LOWER_IS_BETTER + HIGHER_IS_BETTER)


def test_runs_json():
    assert documented(RUN_FORMAT, "## `runs.json`") == set(sweep.OutcomeFields.__annotations__)


def test_checkpoint_state():
    names = documented(CHECKPOINT_FORMATS, "## Training checkpoints")
    assert {name for name in names if "." not in name} == set(MonitorState.__annotations__)


def test_metrics_jsonl(tmp_path):
    with TrainingMonitor(tmp_path, 3, {}, {}, peak_flops=1.0) as monitor:
        monitor.begin_stage(StepCost(4, 128.0, 1.0, unpadded_tokens=64.0))
        for step in (1, 2, 3):
            monitor.update(step, {}, 0.0, skipped=1, corrupt_records=1)
        monitor.record_evaluation(3, {}, ["a masked sentence"])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    written = {name for line in lines for name in line}
    assert written >= TIMING_FIELDS
    assert documented(RUN_FORMAT, "## `metrics.jsonl`") == written


@pytest.mark.usefixtures("numpy_backend")
def test_metrics_of_pretraining(tmp_path, options):
    assert pretrain.run(options()) == 0
    names = documented(METRICS, "## Pretraining")
    results = json.loads((tmp_path / "output/eval_results.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (tmp_path / "output/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    levels = {name for name in results if name.endswith(tuple(LEVELS))}
    metrics = {name for line in lines for name in line} - documented(RUN_FORMAT, "## `metrics.jsonl`")
    assert metrics - levels == names
    assert set(PRETRAINING_COUNTS) <= names
    assert results.keys() - levels - names == documented(RUN_FORMAT, "## `eval_results.txt` and `eval_results.json`")


@pytest.mark.parametrize("metric", [*CLASS_METRICS, *MULTI_LABEL_METRICS, *REGRESSION_METRICS])
def test_metrics_of_finetuning(metric):
    assert f"eval_{metric}" in documented(METRICS, "## Fine-tuning")


def test_chance_levels():
    assert documented(METRICS, "## Chance levels") == {f"_{ending}" for ending in LEVELS}
