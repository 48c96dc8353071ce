import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from trainers import checkpointing
from trainers.errors import TrainingError


def variables(value):
    return {"a/kernel": tf.Variable(tf.fill([2, 3], float(value))), "global_step": tf.Variable(value, dtype=tf.int64)}


def test_round_trip_under_the_given_names(tmp_path):
    saved = checkpointing.save(tmp_path / "new", 7, variables(7))
    assert saved == (7, tmp_path / "new" / "model.ckpt-7")
    # Any reader of TensorFlow's checkpoints finds the names as they were given.
    assert tf.train.list_variables(str(saved.prefix)) == [("a/kernel", [2, 3]), ("global_step", [])]
    restored = variables(0)
    checkpointing.restore(saved.prefix, restored)
    np.testing.assert_array_equal(restored["a/kernel"].numpy(), np.full([2, 3], 7.0))
    assert int(restored["global_step"]) == 7


def test_the_last_five_are_kept_in_numeric_order(tmp_path):
    for step in (8, 9, 10, 11, 100, 101, 102):
        checkpointing.save(tmp_path, step, variables(step))
    assert [checkpoint.step for checkpoint in checkpointing.checkpoints(tmp_path)] == [10, 11, 100, 101, 102]
    steps = {path.name.split(".")[1] for path in tmp_path.iterdir()}
    assert steps == {"ckpt-10", "ckpt-11", "ckpt-100", "ckpt-101", "ckpt-102"}


# A process that dies at the given rename or removal inside a save, as a kill would have it.
DIES = """
import os, pathlib, sys
import tensorflow as tf
from trainers import checkpointing
variable = {"a": tf.Variable([1.0, 2.0])}
directory = pathlib.Path(sys.argv[1])
checkpointing.save(directory, 1, variable)
variable["a"].assign([3.0, 4.0])
left = int(sys.argv[2])
def die(event, arguments):
    global left
    if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"):
        left -= 1
        if left < 0:
            os._exit(9)
sys.addaudithook(die)
checkpointing.save(directory, 2, variable)
"""


# The events of a save: making room (3), the data's rename, the index's rename, removing the working directory.
@pytest.mark.parametrize(("survived", "last_step"), [(3, 1), (4, 1), (5, 2)])
def test_killed_inside_a_save_the_last_whole_checkpoint_is_usable(tmp_path, survived, last_step):
    answer = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path), str(survived)], capture_output=True, check=False
    )
    assert answer.returncode == 9, answer.stderr.decode()
    assert (tmp_path / "model.ckpt-2.data-00000-of-00001").exists() == (survived > 3)
    last = checkpointing.checkpoints(tmp_path)[-1]
    assert last.step == last_step
    variable = {"a": tf.Variable([0.0, 0.0])}
    checkpointing.restore(last.prefix, variable)
    assert variable["a"].numpy().tolist() == {1: [1.0, 2.0], 2: [3.0, 4.0]}[last_step]
    variable["a"].assign([5.0, 6.0])
    checkpointing.save(tmp_path, 2, variable)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "model.ckpt-1.data-00000-of-00001",
        "model.ckpt-1.index",
        "model.ckpt-2.data-00000-of-00001",
        "model.ckpt-2.index",
    ]


def test_errors_name_the_file_and_the_variable(tmp_path):
    prefix = checkpointing.save(tmp_path, 1, variables(1)).prefix
    with pytest.raises(TrainingError, match=r"model.ckpt-1 has no variable b/kernel"):
        checkpointing.restore(prefix, {"b/kernel": tf.Variable([1.0])})
    with pytest.raises(TrainingError, match=r"has a/kernel of shape \[2, 3\], the model needs \[3, 2\]"):
        checkpointing.restore(prefix, {"a/kernel": tf.Variable(tf.zeros([3, 2]))})
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(TrainingError, match="cannot be written"):
        checkpointing.save(blocked / "checkpoints", 1, variables(1))


@pytest.mark.parametrize("file", ["data-00000-of-00001", "index"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "missing"])
def test_damaged_checkpoints_are_named(tmp_path, file, damage):
    prefix = checkpointing.save(tmp_path, 1, variables(1)).prefix
    path = Path(f"{prefix}.{file}")
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-4] if damage == "truncated" else bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(TrainingError, match=r"cannot be read .* remove .*model.ckpt-1.index") as caught:
        checkpointing.restore(prefix, variables(0))
    assert "\n" not in str(caught.value)


def test_rows_that_pad_the_vocabulary_are_not_in_checkpoints(tmp_path):
    def padded(value):
        table = np.full([8, 2], value)
        table[5:] = -1
        words = "bert/embeddings/word_embeddings"
        return {
            words: tf.Variable(table),
            f"{words}/adam_m": tf.Variable(table + 1),
            "cls/predictions/output_bias": tf.Variable(table[:, 0]),
            "other": tf.Variable(table),
            "global_step": tf.Variable(3),
        }

    prefix = checkpointing.save(tmp_path, 1, padded(2.0), vocab_size=5).prefix
    shapes = dict(tf.train.list_variables(str(prefix)))
    assert shapes == {
        "bert/embeddings/word_embeddings": [5, 2],
        "bert/embeddings/word_embeddings/adam_m": [5, 2],
        "cls/predictions/output_bias": [5],
        "other": [8, 2],
        "global_step": [],
    }
    restored = padded(0.0)
    checkpointing.restore(prefix, restored, vocab_size=5)
    table = restored["bert/embeddings/word_embeddings"].numpy()
    assert (table[:5] == 2).all()
    assert (table[5:] == 0).all()
    assert restored["bert/embeddings/word_embeddings/adam_m"].numpy()[:, 1].tolist() == [3] * 5 + [0] * 3
    assert restored["cls/predictions/output_bias"].numpy().tolist() == [2] * 5 + [0] * 3
    assert (restored["other"].numpy() == padded(2.0)["other"].numpy()).all()
    with pytest.raises(TrainingError, match=r"word_embeddings of shape \[5, 2\], the model needs \[6, 2\]"):
        checkpointing.restore(prefix, padded(0.0), vocab_size=6)
    # A model without padding reads the same checkpoint.
    plain = {"cls/predictions/output_bias": tf.Variable(np.zeros(5))}
    checkpointing.restore(prefix, plain)
    assert plain["cls/predictions/output_bias"].numpy().tolist() == [2] * 5
