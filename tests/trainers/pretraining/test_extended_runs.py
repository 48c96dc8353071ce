"""Test runs that are extended: from before the decay, from the last checkpoint, and after fewer steps."""

import json

import numpy as np
import pytest

from beambert.trainers.commands import pretrain
from beambert.trainers.errors import TrainingError
from tests.trainers.checkpoints.saved_checkpoints import variables

pytestmark = pytest.mark.usefixtures("numpy_backend")

FLAGS = ("--do_train", "--lr_schedule", "wsd", "--num_warmup_steps", "2", "--keep_checkpoint_max", "1")


def checkpoint_steps(output):
    return sorted(int(path.stem.rpartition("-")[2]) for path in (output / "checkpoints").glob("*.index"))


def learning_rates(output):
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["learning_rate"] for line in lines if line["split"] == "train"]


def test_an_extended_run_continues_from_before_the_decay_or_at_the_peak(tmp_path, options, capsys):
    def run(name, steps):
        capsys.readouterr()
        flags = (*FLAGS, "--output", str(tmp_path / name), "--num_train_steps", str(steps), "--learning_rate", "0.01")
        assert pretrain.run(options(*flags)) == 0
        return capsys.readouterr().out

    run("straight", 20)
    run("extended", 10)
    # The decay starts at step 8, whose checkpoint is kept in addition to the last one.
    assert checkpoint_steps(tmp_path / "extended") == [8, 10]
    assert checkpoint_steps(tmp_path / "straight") == [16, 20]

    for path in (tmp_path / "extended/checkpoints").glob("model.ckpt-10.*"):
        path.unlink()
    said = run("extended", 20)
    assert "from step 8 of 20" in said
    assert "had decayed" not in said
    first, second = variables(tmp_path / "extended", 20), variables(tmp_path / "straight", 20)
    assert all(np.array_equal(first[name], second[name]) for name in second)
    assert learning_rates(tmp_path / "extended") == learning_rates(tmp_path / "straight")

    # From the last checkpoint, the learning rate is at its peak again, which the command prints.
    said = run("extended", 30)
    assert "had decayed since step 16, and is at its peak again from step 20" in said
    assert str(tmp_path / "extended/checkpoints/model.ckpt-16") in said
    assert np.allclose(learning_rates(tmp_path / "extended")[20:24], 0.01)
    assert checkpoint_steps(tmp_path / "extended") == [24, 30]


def test_fewer_steps_than_trained_leave_the_record_of_the_run(tmp_path, options, capsys):
    pretrain.run(options("--do_train"))
    record = (tmp_path / "output/run.json").read_bytes()
    capsys.readouterr()
    assert pretrain.run(options("--do_train", "--num_train_steps", "3")) == 0
    assert "already trained to step 6" in capsys.readouterr().out
    assert (tmp_path / "output/run.json").read_bytes() == record
    with pytest.raises(TrainingError, match=r"the batch size at step 3 \(4 before, 2 now\)"):
        pretrain.run(options("--do_train", "--num_train_steps", "9", "--batch_ramp", "4:3,2:9"))
