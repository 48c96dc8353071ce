"""Tests of `beambert finetune --seeds` and `beambert tune`."""

import json

import numpy as np
import pytest

from beambert import cli
from beambert.trainers.commands.tune import TuneOptions
from beambert.trainers.errors import StorageError, TrainingError
from beambert.trainers.finetuning import sweep
from beambert.trainers.finetuning.options import FinetuneOptions
from tests.trainers.checkpoints.saved_checkpoints import variables


def test_runs_of_several_seeds_equal_single_runs(finetune, tmp_path, capsys):
    assert finetune("--seeds", "2", "--seed", "7") == 0
    together = tmp_path / "together"
    (tmp_path / "output").rename(together)
    said = capsys.readouterr().out
    assert "over 2 runs: mean 0." in said
    assert f"Best         {tmp_path / 'output'}/seed-" in said
    # Seed 8 is the second run of the process, and must not depend on the first.
    assert finetune("--seed", "8") == 0
    alone = tmp_path / "output"
    first, second = variables(alone, 12), variables(together / "seed-8", 12)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert np.array_equal(value, second[name]), name
    outcomes = json.loads((together / "runs.json").read_text())
    assert list(outcomes) == ["seed-7", "seed-8"]
    assert outcomes["seed-8"]["metrics"] == json.loads((alone / "eval_results.json").read_text())
    assert "seed-8" in (together / "report.html").read_text()


def test_a_finished_run_of_a_separate_command_is_evaluated_and_not_trained(finetune, tmp_path, capsys):
    output = tmp_path / "output"
    assert finetune("--seed", "8") == 0
    output.rename(tmp_path / "seed-8")
    output.mkdir()
    run = (tmp_path / "seed-8").rename(output / "seed-8")
    files = [run / "eval_results.json", *sorted((run / "checkpoints").glob("model.ckpt-12.*"))]
    before = [path.read_bytes() for path in files]
    assert len(files) > 2
    capsys.readouterr()
    assert finetune("--seeds", "2", "--seed", "7") == 0
    assert [path.read_bytes() for path in files] == before
    said = capsys.readouterr().out
    assert said.count("\nTraining ") == 1
    assert f"{run} is already trained to step 12" in said
    assert "over 2 runs: mean 0." in said
    assert list(json.loads((output / "runs.json").read_text())) == ["seed-7", "seed-8"]


def tune(rte, initial, tmp_path, *flags):
    given = ["tune", "rte", "--data_dir", str(rte), "--init_checkpoint", str(initial)]
    given += ["--output", str(tmp_path / "output"), "--max_seq_length", "48"]
    return cli.main([*given, "--train_batch_sizes", "8", "--epochs", "1", *flags])


def test_grid_resumes_with_missing_runs(rte, initial, tmp_path, capsys, monkeypatch):
    output = tmp_path / "output"
    made = []
    run_once = sweep.run_once

    def counted(args):
        made.append((args.train_batch_size, args.learning_rate, args.num_train_epochs))
        # The second run of the grid is interrupted by the user.
        return 130 if len(made) == 2 else run_once(args)

    monkeypatch.setattr(sweep, "run_once", counted)
    assert tune(rte, initial, tmp_path, "--learning_rates", "1e-3,1e-4") == 130
    assert tune(rte, initial, tmp_path, "--learning_rates", "1e-3,1e-4") == 0
    assert made == [(8, 1e-3, 1.0), (8, 1e-4, 1.0), (8, 1e-4, 1.0)]
    said = capsys.readouterr().out
    assert "Run 1 of 2: batch8-lr0.001-epochs1 (complete)" in said
    names = {"batch8-lr0.001-epochs1", "batch8-lr0.0001-epochs1"}
    assert {path.parents[1].name for path in output.glob("*/checkpoints/*.index")} == names
    assert any(f"Best         {output / name}" in said for name in names)
    # A wider grid does not repeat complete runs. A run with other options is refused.
    assert tune(rte, initial, tmp_path, "--learning_rates", "1e-3,1e-4,1e-2") == 0
    assert len(made) == 4
    assert tune(rte, initial, tmp_path, "--learning_rates", "1e-3", "--seed", "3") == 1
    assert (
        "batch8-lr0.001-epochs1 contains a run with other options: --seed (12345 before, 3 now)"
        in capsys.readouterr().err
    )
    assert len(made) == 4
    assert len(list((output / "features").iterdir())) == 2


def test_a_run_that_diverges_is_a_line_of_the_table(rte, initial, tmp_path, capsys):
    rates = ["--learning_rates", "1e30,1e-3", "--warmup_proportion", "0"]
    assert tune(rte, initial, tmp_path, *rates) == 0
    captured = capsys.readouterr()
    assert "failed" in captured.out
    assert "is not finite at step" in captured.err
    outcome = json.loads((tmp_path / "output" / "runs.json").read_text())["batch8-lr1e+30-epochs1"]
    assert outcome["metrics"] is None
    assert "not finite" in (tmp_path / "output" / "report.html").read_text()


def test_a_run_that_fails_for_another_reason_is_tried_again(rte, initial, tmp_path, capsys, monkeypatch):
    run_once = sweep.run_once

    def out_of_memory(config):
        if config.learning_rate == 1e-4:
            raise TrainingError("out of memory")
        return run_once(config)

    with monkeypatch.context() as patch:
        patch.setattr(sweep, "run_once", out_of_memory)
        assert tune(rte, initial, tmp_path, "--learning_rates", "1e-3,1e-4") == 0
    assert "batch8-lr0.0001-epochs1 failed: out of memory" in capsys.readouterr().err
    assert "out of memory" in (tmp_path / "output" / "report.html").read_text()
    assert list(json.loads((tmp_path / "output" / "runs.json").read_text())) == ["batch8-lr0.001-epochs1"]
    assert tune(rte, initial, tmp_path, "--learning_rates", "1e-3,1e-4") == 0
    outcomes = json.loads((tmp_path / "output" / "runs.json").read_text())
    assert outcomes["batch8-lr0.0001-epochs1"]["problem"] is None


def test_a_full_disk_ends_the_command(rte, initial, tmp_path, capsys, monkeypatch):
    """A full disk is no result of the grid, unlike another error of its second run."""
    run_once = sweep.run_once

    def full(config):
        if config.learning_rate == 1e-4:
            raise StorageError("no space left on device")
        return run_once(config)

    monkeypatch.setattr(sweep, "run_once", full)
    assert tune(rte, initial, tmp_path, "--learning_rates", "1e-3,1e-4") == 1
    captured = capsys.readouterr()
    assert captured.err.endswith("beambert tune: error: no space left on device\n")
    assert "failed" not in captured.out + captured.err


def test_mistakes_end_all_runs_at_once(rte, initial, tmp_path, capsys):
    assert tune(rte, initial, tmp_path, "--max_seq_length", "100") == 1
    assert "invalid --max_seq_length 100" in capsys.readouterr().err
    assert tune(tmp_path, initial, tmp_path) == 1
    assert "train.tsv" in capsys.readouterr().err
    (tmp_path / "output").mkdir(exist_ok=True)
    (tmp_path / "output" / "runs.json").write_text("{")
    assert tune(rte, initial, tmp_path) == 1
    assert "runs.json: not valid JSON" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--learning_rates", "1e-3,x"], ["--epochs", "0"], ["--train_batch_sizes", ""]])
def test_invalid_grids_are_refused(flags, capsys):
    with pytest.raises(SystemExit):
        cli.main(["tune", "rte", "--output", "o", *flags])
    assert f"argument {flags[0]}" in capsys.readouterr().err


def test_a_single_run_is_not_overwritten(finetune, tmp_path, capsys):
    assert finetune() == 0
    assert finetune("--seeds", "2") == 1
    assert (
        "contains a training run (run.json), which beambert finetune --seeds does not write" in capsys.readouterr().err
    )


def test_runs_with_nearly_equal_values_have_different_names():
    grid = {"train_batch_sizes": (8,), "learning_rates": (2e-5, 1e-5, 1.0000001e-5), "epochs": (3.0,)}
    config = TuneOptions(finetuning=FinetuneOptions(task="rte", output="o"), **grid)
    names = ["batch8-lr2e-05-epochs3", "batch8-lr1e-05-epochs3", "batch8-lr1.0000001e-05-epochs3"]
    assert list(config.grid()) == names
