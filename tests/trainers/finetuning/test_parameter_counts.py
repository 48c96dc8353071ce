"""Test the parameter counts in the report and the model card against the variables of the checkpoint."""

import math
import re

import pytest
import tensorflow as tf

import beambert
from bert_model.checkpoints import native
from tests.trainers.finetuning.task_files import write_task
from tests.trainers.random_models import write_model


def counted(output) -> int:
    """Return the number of parameters in a run's checkpoint, without the step and the slots of the optimizer."""
    variables = tf.train.list_variables(str(native.model_checkpoint(output)))
    return sum(math.prod(shape) for name, shape in variables if not re.search("adam_[mv]$|global_step", name))


@pytest.mark.parametrize("task", ["rte", "ner"])
def test_counts_include_the_head(task, tmp_path, shared_data):
    flags = write_task(task, tmp_path / "data", shared_data)
    initial, output = write_model(tmp_path / "initial"), tmp_path / "output"
    command = ["finetune", task, "--data_dir", str(tmp_path / "data"), "--output", str(output), *flags]
    command += ["--init_checkpoint", str(initial), "--max_seq_length", "64", "--num_train_epochs", "1"]
    assert beambert.main([*command, "--train_batch_size", "8", "--do_train"]) == 0
    shown = re.findall(r"([\d,]+) parameters", (output / "report.html").read_text(encoding="utf-8"))
    assert set(shown) == {f"{counted(output):,}"}
    assert f"| Parameters | {counted(output):,} |" in (output / "README.md").read_text(encoding="utf-8")
