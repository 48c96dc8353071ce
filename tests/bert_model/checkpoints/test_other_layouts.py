"""Test SavedModels, TensorFlow Hub modules, Model Garden checkpoints and KerasHub presets.

The fixtures were written by the libraries of these formats.
"""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert import cli
from beambert.bert_model.checkpoints import tensor_bundle, tf1
from beambert.bert_model.checkpoints.reader import open_checkpoint
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.bert_model.config import BertConfig, ConfigError
from tests.conftest import ROOT
from tests.converted_models import CONFIG, our_outputs, write_release

# Written by tests/parity/make_layouts_fixture.py.
FIXTURES = ROOT / "tests" / "fixtures" / "layouts"
NAMES = ("hub_masked_lm", "hub_encoder", "model_garden_checkpoint", "keras_hub")
VOCABULARY = FIXTURES / "hub_encoder" / "assets" / "vocab.txt"


def recorded(name):
    with np.load(FIXTURES / f"{'keras_hub' if name == 'keras_hub' else 'model_garden'}.npz") as arrays:
        return {key: arrays[key] for key in arrays.files}


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("hub_masked_lm", {"prediction_logits": "prediction_logits", "pooler_output": "encoder_pooler_output"}),
        ("hub_encoder", {"pooler_output": "encoder_pooler_output"}),
        # Its next-sentence head has a pooler of its own.
        (
            "model_garden_checkpoint",
            {"prediction_logits": "prediction_logits", "seq_relationship_logits": "next_sentence_logits"},
        ),
        ("keras_hub", {"prediction_logits": "prediction_logits", "pooler_output": "pooler_output"}),
    ],
)
def test_our_outputs_are_those_of_the_library(name, names):
    values = recorded(name)
    ours = our_outputs(FIXTURES / name, values)
    # KerasHub's masked-LM head has the erf form of GELU and an epsilon of 1e-5, unlike BERT.
    tolerance = {"prediction_logits": 1e-3} if name == "keras_hub" else {}
    for key, its_key in {"last_hidden_state": "last_hidden_state", **names}.items():
        # Padding has no defined output.
        shown = values["input_mask"].astype(bool) if values[its_key].ndim == 3 else slice(None)
        np.testing.assert_allclose(
            ours[key][shown], values[its_key][shown], rtol=0, atol=tolerance.get(key, 5e-5), err_msg=key
        )


@pytest.mark.parametrize("name", NAMES)
def test_configuration_heads_and_vocabulary_of_a_layout(name):
    with open_checkpoint(FIXTURES / name) as checkpoint:
        assert checkpoint.config == BertConfig(
            vocab_size=40,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=24,
            max_position_embeddings=16,
        )
        heads = {missing.split("/")[1] for missing in checkpoint.missing}
        assert (
            heads
            == {
                "hub_masked_lm": {"seq_relationship"},
                "hub_encoder": {"predictions", "seq_relationship"},
                "model_garden_checkpoint": set(),
                "keras_hub": {"seq_relationship"},
            }[name]
        )
        assert checkpoint.word_rules.do_lower_case is (None if name == "model_garden_checkpoint" else True)
        if name != "model_garden_checkpoint":
            assert checkpoint.vocab_file.read_bytes() == VOCABULARY.read_bytes()
            assert checkpoint.ignored == ()


@pytest.mark.parametrize("name", NAMES)
def test_commands_read_every_layout(name, tmp_path, capsys):
    model = str(FIXTURES / name)
    vocabulary = ["--vocab_file", str(VOCABULARY)] if name == "model_garden_checkpoint" else []
    assert cli.main(["convert", model, str(tmp_path / "converted"), "--to", "tf1", *vocabulary]) == 0
    values = recorded(name)
    converted, direct = (our_outputs(path, values) for path in (tmp_path / "converted", FIXTURES / name))
    np.testing.assert_array_equal(converted["last_hidden_state"], direct["last_hidden_state"])
    (tmp_path / "texts.txt").write_text("a b cd\n")
    flags = ["--input_file", str(tmp_path / "texts.txt"), "--output_file", str(tmp_path / "features.jsonl")]
    flags += ["--max_seq_length", "16", "--init_checkpoint", model, *vocabulary]
    assert cli.main(["features", *flags]) == 0
    capsys.readouterr()
    code = cli.main(["fill-mask", model, "a [MASK]", *vocabulary])
    said = capsys.readouterr()
    assert code == (1 if name == "hub_encoder" else 0), said.err
    if code:
        assert said.err.count("\n") == 1
        assert "masked-LM head" in said.err


@pytest.mark.parametrize("scope", ["module/", ""])
def test_a_hub_module_of_the_released_code(scope, tmp_path):
    config = BertConfig(50, 128, 1, 2, 256, max_position_embeddings=20)
    write_release(tmp_path / "release", config=config)
    stored = tf1.read(tmp_path / "release" / "bert_model.ckpt")
    directory = tmp_path / "hub"
    (directory / "variables").mkdir(parents=True)
    tf1.write(directory / "variables" / "variables", {f"{scope}{name}": tensor for name, tensor in stored.items()})
    (directory / "saved_model.pb").touch()
    with open_checkpoint(directory) as checkpoint:
        assert checkpoint.config == config
        assert checkpoint.missing == checkpoint.ignored == ()
        for name, tensor in checkpoint.tensors.items():
            np.testing.assert_array_equal(tensor.read(), stored[name].read(), err_msg=name)


def test_heads_of_a_hub_module_are_not_guessed(tmp_path):
    # No released model has a hidden size of 8.
    write_release(tmp_path / "release")
    directory = tmp_path / "hub"
    (directory / "variables").mkdir(parents=True)
    tf1.write(directory / "variables" / "variables", tf1.read(tmp_path / "release" / "bert_model.ckpt"))
    (directory / "saved_model.pb").touch()
    with pytest.raises(CheckpointError, match=r"number of attention heads.*add bert_config.json to its directory"):
        open_checkpoint(directory).__enter__()
    # A configuration can be given. One in the directory takes precedence, as for every other layout.
    with open_checkpoint(directory, config=CONFIG) as checkpoint:
        assert checkpoint.config == CONFIG
    shutil.copy(tmp_path / "release" / "bert_config.json", directory)
    for config in (None, dataclasses.replace(CONFIG, num_attention_heads=1)):
        with open_checkpoint(directory, config=config) as checkpoint:
            assert checkpoint.config == CONFIG


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("keras_hub", "model.weights.h5", b"\x89HDF\r\n", "is not a complete HDF5 file"),
        ("keras_hub", "config.json", b'{"class_name": "GPT2Backbone"}', "describes a GPT2Backbone; use a preset"),
        ("keras_hub", "config.json", b'{"class_name": "BertBackbone", "config": {}}', "copy it again"),
        ("keras_hub", "tokenizer.json", b"[", "tokenizer.json: "),
        ("hub_encoder", "variables/variables.index", b"", "it is corrupt or incomplete, copy it again"),
        ("hub_encoder", "variables/variables.data-00000-of-00001", b"", "is truncated"),
    ],
)
def test_a_corrupt_file_is_a_one_line_error(name, file, content, message, tmp_path):
    shutil.copytree(FIXTURES / name, tmp_path / "model")
    (tmp_path / "model" / file).write_bytes(content)

    def read():
        with open_checkpoint(tmp_path / "model") as checkpoint:
            return [tensor.read() for tensor in checkpoint.tensors.values()]

    with pytest.raises(CheckpointError, match=message) as caught:
        read()
    assert "\n" not in str(caught.value)


def test_an_invalid_configuration_names_its_file(tmp_path):
    shutil.copytree(FIXTURES / "keras_hub", tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    content = json.loads(path.read_text())
    content["config"]["num_heads"] = 3
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"config.json: hidden_size 16 is not a multiple"):
        open_checkpoint(tmp_path / "model").__enter__()


def test_any_changed_byte_of_an_object_graph_is_found(tmp_path):
    shutil.copytree(FIXTURES / "hub_encoder", tmp_path / "model")
    prefix = tmp_path / "model/variables/variables"
    graph = tensor_bundle.read_bytes(prefix, "_CHECKPOINTABLE_OBJECT_GRAPH")
    data = prefix.with_name("variables.data-00000-of-00001")
    content = data.read_bytes()
    start = content.index(graph[:100])
    for position in (start - 5, start - 1, start, start + len(graph) // 2, start + len(graph) - 1):
        changed = bytearray(content)
        changed[position] ^= 1
        data.write_bytes(changed)
        with pytest.raises(CheckpointError, match="it is corrupt or incomplete"):
            tf1.read(prefix)


def test_another_saved_model_is_a_one_line_error(tmp_path):
    import tensorflow as tf

    module = tf.Module()
    module.weight = tf.Variable(tf.ones([3, 4]))
    tf.saved_model.save(module, str(tmp_path / "other"))
    with pytest.raises(CheckpointError, match="does not have the variables of a BERT encoder"):
        open_checkpoint(tmp_path / "other").__enter__()


@given(value=st.one_of(st.binary(max_size=300), st.sampled_from([b"", b"x" * 127, b"x" * 128, b"x" * 70_000])))
def test_strings_are_those_that_tensorflow_writes(value, tmp_path_factory):
    import tensorflow as tf

    prefix = tmp_path_factory.mktemp("string") / "a"
    names, tensors = ["text", "texts"], [tf.constant(value), tf.constant([value])]
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=["", ""], tensors=tensors)
    assert tensor_bundle.read_bytes(prefix, "text") == value
    for name in ("texts", "missing"):
        with pytest.raises(tensor_bundle.BundleError, match="is not a string"):
            tensor_bundle.read_bytes(prefix, name)
