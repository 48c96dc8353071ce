import json
import shutil

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from beambert.bert_model.checkpoints import hugging_face, hugging_face_config, writer
from beambert.bert_model.checkpoints.reader import open_checkpoint
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.common.word_rules import WordRules
from tests.conftest import ROOT
from tests.converted_models import CONFIG, PIECES, our_outputs, write_release

FIXTURES = ROOT / "tests" / "fixtures" / "hugging_face"
MODELS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
INPUTS = ("input_ids", "input_mask", "segment_ids")


@pytest.fixture(scope="module")
def recorded():
    """Inputs and outputs of every model of the fixture, as transformers computed them."""
    with np.load(FIXTURES / "outputs.npz") as arrays:
        values = {name: arrays[name] for name in arrays.files}
    return {model: {n.split("/")[1]: v for n, v in values.items() if n.startswith(f"{model}/")} for model in MODELS}


@pytest.fixture
def release(tmp_path):
    """A Hugging Face directory converted from a small TF1 release."""
    write_release(tmp_path / "release")
    with open_checkpoint(tmp_path / "release") as checkpoint:
        writer.write(checkpoint, tmp_path / "model", "huggingface", vocabulary(), WordRules())
    return tmp_path / "model"


def vocabulary():
    return "".join(f"{piece}\n" for piece in PIECES).encode()


def change_json(path, **values):
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **values}), encoding="utf-8")


@pytest.mark.parametrize("name", MODELS)
def test_our_outputs_are_those_of_transformers(name, recorded):
    inputs = {key: recorded[name][key] for key in INPUTS}
    ours = our_outputs(FIXTURES / name, inputs)
    assert ours.keys() == recorded[name].keys() - inputs.keys()
    for key, value in ours.items():
        np.testing.assert_allclose(value, recorded[name][key], rtol=0, atol=2e-5, err_msg=key)


def test_the_two_forms_of_gelu_are_told_apart(recorded, tmp_path):
    shutil.copytree(FIXTURES / "pretraining_erf", tmp_path / "wrong")
    change_json(tmp_path / "wrong" / "config.json", hidden_act="gelu_new")
    values = recorded["pretraining_erf"]
    ours = our_outputs(tmp_path / "wrong", {key: values[key] for key in INPUTS})
    assert np.abs(ours["prediction_logits"] - values["prediction_logits"]).max() > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_unchanged_when_written_again(name, recorded, tmp_path):
    with open_checkpoint(FIXTURES / name) as checkpoint:
        writer.write(checkpoint, tmp_path / "model", "huggingface", vocabulary(), WordRules())
        before = {key: tensor.read() for key, tensor in checkpoint.tensors.items()}
        described = (checkpoint.config, checkpoint.head, checkpoint.num_labels, checkpoint.labels)
    with open_checkpoint(tmp_path / "model") as again:
        assert (again.config, again.head, again.num_labels, again.labels) == described
        assert again.word_rules.do_lower_case is True
        for key, value in before.items():
            np.testing.assert_array_equal(again.tensors[key].read(), value)
        assert again.ignored == ()
    content = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    original = json.loads((FIXTURES / name / "config.json").read_text(encoding="utf-8"))
    for key in ("architectures", "hidden_act", "layer_norm_eps", "id2label", "model_type", "vocab_size"):
        assert content.get(key) == original.get(key), key


def test_the_file_is_as_transformers_wants_it(release):
    with safe_open(release / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
        names = set(file.keys())
        assert file.get_slice("bert.encoder.layer.0.intermediate.dense.weight").get_shape() == [12, 8]
    assert len(names) == 46
    assert not {name for name in names if "decoder" in name or "position_ids" in name}
    assert json.loads((release / "tokenizer_config.json").read_text(encoding="utf-8"))["model_max_length"] == 10
    assert (release / "vocab.txt").read_bytes() == vocabulary()


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ((), "BertForPreTraining"),
        (("cls/seq_relationship/",), "BertForMaskedLM"),
        (("cls/predictions/",), "BertForNextSentencePrediction"),
        (("cls/",), "BertModel"),
    ],
)
def test_the_class_depends_on_the_stored_heads(tmp_path, left_out, expected):
    write_release(tmp_path / "release")
    with open_checkpoint(tmp_path / "release") as checkpoint:
        kept = (
            [name for name in checkpoint.tensors if not name.startswith(left_out)] if left_out else checkpoint.tensors
        )
        assert hugging_face_config.architecture(checkpoint.head, kept) == expected


def test_other_spellings_are_read(release):
    """Read a BertModel without prefix, with gamma and beta, and with the position_ids that older versions saved."""
    with open_checkpoint(release) as checkpoint:
        expected = {name: tensor.read() for name, tensor in checkpoint.tensors.items()}
    tensors = load_file(release / "model.safetensors")
    old = {
        name.removeprefix("bert.")
        .replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("Norm.bias", "Norm.beta"): value
        for name, value in tensors.items()
        if name.startswith("bert.")
    }
    save_file({**old, "embeddings.position_ids": np.arange(10)[None]}, release / "model.safetensors")
    change_json(release / "config.json", architectures=["BertModel"])
    with open_checkpoint(release) as checkpoint:
        assert [name.split("/")[0] for name in checkpoint.missing] == ["cls"] * 7
        assert checkpoint.ignored == ()
        for name, tensor in checkpoint.tensors.items():
            np.testing.assert_array_equal(tensor.read(), expected[name])


def renamed(path, rename):
    """Rename the tensors of a model, and return their values by TF1 name before."""
    with open_checkpoint(path) as checkpoint:
        before = {name: tensor.read() for name, tensor in checkpoint.tensors.items()}
    tensors = load_file(path / "model.safetensors")
    save_file({rename(name): value for name, value in tensors.items()}, path / "model.safetensors")
    return before


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"module.{name}",
        lambda name: f"_orig_mod.{name}",
        lambda name: f"model.{name}",
        lambda name: f"bert.{name}",
        lambda name: f"module._orig_mod.model.{name}",
        lambda name: name.replace("bert.encoder.", "bert.encoder._orig_mod.").replace("cls.", "module.cls."),
        lambda name: f"model.{name.removeprefix('bert.')}",
    ],
)
def test_names_of_wrapped_models_are_read(release, rename):
    before = renamed(release, rename)
    with open_checkpoint(release) as checkpoint:
        assert checkpoint.tensors.keys() == before.keys()
        assert checkpoint.ignored == ()
        for name, value in before.items():
            np.testing.assert_array_equal(checkpoint.tensors[name].read(), value)


def test_an_unknown_prefix_of_names_is_named(release):
    renamed(release, lambda name: f"teacher.{name}")
    with pytest.raises(CheckpointError, match=r"under the unknown prefix 'teacher\.'"), open_checkpoint(release):
        pass


def test_a_decoder_is_read_if_it_is_tied_and_refused_if_not(release):
    path = release / "model.safetensors"
    tensors = load_file(path)
    words = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    save_file({**tensors, "cls.predictions.decoder.weight": words.copy()}, path)
    with open_checkpoint(release) as checkpoint:
        assert checkpoint.missing == ()
        assert checkpoint.ignored == ()
    save_file({**tensors, "cls.predictions.decoder.weight": words + 1}, path)
    with pytest.raises(CheckpointError, match="tied weights"), open_checkpoint(release):
        pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "roberta"}, "sets model_type to 'roberta', while BERT has 'bert'"),
        ({"is_decoder": True}, "sets is_decoder to True"),
        ({"position_embedding_type": "relative_key"}, "sets position_embedding_type"),
        ({"hidden_act": "silu"}, "sets hidden_act to 'silu'"),
        ({"architectures": ["BertLMHeadModel"]}, "has the unknown class BertLMHeadModel"),
        ({"hidden_size": 7}, "hidden_size 7 is not a multiple"),
        ({"id2label": {"0": "no", "2": "yes"}}, "the keys of id2label must be consecutive numbers from 0"),
        ({"hidden_size": "8"}, "invalid hidden_size '8'"),
    ],
)
def test_configurations_that_do_not_fit_are_refused_in_a_line(release, changes, message):
    change_json(release / "config.json", **changes)
    with pytest.raises(ValueError, match=message) as caught, open_checkpoint(release):
        pass
    assert type(caught.value).__module__.startswith("beambert.bert_model.")
    assert "\n" not in str(caught.value)


def test_damaged_safetensors_are_named(release):
    path = release / "model.safetensors"
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    shifted = whole[: 8 + header] + b"more" + whole[8 + header :]
    cut = (b"", whole[:4], whole[: 8 + header // 2], whole[:-1])
    for content in (*cut, b"\xff" * 8 + whole[8:], b"[]" + whole[2:], whole + b"\0", shifted):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"model\.safetensors is not a complete safetensors file"):
            hugging_face.read(release)
    moved = whole[8 : 8 + header].replace(b'"data_offsets":[0,', b'"data_offsets":[9,', 1)
    path.write_bytes(whole[:8] + moved + whole[8 + header :])
    with pytest.raises(CheckpointError, match=r"do not fit a tensor|starts at byte"):
        hugging_face.read(release)


def test_shards_stay_in_their_directory(tmp_path):
    shutil.copytree(FIXTURES / "classification", tmp_path / "model")
    index = tmp_path / "model" / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    change_json(index, weight_map={**weight_map, "classifier.bias": "../model-00001-of-00003.safetensors"})
    with pytest.raises(CheckpointError, match=r"refers to .* outside its directory"):
        hugging_face.read(tmp_path / "model")
    change_json(index, weight_map={**weight_map, "more": "model-00001-of-00003.safetensors"})
    with pytest.raises(CheckpointError, match="lists more, which no shard contains"):
        hugging_face.read(tmp_path / "model")
    (tmp_path / "model" / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"00002-of-00003\.safetensors cannot be read"):
        hugging_face.read(tmp_path / "model")


def test_the_vocabulary_may_be_a_tokenizer_json():
    with open_checkpoint(FIXTURES / "classification") as checkpoint:
        assert checkpoint.vocab_file == FIXTURES / "classification" / "tokenizer.json"
        assert checkpoint.word_rules.do_lower_case is False
        assert checkpoint.labels == ("no", "maybe", "yes")


def test_relu_and_epsilon_survive(tmp_path):
    import dataclasses

    config = dataclasses.replace(CONFIG, hidden_act="relu", layer_norm_eps=1e-6)
    write_release(tmp_path / "release", config=config)
    with open_checkpoint(tmp_path / "release") as checkpoint:
        writer.write(checkpoint, tmp_path / "model", "huggingface", vocabulary(), WordRules())
    assert hugging_face_config.describe(tmp_path / "model").config == config
