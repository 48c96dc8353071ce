"""Test `beambert finetune` with an output directory or file deleted during the run, and a corrupt model record."""

from beambert.trainers.training import loop
from tests.trainers.checkpoints.saved_checkpoints import after_save


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
