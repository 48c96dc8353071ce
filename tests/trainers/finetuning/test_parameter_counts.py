"""Test the parameter counts in the report and the model card against the variables of the checkpoint."""

import math
import re

import tensorflow as tf

from beambert.bert_model.checkpoints import native


def counted(output) -> int:
    """Return the number of parameters in a run's checkpoint, without the step and the slots of the optimizer."""
    variables = tf.train.list_variables(str(native.model_checkpoint(output)))
    return sum(math.prod(shape) for name, shape in variables if not re.search("adam_[mv]$|global_step", name))


def test_counts_include_the_head(finetune, tmp_path):
    assert finetune("--do_train") == 0
    output = tmp_path / "output"
    shown = re.findall(r"([\d,]+) parameters", (output / "report.html").read_text(encoding="utf-8"))
    assert set(shown) == {f"{counted(output):,}"}
    assert f"| Parameters | {counted(output):,} |" in (output / "README.md").read_text(encoding="utf-8")
