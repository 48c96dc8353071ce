"""Test `beambert finetune` with an output directory or file deleted during the run, and a corrupt model record."""

import shutil

import pytest

from tests.trainers.checkpoints.saved_checkpoints import after_save
from trainers.training import loop


@pytest.mark.parametrize(("step", "name"), [(12, ""), (12, "checkpoints/model.ckpt-12.index")])
def test_deleted_path_is_named(step, name, finetune, tmp_path, monkeypatch, capsys):
    output = tmp_path / "output"

    def happens(_):
        if name:
            (output / name).unlink()
        else:
            shutil.rmtree(output)

    after_save(monkeypatch, step, happens)
    assert finetune("--save_checkpoints_steps", "6") == 1
    captured = capsys.readouterr()
    last = captured.err.splitlines()[-1]
    assert str(output / name.removesuffix(".index")) in last
    assert "removed" in last
    assert "Try it" not in captured.out


def test_the_best_checkpoint_is_not_replaced_by_the_last(finetune, tmp_path, monkeypatch, capsys):
    """Check that a run without its best checkpoint raises an error instead of using another checkpoint."""
    checkpoints = tmp_path / "output" / "checkpoints"
    best = loop.record_if_improved

    def recorded(directory, step, metric, value, data_step):
        # The first evaluation is the best.
        return best(directory, step, metric, 1.0 if step == 6 else 0.0, data_step)

    monkeypatch.setattr(loop, "record_if_improved", recorded)
    after_save(monkeypatch, 12, lambda _: (checkpoints / "model.ckpt-6.index").unlink())
    assert finetune("--eval_steps", "6", "--best_metric", "eval_accuracy") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"the best checkpoint, named in {checkpoints}/best.json, was removed" in error


def test_a_damaged_record_of_the_model_can_be_removed(finetune, tmp_path, capsys):
    path = tmp_path / "output" / "beambert.json"
    assert finetune() == 0
    whole = path.read_bytes()
    path.write_bytes(whole + b"x")
    assert finetune() == 1
    assert capsys.readouterr().err.endswith(f"; remove {path} and run the same command again\n")
    path.unlink()
    assert finetune() == 0
    assert path.read_bytes() == whole
