import itertools
import json
import math
import os
import re
import resource
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.errors import TrainingError
from beambert.trainers.optimization import update_rules
from beambert.trainers.options import TrainingOptions
from tests.forked import run


def variables(value):
    return {"a/kernel": tf.Variable(tf.fill([2, 3], float(value))), "global_step": tf.Variable(value, dtype=tf.int64)}


def test_the_step_is_saved_without_a_variable(tmp_path):
    kernel = {"a/kernel": variables(7)["a/kernel"]}
    without = checkpoint_manager.save(tmp_path / "without", 7, kernel)
    checkpoint_manager.save(tmp_path / "with", 7, variables(7))
    for kind in ("index", "data-00000-of-00001"):
        contents = {(tmp_path / name / f"model.ckpt-7.{kind}").read_bytes() for name in ("with", "without")}
        assert len(contents) == 1
    restored = {"a/kernel": variables(0)["a/kernel"]}
    checkpoint_manager.restore(without.prefix, restored)
    assert (restored["a/kernel"].numpy() == 7).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("shape", [(), (5, 3)])
def test_variables_of_keras_are_saved_as_those_of_tensorflow(tmp_path, dtype, shape):
    value = np.arange(math.prod(shape)).reshape(shape)
    name = "bert/embeddings/word_embeddings" if shape else "x"
    of_keras = {name: keras.Variable(value, dtype=dtype)}
    of_tensorflow = {name: tf.Variable(tf.cast(value, dtype))}
    for saved in (of_keras, of_tensorflow):
        prefix = checkpoint_manager.save(tmp_path / type(saved[name]).__name__, 7, saved, vocab_size=4).prefix
        stored = tf.train.load_checkpoint(str(prefix)).get_tensor(name)
        np.testing.assert_array_equal(stored, value[:4] if shape else value)
        assert stored.dtype == dtype
        saved[name].assign(np.ones(shape))
        checkpoint_manager.restore(prefix, saved, vocab_size=4)
        expected = np.concatenate([value[:4], np.zeros([1, 3])]) if shape else value
        np.testing.assert_array_equal(saved[name].numpy(), expected)
        data = Path(f"{prefix}.data-00000-of-00001")
        assert checkpoint_manager.bytes_needed(saved, vocab_size=4) == data.stat().st_size


def steps(directory):
    return [checkpoint.step for checkpoint in checkpoint_manager.checkpoints(directory)]


def test_the_last_ones_are_kept_in_numeric_order(tmp_path):
    for step in (8, 9, 10, 11, 100, 101, 102):
        checkpoint_manager.save(tmp_path, step, variables(step))
    # A file with another suffix is not part of a checkpoint, and stays.
    (tmp_path / "model.ckpt-7.notes").write_text("x")
    checkpoint_manager.remove_old(tmp_path, TrainingOptions(), best_step=None)
    assert steps(tmp_path) == [10, 11, 100, 101, 102]
    assert {path.name.split(".")[1] for path in tmp_path.iterdir()} == {
        *(f"ckpt-{step}" for step in (7, 10, 11, 100, 101, 102))
    }
    checkpoint_manager.remove_old(tmp_path, TrainingOptions(keep_checkpoint_max=1), best_step=11)
    assert steps(tmp_path) == [11, 102]


@given(
    minutes=st.lists(st.integers(1, 200), min_size=1, max_size=30),
    last=st.integers(1, 4),
    hours=st.sampled_from([0.5, 1.0, 3.0]),
)
@settings(max_examples=60, deadline=None)
def test_one_checkpoint_is_kept_per_interval_of_training_hours(tmp_path_factory, minutes, last, hours):
    directory = tmp_path_factory.mktemp("kept")
    config = TrainingOptions(keep_checkpoint_max=last, keep_checkpoint_every_n_hours=hours)
    # Only the names and the states of checkpoints matter here.
    trained = dict(enumerate(itertools.accumulate(60 * minute for minute in minutes)))
    for step, seconds in trained.items():
        (directory / f"model.ckpt-{step}.state.json").write_text(json.dumps({"seconds": seconds}))
        (directory / f"model.ckpt-{step}.index").touch()
        checkpoint_manager.remove_old(directory, config, best_step=None)
    expected = set(list(trained)[-last:])
    for mark in range(1, int(max(trained.values()) / 3600 / hours) + 1):
        reached = [step for step, seconds in trained.items() if seconds >= mark * 3600 * hours]
        # One checkpoint represents all intervals since the previous one, and counts only at the last of their marks.
        if not trained[reached[0]] >= (mark + 1) * 3600 * hours:
            expected.add(reached[0])
    assert steps(directory) == sorted(expected)


@pytest.mark.parametrize("hours", [5e-324, 1e-310, 1e300])
def test_extreme_hours_are_valid(tmp_path, hours):
    for step in (1, 2, 3):
        checkpoint_manager.save(tmp_path, step, variables(step), state={"seconds": 100.0 * step})
    checkpoint_manager.remove_old(
        tmp_path, TrainingOptions(keep_checkpoint_max=1, keep_checkpoint_every_n_hours=hours), best_step=None
    )
    assert steps(tmp_path) == ([3] if hours > 1 else [1, 2, 3])


def test_a_damaged_state_of_an_old_checkpoint_stops_nothing(tmp_path):
    for step in (1, 2):
        checkpoint_manager.save(tmp_path, step, variables(step), state={"seconds": 4000})
    (tmp_path / "model.ckpt-1.state.json").write_text("{")
    checkpoint_manager.remove_old(
        tmp_path, TrainingOptions(keep_checkpoint_max=1, keep_checkpoint_every_n_hours=1.0), best_step=None
    )
    assert steps(tmp_path) == [2]


# An audit hook sees each operation on files before it happens, and can stop it. Python cannot remove a hook.
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
    """A function that runs an action, stops it after N operations on files, and returns whether it was stopped."""
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
    """Return the values and the state of each complete checkpoint, by step."""
    found = {}
    for checkpoint in checkpoint_manager.checkpoints(directory):
        restored = variables(0)
        checkpoint_manager.restore(checkpoint.prefix, restored)
        assert int(restored["global_step"]) == checkpoint.step
        found[checkpoint.step] = (float(restored["a/kernel"][1, 2]), checkpoint_manager.state_of(checkpoint))
    return found


def names(*steps):
    return sorted(
        f"model.ckpt-{step}.{kind}" for step in steps for kind in ("data-00000-of-00001", "index", "state.json")
    )


def save(directory, step, value=None, state=None):
    changed = variables(step)
    if value is not None:
        changed["a/kernel"].assign(tf.fill([2, 3], float(value)))
    checkpoint_manager.save(directory, step, changed, state=state or {"seconds": step})


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
        # The next save removes all files of the interrupted one.
        save(directory, 4)
        assert content(directory) == {**found, 4: (4.0, {"seconds": 4})}
        assert sorted(path.name for path in directory.iterdir()) == names(*found, 4)
        if not died:
            break
    # The checkpoint becomes complete at one operation, several after the first and at least one before the last.
    assert survived == sorted(survived)
    assert survived.index(True) > 5
    assert survived.count(True) > 1


def test_a_kill_during_a_second_save_of_a_step_keeps_the_others_and_mixes_no_files(tmp_path, dies_after):
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
    config = TrainingOptions(keep_checkpoint_max=2)
    for operations in itertools.count():
        directory = tmp_path / str(operations)
        for step in (1, 2, 3, 4):
            save(directory, step)
        died = dies_after(operations, lambda: checkpoint_manager.remove_old(directory, config, best_step=None))  # noqa: B023
        found = content(directory)
        assert set(found) in ({1, 2, 3, 4}, {2, 3, 4}, {3, 4})
        save(directory, 5)
        checkpoint_manager.remove_old(directory, config, best_step=None)
        assert sorted(path.name for path in directory.iterdir()) == names(4, 5)
        if not died:
            break


def test_data_is_synchronized_before_its_rename_and_the_index_is_renamed_last(tmp_path, monkeypatch):
    """Check the order of synchronization and renames, because a power failure keeps only synchronized data."""
    events = []
    fsync, replace = os.fsync, os.replace

    def synchronized(descriptor):
        events.append(("on disk", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def replaced(source, target):
        events.append(("renamed", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synchronized)
    monkeypatch.setattr(os, "replace", replaced)
    directory = tmp_path / "checkpoints"
    save(directory, 1)
    files, others = set(names(1)), {"model.ckpt-1.data-00000-of-00001", "model.ckpt-1.state.json"}
    assert {name for _, name in events[:3]} == files
    assert set(events[3:5]) == {("renamed", name) for name in others}
    end = [("on disk", "checkpoints"), ("renamed", "model.ckpt-1.index"), ("on disk", "checkpoints")]
    assert [events[0][0], *events[5:]] == ["on disk", *end]


def test_a_removal_deletes_the_index_first_and_synchronizes(tmp_path, monkeypatch):
    save(tmp_path, 1)
    save(tmp_path, 2)
    events = []
    fsync, unlink = os.fsync, os.unlink
    monkeypatch.setattr(os, "fsync", lambda descriptor: (events.append("on disk"), fsync(descriptor)))
    monkeypatch.setattr(os, "unlink", lambda path: (events.append(Path(path).name), unlink(path)))
    checkpoint_manager.remove_old(tmp_path, TrainingOptions(keep_checkpoint_max=1), best_step=None)
    assert events[:2] == ["model.ckpt-1.index", "on disk"]
    assert sorted(events[2:]) == [name for name in names(1) if not name.endswith("index")]


def test_a_checkpoint_without_state_is_whole(tmp_path):
    saved = checkpoint_manager.save(tmp_path, 1, variables(1))
    assert checkpoint_manager.state_of(saved) == {}
    checkpoint_manager.save(tmp_path, 1, variables(1), state={"window": [0.1 + 0.2, 1e-310, 12345678901234567890]})
    assert checkpoint_manager.state_of(saved) == {"window": [0.1 + 0.2, 1e-310, 12345678901234567890]}
    # A new save of a step removes the state of the earlier save.
    checkpoint_manager.save(tmp_path, 1, variables(1))
    assert checkpoint_manager.state_of(saved) == {}
    saved.state_file.write_text('{"window": [')
    with pytest.raises(TrainingError, match=r"model.ckpt-1.state.json: not valid JSON .* remove .*model.ckpt-1.index"):
        checkpoint_manager.state_of(saved)


@pytest.mark.parametrize(
    ("changed", "state", "size"),
    [({"a": [0.0] * 200_000}, None, "800,008"), ({"a/kernel": [[0.0] * 3] * 2}, {"window": [0.1] * 200_000}, "32")],
)
def test_lack_of_space_is_a_one_line_error_and_keeps_the_previous_checkpoint(tmp_path, changed, state, size):
    save(tmp_path, 1)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
    try:
        with pytest.raises(TrainingError) as caught:
            checkpoint_manager.save(
                tmp_path, 2, {name: tf.Variable(value) for name, value in changed.items()}, state=state
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert re.fullmatch(
        rf"checkpoint {tmp_path}/model.ckpt-2 cannot be written \(.*file too large\); it needs {size} bytes; raise the "
        rf"limit on the size of a file \(ulimit -f\) .* resumes from {tmp_path}/model.ckpt-1",
        str(caught.value),
    )
    assert content(tmp_path) == {1: (1.0, {"seconds": 1})}
    assert sorted(path.name for path in tmp_path.iterdir()) == names(1)


def test_a_warning_where_the_disk_has_no_room_for_all_that_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_manager, "_free_bytes", lambda directory: 100)
    saved = variables(1)  # 32 bytes
    assert checkpoint_manager.space_warning(tmp_path, saved, None, TrainingOptions(keep_checkpoint_max=2)) is None
    warning = checkpoint_manager.space_warning(tmp_path, saved, None, TrainingOptions(keep_checkpoint_max=3))
    assert re.search("up to 4 more checkpoints of 32 bytes, and 100 bytes are free; .*--keep_checkpoint_max", warning)
    checkpoint_manager.save(tmp_path, 1, saved)
    assert checkpoint_manager.space_warning(tmp_path, saved, None, TrainingOptions(keep_checkpoint_max=3)) is None


def save_and_restore_mirrored(directory):
    """Save variables of two devices outside the scope of their strategy, restore them, and compare every copy."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    words = "bert/embeddings/word_embeddings"
    with strategy.scope():
        mirrored = {words: tf.Variable(tf.zeros([8, 2])), "global_step": tf.Variable(0, dtype=tf.int64)}

    def update(factor):
        # As in a training step, the update runs in a graph, on every copy.
        added = {words: factor * tf.reshape(tf.range(16.0), [8, 2]), "global_step": tf.constant(factor, tf.int64)}
        for name, variable in mirrored.items():
            strategy.extended.update(variable, lambda v, value: v.assign_add(value), (added[name],))

    tf.function(update)(3)
    checkpoint_manager.save(directory / "mirrored", 3, mirrored, vocab_size=5)
    tf.function(update)(1)
    checkpoint_manager.restore(directory / "mirrored" / "model.ckpt-3", mirrored, vocab_size=5)
    expected = 3 * np.arange(16, dtype=np.float32).reshape(8, 2)
    expected[5:] = 0
    for variable, value in ((mirrored[words], expected), (mirrored["global_step"], 3)):
        copies = strategy.experimental_local_results(variable)
        assert len({copy.device for copy in copies}) == 2
        for copy in copies:
            np.testing.assert_array_equal(copy.numpy(), value)
    plain = {words: tf.Variable(expected), "global_step": tf.Variable(3, dtype=tf.int64)}
    checkpoint_manager.save(directory / "plain", 3, plain, vocab_size=5)


def test_variables_on_several_devices_are_saved_as_those_on_one(tmp_path):
    log = tmp_path / "log"
    assert run(log, save_and_restore_mirrored, tmp_path) == 0, log.read_text()
    for kind in ("index", "data-00000-of-00001"):
        mirrored, plain = (tmp_path / name / f"model.ckpt-3.{kind}" for name in ("mirrored", "plain"))
        assert mirrored.read_bytes() == plain.read_bytes()


def test_errors_name_the_file_and_the_variable(tmp_path):
    prefix = checkpoint_manager.save(tmp_path, 1, variables(1)).prefix
    with pytest.raises(TrainingError, match=r"model.ckpt-1 has no variable b/kernel"):
        checkpoint_manager.restore(prefix, {"b/kernel": tf.Variable([1.0])})
    with pytest.raises(TrainingError, match=r"has a/kernel with shape \[2, 3\], but the model requires \[3, 2\]"):
        checkpoint_manager.restore(prefix, {"a/kernel": tf.Variable(tf.zeros([3, 2]))})
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(TrainingError, match="cannot be written"):
        checkpoint_manager.save(blocked / "checkpoints", 1, variables(1))


@pytest.mark.parametrize("file", ["data-00000-of-00001", "index"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "missing"])
def test_damaged_checkpoints_are_named(tmp_path, file, damage):
    prefix = checkpoint_manager.save(tmp_path, 1, variables(1)).prefix
    path = Path(f"{prefix}.{file}")
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-4] if damage == "truncated" else bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(TrainingError, match=r"cannot be read .* remove .*model.ckpt-1.index") as caught:
        checkpoint_manager.restore(prefix, variables(0))
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

    prefix = checkpoint_manager.save(tmp_path, 1, padded(2.0), vocab_size=5).prefix
    shapes = dict(tf.train.list_variables(str(prefix)))
    assert shapes == {
        "bert/embeddings/word_embeddings": [5, 2],
        "bert/embeddings/word_embeddings/adam_m": [5, 2],
        "cls/predictions/output_bias": [5],
        "other": [8, 2],
        "global_step": [],
    }
    restored = padded(0.0)
    checkpoint_manager.restore(prefix, restored, vocab_size=5)
    table = restored["bert/embeddings/word_embeddings"].numpy()
    assert (table[:5] == 2).all()
    assert (table[5:] == 0).all()
    assert restored["bert/embeddings/word_embeddings/adam_m"].numpy()[:, 1].tolist() == [3] * 5 + [0] * 3
    assert restored["cls/predictions/output_bias"].numpy().tolist() == [2] * 5 + [0] * 3
    assert (restored["other"].numpy() == padded(2.0)["other"].numpy()).all()
    with pytest.raises(TrainingError, match=r"word_embeddings with shape \[5, 2\], but the model requires \[6, 2\]"):
        checkpoint_manager.restore(prefix, padded(0.0), vocab_size=6)
    # A model without padding reads the same checkpoint.
    plain = {"cls/predictions/output_bias": tf.Variable(np.zeros(5))}
    checkpoint_manager.restore(prefix, plain)
    assert plain["cls/predictions/output_bias"].numpy().tolist() == [2] * 5


def test_restored_slots_are_padded_with_their_initial_value(tmp_path, monkeypatch):
    class Adagrad(update_rules.AdamW):
        slots = (update_rules.Slot("squares", initial=0.5),)

    monkeypatch.setitem(update_rules.OPTIMIZERS, "adagrad", Adagrad)
    name = "bert/embeddings/word_embeddings"
    saved = {name: tf.Variable(np.full([8, 2], 3.0)), f"{name}/squares": tf.Variable(np.full([8, 2], 4.0))}
    prefix = checkpoint_manager.save(tmp_path, 1, saved, vocab_size=5).prefix
    checkpoint_manager.restore(prefix, saved, vocab_size=5)
    assert saved[name].numpy()[:, 0].tolist() == [3] * 5 + [0] * 3
    assert saved[f"{name}/squares"].numpy()[:, 0].tolist() == [4] * 5 + [0.5] * 3
