"""Test the report of several runs: numbers against Python's statistics, the page in a parser and a browser."""

import re

import pytest

from beambert.trainers.errors import TrainingError
from beambert.trainers.run_report.sweep_report import (
    FILE_NAME,
    RunOutcome,
    runs_page,
    summary,
    summary_line,
    write_runs_report,
)
from tests.pages import assert_harmless, look_at, needs_chromium, parsed

HOSTILE = "<script>alert(1)</script>&\"'"


def run(name, accuracy, problem=None, loss=0.5, **options):
    metrics = None if accuracy is None else {"eval_accuracy": accuracy, "eval_loss": loss, "global_step": 9}
    return RunOutcome(name, {key: str(value) for key, value in options.items()}, metrics, problem)


RUNS = [
    run("seed-1", 0.8456, seed=1),
    run("seed-2", 0.8701, loss=0.4, seed=2),
    run("seed-3", None, f"out of memory {HOSTILE}", seed=3),
    run("seed-4", 0.8701, seed=4),
    run("seed-5", None, seed=5),
    run("seed-6", float("nan"), seed=6),
]


def test_the_summary_counts_the_runs_that_ended_well():
    found = summary(RUNS, "eval_accuracy")
    assert (found.runs, found.best) == (3, 1)
    assert found.mean == pytest.approx(0.86193333)
    assert found.deviation == pytest.approx(0.01414508)
    # The lowest loss is the best.
    assert summary(RUNS, "eval_loss").best == 1
    assert summary(RUNS[2:3], "eval_accuracy") is None
    with pytest.raises(TrainingError, match="invalid --best_metric"):
        summary(RUNS, "global_step")


def test_the_summary_line():
    assert summary_line(RUNS, "eval_accuracy") == (
        "accuracy over 3 runs: mean 0.8619, standard deviation 0.0141; best 0.8701 (seed-2)"
    )
    assert summary_line(RUNS[:1], "eval_accuracy") == "accuracy over 1 run: mean 0.8456; best 0.8456 (seed-1)"
    assert summary_line(RUNS[2:3], "eval_accuracy") == "No run has a value of accuracy."


def test_the_page(tmp_path):
    path = write_runs_report(tmp_path, "mrpc: five seeds", RUNS, "eval_accuracy")
    assert path == tmp_path / FILE_NAME
    page = path.read_text(encoding="utf-8")
    assert_harmless(page)
    checker = parsed(page)
    assert checker.ids == ["problems", "runs"]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)[1:]]
    assert rows[0] == ["seed-1", "", "1", "0.8456", "0.5000"]
    assert rows[1] == ["seed-2", "best", "2", "0.8701", "0.4000"]
    assert rows[2] == ["seed-3", "failed", "3", "", ""]
    assert rows[4] == ["seed-5", "not run", "5", "", ""]
    assert rows[5] == ["seed-6", "", "6", "", "0.5000"]
    assert "&lt;script&gt;" in page
    assert runs_page("none", [], "eval_accuracy")


def test_a_grid_is_summed_up_by_option():
    runs = [
        run(f"{rate}-{size}", 0.8 + step / 100, learning_rate=rate, train_batch_size=size)
        for step, (rate, size) in enumerate((rate, size) for rate in ("5e-5", "2e-5") for size in (16, 32))
    ]
    page = runs_page("mrpc: grid", runs, "eval_accuracy")
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)[6:]]
    assert rows == [
        ["learning rate", "5e-5", "2", "0.8050", "0.0071", "0.8100"],
        ["learning rate", "2e-5", "2", "0.8250", "0.0071", "0.8300"],
        ["train batch size", "16", "2", "0.8100", "0.0141", "0.8200"],
        ["train batch size", "32", "2", "0.8200", "0.0141", "0.8300"],
    ]


def test_metrics_in_percent_have_two_digits():
    runs = [RunOutcome("a", {}, {"f1": 88.4125}, None), RunOutcome("b", {}, {"f1": 88.0}, None)]
    assert summary_line(runs, "f1") == "F1 over 2 runs: mean 88.21, standard deviation 0.29; best 88.41 (a)"


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_browser_shows_it(tmp_path, width, dark):
    runs = [*RUNS, run("a-very-long-name-" * 12, 0.5, note="word " * 30)]
    look_at(runs_page("mrpc: seeds", runs, "eval_accuracy"), tmp_path, width, dark)
