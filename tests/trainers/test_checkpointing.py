import itertools
import math
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
        checkpointing.remove_old(tmp_path, checkpointing.Keeping(), best_step=None)
    assert [checkpoint.step for checkpoint in checkpointing.checkpoints(tmp_path)] == [10, 11, 100, 101, 102]
    steps = {path.name.split(".")[1] for path in tmp_path.iterdir()}
    assert steps == {"ckpt-10", "ckpt-11", "ckpt-100", "ckpt-101", "ckpt-102"}


# What a process does to files is seen, and stopped, before it is done; Python has no way to take a hook out again.
FILE_OPERATIONS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")
_operations_left = math.inf


def _count_operation(event, arguments):
    global _operations_left
    if event in FILE_OPERATIONS:
        _operations_left -= 1
        if _operations_left < 0:
            raise SystemExit(9)


@pytest.fixture(scope="module")
def dies_after():
    """A function of a number and an action: whether the action died, at the operation on files after so many."""
    sys.addaudithook(_count_operation)

    def run(operations, action):
        global _operations_left
        _operations_left = operations
        try:
            action()
        except SystemExit:
            return True
        finally:
            _operations_left = math.inf
        return False

    return run


def content(directory):
    """Values and state of every checkpoint that is found, by step."""
    found = {}
    for checkpoint in checkpointing.checkpoints(directory):
        restored = variables(0)
        checkpointing.restore(checkpoint.prefix, restored)
        assert int(restored["global_step"]) == checkpoint.step
        found[checkpoint.step] = (float(restored["a/kernel"][1, 2]), checkpointing.state_of(checkpoint))
    return found


def names(*steps):
    return sorted(
        f"model.ckpt-{step}.{kind}" for step in steps for kind in ("data-00000-of-00001", "index", "state.json")
    )


def save(directory, step, value=None, state=None):
    changed = variables(step)
    if value is not None:
        changed["a/kernel"].assign(tf.fill([2, 3], float(value)))
    checkpointing.save(directory, step, changed, state=state or {"seconds": step})


def test_killed_at_any_operation_of_a_save_nothing_is_lost(tmp_path, dies_after):
    before = {1: (1.0, {"seconds": 1}), 2: (2.0, {"seconds": 2})}
    survived = []
    for operations in itertools.count():
        directory = tmp_path / str(operations)
        save(directory, 1)
        save(directory, 2)
        died = dies_after(operations, lambda: save(directory, 3))  # noqa: B023
        after = {**before, 3: (3.0, {"seconds": 3})}
        found = content(directory)
        assert found in (before, after)
        survived.append(3 in found)
        # The next save leaves nothing of the one that died.
        save(directory, 4)
        assert content(directory) == {**found, 4: (4.0, {"seconds": 4})}
        assert sorted(path.name for path in directory.iterdir()) == names(*found, 4)
        if not died:
            break
    # It is whole from one moment on, some operations after the first and some before the last.
    assert survived == sorted(survived)
    assert survived.index(True) > 5
    assert survived.count(True) > 1


def test_killed_where_a_step_is_saved_again_the_others_stay_and_old_and_new_never_mix(tmp_path, dies_after):
    first = {1: (1.0, {"seconds": 1})}
    old, new = (5.0, {"seconds": 5}), (7.0, {"seconds": 7})
    for operations in itertools.count():
        directory = tmp_path / str(operations)
        save(directory, 1)
        save(directory, 2, value=5, state={"seconds": 5})
        died = dies_after(operations, lambda: save(directory, 2, value=7, state={"seconds": 7}))  # noqa: B023
        assert content(directory) in ({**first, 2: old}, first, {**first, 2: new})
        save(directory, 2, value=7, state={"seconds": 7})
        assert content(directory) == {**first, 2: new}
        assert sorted(path.name for path in directory.iterdir()) == names(1, 2)
        if not died:
            break


def test_killed_at_any_operation_of_a_removal_the_rest_is_usable(tmp_path, dies_after):
    keeping = checkpointing.Keeping(last=2)
    for operations in itertools.count():
        directory = tmp_path / str(operations)
        for step in (1, 2, 3, 4):
            save(directory, step)
        died = dies_after(operations, lambda: checkpointing.remove_old(directory, keeping, best_step=None))  # noqa: B023
        found = content(directory)
        assert set(found) in ({1, 2, 3, 4}, {2, 3, 4}, {3, 4})
        save(directory, 5)
        checkpointing.remove_old(directory, keeping, best_step=None)
        assert sorted(path.name for path in directory.iterdir()) == names(4, 5)
        if not died:
            break


def test_a_checkpoint_without_state_is_whole(tmp_path):
    saved = checkpointing.save(tmp_path, 1, variables(1))
    assert checkpointing.state_of(saved) == {}
    checkpointing.save(tmp_path, 1, variables(1), state={"window": [0.1 + 0.2, 1e-310, 12345678901234567890]})
    assert checkpointing.state_of(saved) == {"window": [0.1 + 0.2, 1e-310, 12345678901234567890]}
    # The state of an earlier save of the step is not that of this one.
    checkpointing.save(tmp_path, 1, variables(1))
    assert checkpointing.state_of(saved) == {}
    saved.state_file.write_text('{"window": [')
    with pytest.raises(TrainingError, match=r"model.ckpt-1.state.json cannot be read .* remove .*model.ckpt-1.index"):
        checkpointing.state_of(saved)


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
