"""Test `--max_train_time`: measured times determine the number of steps.

The run then equals a run with that --num_train_steps.
"""

import dataclasses
import hashlib
import itertools
import json

import numpy as np
import pytest

from beambert.trainers.commands.pretrain import run as run_pretraining
from beambert.trainers.errors import TrainingError
from beambert.trainers.optimization.schedule import Stage
from beambert.trainers.pretraining import plan as pretraining_plan
from beambert.trainers.pretraining.time_budget import RunCosts, StageCost, run_seconds, steps_within
from beambert.trainers.training.run_manifest import RunRecord
from tests.trainers.checkpoints.saved_checkpoints import variables

pytestmark = pytest.mark.usefixtures("numpy_backend")

COSTS = RunCosts({(0, 8): StageCost(0.5, 3.0), (1, 4): StageCost(2.0, 7.0)}, 1.0, 10.0)


def ticking(seconds):
    """Return a clock that advances by the same time at every reading."""
    return (reading * seconds for reading in itertools.count()).__next__


def test_the_time_of_a_run_is_the_sum_of_its_parts():
    one = [Stage(0, 8, 0, 100, 0)]
    # Checkpoints at steps 40, 80 and 100; a single evaluation at the end.
    assert run_seconds(one, COSTS, save_steps=40, eval_steps=0) == 3 + 50 + 3 * 1 + 10
    # Evaluations at 30, 60, 90 and 100, of which the first three save too.
    assert run_seconds(one, COSTS, save_steps=40, eval_steps=30) == 3 + 50 + 6 * 1 + 4 * 10
    both = [Stage(0, 8, 0, 90, 0), Stage(1, 4, 90, 100, 0)]
    assert run_seconds(both, COSTS, save_steps=100, eval_steps=0) == 3 + 45 + 7 + 20 + 1 + 10


def test_a_batch_size_of_another_number_of_steps_has_the_cost_of_the_nearest_one():
    # The batch sizes of --batch_ramp and --schedule at a step depend on the number of steps.
    costs = RunCosts(
        {(0, 8): StageCost(0.5, 3.0), (0, 16): StageCost(0.8, 4.0), (1, 4): StageCost(2.0, 7.0)}, 1.0, 10.0
    )

    def seconds(size):
        return run_seconds([Stage(0, size, 0, 100, 0)], costs, save_steps=100, eval_steps=0)

    assert seconds(4) == seconds(8) == 3 + 50 + 1 + 10
    assert seconds(12) == seconds(16) == 4 + 80 + 1 + 10
    assert seconds(32) == 4 + 160 + 1 + 10


@pytest.mark.parametrize("seconds", [0.0, 13.9, 14.5, 20.0, 63.0, 500.0])
def test_the_largest_number_of_steps_equals_a_linear_search(seconds):
    def seconds_of(steps):
        return run_seconds([Stage(0, 8, 0, steps, 0)], COSTS, 40, 0)

    expected = max((steps for steps in range(1, 1000) if seconds_of(steps) <= seconds), default=0)
    assert steps_within(seconds, seconds_of) == expected


def test_many_steps_are_rounded_down_to_three_digits():
    assert steps_within(12_399.5, lambda steps: float(steps)) == 12_300
    assert steps_within(999.0, lambda steps: float(steps)) == 999
    assert steps_within(1_239_999.0, lambda steps: float(steps)) == 1_230_000


def test_a_timed_run_equals_a_run_with_its_recorded_number_of_steps(tmp_path, options, capsys):
    """Compare weights, optimizer state and metrics bit by bit, although measured steps were made and undone before."""
    budget = options("--output", str(tmp_path / "timed"), "--max_train_time", "20s", "--save_checkpoints_steps", "4")
    budget = without_steps(budget)
    assert run_pretraining(budget, ticking(0.5)) == 0
    said = capsys.readouterr().out
    record = json.loads((tmp_path / "timed/run.json").read_text(encoding="utf-8"))
    steps = record["options"]["num_train_steps"]
    assert 4 < steps < 40
    assert f"--max_train_time 20 s: {steps} steps, from" in said
    assert record["options"]["max_train_time"] == 20.0
    assert record["options"]["num_warmup_steps"] == steps // 2
    assert record["stages"] == [{"data": 0, "batch_size": 4, "first_step": 0, "end_step": steps, "first_example": 0}]
    assert not list((tmp_path / "timed").glob(".*"))

    straight = options("--output", str(tmp_path / "straight"), "--num_train_steps", str(steps))
    assert run_pretraining(straight) == 0
    first, second = variables(tmp_path / "timed", steps), variables(tmp_path / "straight", steps)
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)
    results = [(tmp_path / name / "eval_results.txt").read_text(encoding="utf-8") for name in ("timed", "straight")]
    assert results[0] == results[1]

    # Resume from an earlier checkpoint on a machine whose clock runs a hundred times faster.
    for path in (tmp_path / "timed/checkpoints").glob(f"model.ckpt-{steps}.*"):
        path.unlink()
    assert run_pretraining(budget, ticking(50.0)) == 0
    said = capsys.readouterr().out
    assert "keeps the number of steps that was fixed at the start" in said
    assert "Changed training options" not in said
    again = variables(tmp_path / "timed", steps)
    assert all(np.array_equal(again[name], second[name]) for name in second)

    # A different time would require a different schedule.
    with pytest.raises(TrainingError, match=rf"contains a run of {steps} steps, .* give --num_train_steps to extend"):
        run_pretraining(without_steps(options("--output", str(tmp_path / "timed"), "--max_train_time", "30s")))


def test_an_attempt_without_a_checkpoint_is_measured_again(tmp_path, options):
    # The next command may have another model or batch size, whose steps take another time.
    budget = without_steps(options("--max_train_time", "2h", "--do_train"))
    digest = hashlib.sha256(b"").hexdigest()
    old = RunRecord((digest,), digest, True, 32, (Stage(0, 4, 0, 3000, 0),), {"max_train_time": 7200.0}, {})
    config, needs_steps = pretraining_plan._with_steps(budget, tmp_path, old)
    assert needs_steps
    assert config.num_train_steps == pretraining_plan._PROVISIONAL_STEPS
    (tmp_path / "checkpoints").mkdir()
    for suffix in ("index", "data-00000-of-00001"):
        (tmp_path / f"checkpoints/model.ckpt-20.{suffix}").touch()
    config, needs_steps = pretraining_plan._with_steps(budget, tmp_path, old)
    assert not needs_steps
    assert config.num_train_steps == 3000


def without_steps(config):
    """Return a configuration without the --num_train_steps of the fixture."""
    return dataclasses.replace(config, num_train_steps=None)


def test_invalid_flags_are_errors_and_leave_no_files(tmp_path, options):
    with pytest.raises(TrainingError, match=r"invalid --max_train_time with --num_train_steps 6: .* omit one of them"):
        run_pretraining(options("--max_train_time", "2h"))
    with pytest.raises(TrainingError, match=r"invalid --max_train_time 5 s: start and measurement took \d+ s, and "):
        run_pretraining(without_steps(options("--max_train_time", "5s")), ticking(1.0))
    warmup = without_steps(options("--max_train_time", "20s", "--num_warmup_steps", "1000"))
    with pytest.raises(
        TrainingError, match=r"invalid --num_warmup_steps 1000: --max_train_time 20 s suffices for \d+ "
    ):
        run_pretraining(warmup, ticking(0.5))
    assert not list((tmp_path / "output").glob("*"))
