"""Test Ctrl-C during the import of TensorFlow, and the exit of a process that prefetches training data."""

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.trainers.pretraining_shards import SMALLEST, write_dataset

CHATTER = "import os\nos.write(2, b'chatter of a library\\n')\n"
READY = "import sys, time\nprint('ready', file=sys.__stdout__, flush=True)\n"


@pytest.mark.parametrize(
    "keras",
    [
        "time.sleep(120)",
        # Libraries that convert the interruption of an import into another error, or suppress it.
        "try:\n    time.sleep(120)\nexcept KeyboardInterrupt:\n    raise ImportError('half imported')",
        "try:\n    time.sleep(120)\nexcept KeyboardInterrupt:\n    pass",
    ],
)
def test_ctrl_c_while_tensorflow_is_imported_is_one_line(tmp_path, keras):
    (tmp_path / "keras.py").write_text(CHATTER + READY + keras)
    (tmp_path / "tensorflow.py").write_text("")
    write_dataset(tmp_path / "data")
    (tmp_path / "model.json").write_text(SMALLEST.to_json(), encoding="utf-8")
    argv = ["pretrain", "--data", str(tmp_path / "data"), "--model", str(tmp_path / "model.json")]
    process = subprocess.Popen(
        [sys.executable, "-m", "beambert", *argv, "--output", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "beambert pretrain: interrupted; run the same command again to resume\n"


@pytest.mark.slow
def test_a_process_ends_although_readers_read_ahead():
    """Check that running calls of Python readers, made by TensorFlow's threads, do not block the exit of a command."""
    program = """
import sys, time
from beambert.common import process
from beambert.trainers.backends.tensorflow.startup import start_tensorflow
start_tensorflow()
import numpy as np
import tensorflow as tf

def read(number):
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass
    return np.int64(number)

kept = []

@process.ends_process
def main(argv=None):
    for _ in range(8):
        numbers = tf.data.Dataset.range(100_000)
        rows = numbers.map(lambda n: tf.numpy_function(read, [n], tf.int64, stateful=False)).prefetch(16)
        kept.append(iter(rows))
        next(kept[-1])
    print("error", flush=True)
    return 1

sys.exit(main())
"""
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "error\n"
        assert process.wait(30) == 1
    finally:
        process.kill()
        process.wait()
