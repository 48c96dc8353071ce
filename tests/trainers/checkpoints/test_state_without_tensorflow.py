"""Test that a process with JAX, where TensorFlow cannot be imported, saves and restores files that TensorFlow reads."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import ROOT

_SAVE_AND_RESTORE = """
import sys
from pathlib import Path
sys.modules["tensorflow"] = None
import keras
import numpy as np
from trainers.checkpoints import checkpoint_manager
from trainers.monitoring.tensorboard import EventLog

assert keras.backend.backend() == "jax"
directory = Path(sys.argv[1])
values = {"a/kernel": np.arange(6.0).reshape(2, 3), "a/kernel/adam_m": np.full([2, 3], 0.5), "b": np.array(1.5)}
dtypes = {"a/kernel": "float32", "a/kernel/adam_m": "float32", "b": "bfloat16"}
variables = {name: keras.Variable(value, dtype=dtypes[name]) for name, value in values.items()}
saved = checkpoint_manager.save(directory, 7, variables, state={"seconds": 1})
for variable in variables.values():
    variable.assign(np.zeros(variable.shape))
checkpoint_manager.restore(saved.prefix, variables)
for name, value in values.items():
    assert (np.asarray(variables[name].numpy(), float) == value).all(), name
log = EventLog(directory / "logs", 0)
log.write(7, {"loss": 0.25})
log.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_checkpoints_and_events_of_jax(tmp_path):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", _SAVE_AND_RESTORE, str(tmp_path)]
    answer = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-7"))
    assert reader.get_variable_to_dtype_map() == {
        "a/kernel": tf.float32,
        "a/kernel/adam_m": tf.float32,
        "b": tf.bfloat16,
        "global_step": tf.int64,
    }
    assert reader.get_tensor("global_step") == 7
    np.testing.assert_array_equal(reader.get_tensor("a/kernel"), np.arange(6).reshape(2, 3))
    (events,) = (tmp_path / "logs").iterdir()
    *_, last = tf.data.TFRecordDataset(str(events)).as_numpy_iterator()
    event = tf.compat.v1.Event.FromString(last)
    assert (event.step, tf.make_ndarray(event.summary.value[0].tensor)) == (7, 0.25)
