"""Test `beambert convert --average`: the mean of a run's last checkpoints, as a native and a Hugging Face model."""

import json

import numpy as np
import pytest
import tensorflow as tf

from beambert import cli
from beambert.bert_model.checkpoints import tensor_bundle
from beambert.bert_model.checkpoints.reader import open_checkpoint
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.commands import pretrain


@pytest.fixture
def run(tmp_path, options):
    """A run with checkpoints at steps 2, 4 and 6, whose weights are random numbers."""
    output, generator = tmp_path / "run", np.random.default_rng(0)
    pretrain.run(options("--output", str(output), "--save_checkpoints_steps", "2"))
    for _, prefix in checkpoint_manager.checkpoints(output / "checkpoints"):
        stored = tensor_bundle.read(prefix)
        values = {
            name: tensor.read()
            if name == checkpoint_manager.GLOBAL_STEP
            else generator.normal(size=tensor.shape).astype(np.float32)
            for name, tensor in stored.items()
        }
        tensor_bundle.write(prefix, values.items())
    return output


def convert(capsys, *argv):
    """Run the command; return its exit code, standard output and standard error."""
    capsys.readouterr()
    code = cli.main(["convert", *map(str, argv)])
    return code, *capsys.readouterr()


def means(run, steps):
    """Return the means of all variables, computed in float64."""
    readers = [tf.train.load_checkpoint(str(run / f"checkpoints/model.ckpt-{step}")) for step in steps]
    return {
        name: np.mean([reader.get_tensor(name).astype(np.float64) for reader in readers], axis=0)
        for name in readers[0].get_variable_to_shape_map()
    }


def test_weights_and_heads_are_the_means(tmp_path, run, capsys):
    code, said, _ = convert(capsys, run, tmp_path / "mean", "--to", "native", "--average", 2)
    assert code == 0
    assert "Averaged  2 checkpoints, of steps 4, 6\n" in said
    expected = means(run, (4, 6))
    last = means(run, (6,))
    with open_checkpoint(tmp_path / "mean") as checkpoint:
        assert not checkpoint.optimizer
        assert "cls/predictions/output_bias" in checkpoint.tensors
        assert len(checkpoint.tensors) == 46
        for name, tensor in checkpoint.tensors.items():
            assert tensor.read().dtype == np.float32
            np.testing.assert_array_equal(tensor.read(), expected[name].astype(np.float32))
    assert not np.array_equal(expected["cls/predictions/output_bias"], last["cls/predictions/output_bias"])
    record = json.loads((tmp_path / "mean/beambert.json").read_text(encoding="utf-8"))
    assert (record["steps"], record["metrics"]) == (6, {})
    assert record["origin"] == "average of the checkpoints at steps 4, 6"


def test_errors_are_one_line_and_leave_no_output(tmp_path, run, capsys):
    convert(capsys, run, tmp_path / "native", "--to", "native")
    for source, flags, message in [
        (run, ("--average", 4), f"invalid --average 4: {run / 'checkpoints'} has 3 checkpoints"),
        (run, ("--average", 6), f"invalid --average 6: {run} was trained with --keep_checkpoint_max 5"),
        (run, ("--average", 2, "--optimizer", "keep"), "invalid --average with --optimizer keep"),
        (tmp_path / "native", ("--average", 2), "is not the output directory of a training run (run.json is missing)"),
    ]:
        code, _, error = convert(capsys, source, tmp_path / "out", "--to", "native", *flags)
        assert (code, error.count("\n")) == (1, 1)
        assert message in error
        assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        convert(capsys, run, tmp_path / "out", "--to", "native", "--average", 1)
    assert "'1' is not a whole number from 2" in capsys.readouterr().err
