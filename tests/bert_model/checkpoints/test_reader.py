import dataclasses
import json
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest

from beambert.bert_model import heads
from beambert.bert_model.checkpoints import native, tensor_bundle, tf1, writer
from beambert.bert_model.checkpoints.reader import open_checkpoint
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.common.word_rules import WordRules
from tests.converted_models import CONFIG, PIECES, assert_same_bytes, stored_values, write_release, zipped

HEADS = [("pretraining", None), *((name, head.fixed_labels or 3) for name, head in heads.HEADS.items())]
VOCABULARY = "".join(f"{piece}\n" for piece in PIECES).encode()


def convert(source, destination, kind, task=None, **options):
    with open_checkpoint(source, task) as checkpoint:
        writer.write(checkpoint, destination, kind, VOCABULARY, WordRules(), **options)
        return checkpoint


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize(("task", "num_labels"), HEADS)
def test_tf1_to_native_to_tf1_keeps_every_byte(tmp_path, task, num_labels, slots):
    values = write_release(tmp_path / "a", task, num_labels, slots=slots)
    convert(tmp_path / "a", tmp_path / "b", "native", task, keep_optimizer=True)
    # The native model records its task.
    again = convert(tmp_path / "b", tmp_path / "c", "tf1", keep_optimizer=True)
    assert (again.kind, again.head.name) == ("native", task)
    assert_same_bytes(stored_values(tmp_path / "c" / "bert_model.ckpt"), values)
    # TensorFlow wrote the same values to identical files.
    for name in ("bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index", "bert_config.json", "vocab.txt"):
        assert (tmp_path / "c" / name).read_bytes() == (tmp_path / "a" / name).read_bytes(), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_unusual_numbers_and_dtypes_survive(tmp_path):
    import tensorflow as tf

    values = write_release(tmp_path / "a")
    strange = np.array([np.nan, -0.0, np.inf, -np.inf, 1e-45, 3.4e38, 1, 2], np.float32)
    values["bert/pooler/dense/bias"] = strange
    values["cls/seq_relationship/output_bias"] = np.array([1.5, 2], np.float16)
    names = sorted(values)
    prefix = str(tmp_path / "a" / "bert_model.ckpt")
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=[values[n] for n in names]
    )
    convert(tmp_path / "a", tmp_path / "b", "native")
    convert(tmp_path / "b", tmp_path / "c", "tf1")
    assert_same_bytes(stored_values(tmp_path / "c" / "bert_model.ckpt"), values)


@pytest.mark.parametrize("step", [np.array([1, 2]), np.float32("nan"), np.float64("inf"), np.array(-5), np.True_])
def test_a_step_that_is_not_a_count_is_refused(tmp_path, step):
    values = write_release(tmp_path / "a", slots=True)
    tensor_bundle.write(tmp_path / "a" / "bert_model.ckpt", sorted({**values, "global_step": np.asarray(step)}.items()))
    with pytest.raises(CheckpointError, match="has a global_step that is not a number of steps; copy it again"):
        convert(tmp_path / "a", tmp_path / "b", "native")


def test_the_optimizer_is_dropped_unless_kept(tmp_path):
    values = write_release(tmp_path / "a", "span", slots=True)
    with open_checkpoint(tmp_path / "a") as checkpoint:
        assert len(checkpoint.optimizer) == 2 * len(checkpoint.tensors) + 1
        assert writer.steps(checkpoint) == 1234
    convert(tmp_path / "a", tmp_path / "b", "native")
    weights = {name: value for name, value in values.items() if "adam" not in name and name != "global_step"}
    assert_same_bytes(stored_values(tmp_path / "b" / "model.ckpt"), weights)
    # The number of steps is still recorded.
    record = native.load(tmp_path / "b")
    assert record == native.ModelRecord(
        "span", do_lower_case=True, steps=1234, origin="converted from the tf1 checkpoint a"
    )
    with pytest.raises(CheckpointError, match="cannot store the optimizer"):
        convert(tmp_path / "a", tmp_path / "d", "huggingface", keep_optimizer=True)
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(("task", "num_labels"), [head for head in HEADS if head[0] != "token_classification_bilstm"])
def test_tf1_to_hugging_face_and_back(tmp_path, task, num_labels):
    values = write_release(tmp_path / "a", task, num_labels)
    convert(tmp_path / "a", tmp_path / "b", "huggingface", task)
    convert(tmp_path / "b", tmp_path / "c", "tf1")
    reads_pooler = heads.ALL_HEADS[task].reads_pooler or task == "pretraining"
    kept = {name: value for name, value in values.items() if reads_pooler or "pooler" not in name}
    assert_same_bytes(stored_values(tmp_path / "c" / "bert_model.ckpt"), kept)


def test_hugging_face_has_no_bilstm(tmp_path):
    write_release(tmp_path / "a", "token_classification_bilstm", 3)
    with pytest.raises(CheckpointError, match="transformers has no class for token_classification_bilstm"):
        convert(tmp_path / "a", tmp_path / "b", "huggingface")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_head_determines_the_task(tmp_path):
    for number, (task, num_labels, seen) in enumerate(
        [
            ("pretraining", None, ("pretraining", None)),
            ("classification", 4, ("classification", 4)),
            ("token_classification", 4, ("classification", 4)),
            ("token_classification_bilstm", 4, ("token_classification_bilstm", 4)),
            ("regression", 1, ("regression", None)),
            ("span", 2, ("span", None)),
        ]
    ):
        write_release(tmp_path / str(number), task, num_labels)
        with open_checkpoint(tmp_path / str(number)) as checkpoint:
            assert (checkpoint.head.name, checkpoint.num_labels) == seen
        with open_checkpoint(tmp_path / str(number), task) as checkpoint:
            assert checkpoint.head.name == task
            assert checkpoint.missing == checkpoint.ignored == ()
    with open_checkpoint(tmp_path / "0", "span") as checkpoint:
        assert checkpoint.missing == ("cls/squad/output_weights", "cls/squad/output_bias")
        assert len(checkpoint.ignored) == 7
    with (
        pytest.raises(CheckpointError, match="has no classification head"),
        open_checkpoint(tmp_path / "0", "classification"),
    ):
        pass


def test_a_zip_archive_is_read_and_nothing_stays(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    values = write_release(tmp_path / "uncased_L-2_H-8_A-2")
    with open_checkpoint(zipped(tmp_path / "uncased_L-2_H-8_A-2")) as checkpoint:
        assert checkpoint.kind == "tf1"
        assert checkpoint.config == CONFIG
        assert checkpoint.vocab_file.read_bytes() == VOCABULARY
        for name, tensor in checkpoint.tensors.items():
            np.testing.assert_array_equal(tensor.read(), values[name])
    assert not any(temporary.iterdir())


@pytest.mark.parametrize(
    "name", ["../../evil.txt", "a/../../evil.txt", "/tmp/evil.txt", "..\\evil.txt", "link", "a/vocab.txt"]
)
def test_archives_that_reach_elsewhere_are_refused(tmp_path, name):
    write_release(tmp_path / "release")
    path = zipped(tmp_path / "release")
    with zipfile.ZipFile(path, "a") as archive:
        member = zipfile.ZipInfo(name)
        if name == "link":
            member.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(member, "/etc/passwd")
    message = "several files with the same name" if name == "a/vocab.txt" else "it is not unpacked"
    with pytest.raises(CheckpointError, match=message), open_checkpoint(path):
        pass
    assert not list(tmp_path.rglob("evil.txt"))


def test_damaged_archives(tmp_path):
    write_release(tmp_path / "release")
    path = zipped(tmp_path / "release")
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(CheckpointError, match="is not a complete zip archive"), open_checkpoint(path):
        pass
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    path.write_bytes(changed)
    with pytest.raises(CheckpointError, match="is not a complete zip archive"), open_checkpoint(path):
        pass


def test_locations_of_checkpoints(tmp_path):
    write_release(tmp_path / "run", name="model.ckpt-20")
    write_release(tmp_path / "older", name="model.ckpt-3")
    for path in (tmp_path / "older").glob("model.ckpt-3.*"):
        (tmp_path / "run" / path.name).write_bytes(path.read_bytes())
    assert tf1.find(tmp_path / "run") == tmp_path / "run" / "model.ckpt-20"
    for name in ("model.ckpt-3", "model.ckpt-3.index", "."):
        with open_checkpoint(tmp_path / "run" / name) as checkpoint:
            assert checkpoint.config == CONFIG
    # As in a run, configuration and vocabulary are in the parent directory.
    (tmp_path / "run" / "checkpoints").mkdir()
    for path in (tmp_path / "run").glob("model.ckpt-*"):
        path.replace(tmp_path / "run" / "checkpoints" / path.name)
    for name in ("checkpoints", "checkpoints/model.ckpt-3", "."):
        with open_checkpoint(tmp_path / "run" / name) as checkpoint:
            assert checkpoint.vocab_file == tmp_path / "run" / "vocab.txt"
    (tmp_path / "run" / "checkpoints" / "bert_model.ckpt.index").touch()
    assert tf1.find(tmp_path / "run" / "checkpoints").name == "model.ckpt-20"
    assert tf1.find(tmp_path / "nowhere") is None


@pytest.mark.parametrize("name", [".", "nowhere", "file.txt", "archive.zip"])
def test_no_checkpoint(tmp_path, name):
    (tmp_path / "file.txt").touch()
    with (
        pytest.raises(CheckpointError, match=r"is not a checkpoint: it .*; give a directory"),
        open_checkpoint(tmp_path / name),
    ):
        pass


def test_a_checkpoint_without_configuration_requires_a_given_one(tmp_path):
    write_release(tmp_path / "a")
    (tmp_path / "a" / "bert_config.json").unlink()
    with (
        pytest.raises(CheckpointError, match=r"has no bert_config\.json in its directory"),
        open_checkpoint(tmp_path / "a"),
    ):
        pass
    with open_checkpoint(tmp_path / "a", config=CONFIG) as checkpoint:
        assert checkpoint.missing == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 16}, r"word_embeddings of shape \[15, 8\], while its configuration implies \[16, 8\]"),
        ({"hidden_size": 10}, r"implies \[15, 10\]"),
        (
            {"max_position_embeddings": 512},
            r"position_embeddings of shape \[10, 8\], while its .* \[512, 8\]",
        ),
        ({"intermediate_size": 32}, r"layer_0/intermediate/dense/kernel of shape \[8, 12\]"),
        ({"num_hidden_layers": 1}, "more layers than num_hidden_layers 1"),
        ({"num_hidden_layers": 3}, "is missing 16 weights of the encoder, such as bert/encoder/layer_2/"),
    ],
)
def test_a_configuration_that_does_not_fit(tmp_path, changes, message):
    write_release(tmp_path / "a")
    text = dataclasses.replace(CONFIG, **changes).to_json()
    (tmp_path / "a" / "bert_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message), open_checkpoint(tmp_path / "a"):
        pass


@pytest.mark.parametrize("file", ["data-00000-of-00001", "index"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "missing"])
def test_damaged_tf1_checkpoints_are_named(tmp_path, file, damage):
    write_release(tmp_path / "a")
    path = tmp_path / "a" / f"bert_model.ckpt.{file}"
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-4] if damage == "truncated" else bytes([content[0] ^ 1]) + content[1:])
    message = "is not a checkpoint" if (file, damage) == ("index", "missing") else r"cannot be read \(.*copy it again"
    with pytest.raises(CheckpointError, match=message) as caught:
        convert(tmp_path / "a", tmp_path / "b", "native")
    assert "\n" not in str(caught.value)
    # No incomplete output is left.
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_object_based_checkpoint_is_refused(tmp_path):
    import tensorflow as tf

    tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(tmp_path / "bert_model.ckpt"))
    with (
        pytest.raises(CheckpointError, match="has no word embeddings of BERT"),
        open_checkpoint(tmp_path, config=CONFIG),
    ):
        pass


def test_a_damaged_record_is_named(tmp_path):
    write_release(tmp_path / "a")
    convert(tmp_path / "a", tmp_path / "b", "native")
    path = tmp_path / "b" / native.FILE_NAME
    content = json.loads(path.read_text(encoding="utf-8"))
    for text in ("{", "[]", "{}", json.dumps({**content, "format_version": 3}), json.dumps({**content, "task": "x"})):
        path.write_text(text, encoding="utf-8")
        with (
            pytest.raises(ValueError, match=r"beambert\.json|unknown task 'x'") as caught,
            open_checkpoint(tmp_path / "b"),
        ):
            pass
        assert type(caught.value).__module__.startswith("beambert.bert_model.")


def test_a_destination_with_something_in_it_is_left_alone(tmp_path):
    write_release(tmp_path / "a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "empty").mkdir()
    for name in ("full", "full/x", "a"):
        with pytest.raises(CheckpointError, match=r"already exists|is a file"):
            convert(tmp_path / "a", tmp_path / name, "tf1")
    convert(tmp_path / "a", tmp_path / "empty", "tf1")
    convert(tmp_path / "a", tmp_path / "new" / "folder", "tf1")
    assert Path(tmp_path / "new" / "folder" / "vocab.txt").is_file()


def test_labels_survive_in_native_and_hugging_face(tmp_path):
    write_release(tmp_path / "a", "classification", 3)
    convert(tmp_path / "a", tmp_path / "b", "native")
    path = tmp_path / "b" / native.FILE_NAME
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "labels": ["no", "may|be", "<b>"]}), encoding="utf-8")
    convert(tmp_path / "b", tmp_path / "c", "huggingface")
    assert json.loads((tmp_path / "c" / "config.json").read_text(encoding="utf-8"))["label2id"]["may|be"] == 1
    convert(tmp_path / "c", tmp_path / "d", "native")
    assert native.load(tmp_path / "d").labels == ("no", "may|be", "<b>")
    card = (tmp_path / "d" / "README.md").read_text(encoding="utf-8")
    assert "no, may\\|be, &lt;b>" in card
    path.write_text(json.dumps({**content, "labels": ["no"]}), encoding="utf-8")
    with (
        pytest.raises(CheckpointError, match="num_labels is 3, but there are 1 labels"),
        open_checkpoint(tmp_path / "b"),
    ):
        pass
