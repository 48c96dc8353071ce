import dataclasses
import json

import pytest

from beambert.bert_model.config import COMPACT_MODELS, PRESETS, RELEASED_VOCABULARIES, BertConfig, ConfigError, resolve


def test_released_base_config_is_the_base_preset(shared_data):
    released = BertConfig.load(shared_data / "tokenizer" / "bert_config.base-uncased.json")
    assert released == BertConfig.preset("base", vocab_size=30522)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tiny", (2, 128, 2, 512)),
        ("mini", (4, 256, 4, 1024)),
        ("small", (4, 512, 8, 2048)),
        ("medium", (8, 512, 8, 2048)),
        ("base", (12, 768, 12, 3072)),
        ("large", (24, 1024, 16, 4096)),
    ],
)
def test_presets_are_the_published_sizes(name, expected):
    config = BertConfig.preset(name, 100)
    assert expected == (
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.intermediate_size,
    )
    assert name in PRESETS


def test_json_round_trip(shared_data):
    config = BertConfig(vocab_size=7, hidden_size=12, num_attention_heads=3, attention_probs_dropout_prob=0.25)
    assert BertConfig.from_json(config.to_json()) == config
    released = (shared_data / "tokenizer" / "bert_config.base-uncased.json").read_text(encoding="utf-8")
    assert json.loads(config.to_json()).keys() == json.loads(released).keys()
    other = dataclasses.replace(config, hidden_act="gelu_erf", layer_norm_eps=1e-5)
    assert BertConfig.from_json(other.to_json()) == other


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "gelu_pytorch_tanh"])
def test_all_names_of_the_tanh_form_of_gelu_are_equivalent(name):
    assert BertConfig(vocab_size=9, hidden_act=name) == BertConfig(vocab_size=9)


def test_extras_of_released_files_are_ignored():
    extras = {"directionality": "bidi", "pooler_type": "first_token_transform", "pooler_num_fc_layers": 3}
    assert BertConfig.from_json(json.dumps({"vocab_size": 9, **extras})) == BertConfig(vocab_size=9)


def test_hugging_face_files_are_told_from_released_ones():
    # In Hugging Face's files, "gelu" is another function, so reading the file unchanged would give another model.
    with pytest.raises(ConfigError, match=r"^c.json is Hugging Face's config.json"):
        BertConfig.from_json('{"vocab_size": 9, "model_type": "bert", "hidden_act": "gelu"}', origin="c.json")


def test_compact_models():
    assert len(COMPACT_MODELS) == 24
    assert BertConfig.preset("L-4_H-256", 9) == BertConfig.preset("mini", 9)
    assert BertConfig.preset("L-12_H-768", 9) == BertConfig.preset("base", 9)
    assert BertConfig.preset("L-10_H-128", 9) == BertConfig(9, 128, 10, 2, 512)
    for name in COMPACT_MODELS:
        config = BertConfig.preset(name, 9)
        assert name == f"L-{config.num_hidden_layers}_H-{config.hidden_size}"
    with pytest.raises(ConfigError, match="did you mean 'L-4_H-256'"):
        BertConfig.preset("L4_H256", 9)


def test_the_released_uncased_vocabulary_has_the_size_in_the_table(shared_data):
    lines = (shared_data / "tokenizer" / "bert-base-uncased-vocab.txt").read_text(encoding="utf-8").splitlines()
    assert RELEASED_VOCABULARIES["uncased"] == (len(lines), True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"vocab_size": 9, "hiden_size": 12}, "the unknown key 'hiden_size' (did you mean 'hidden_size'?)"),
        ({"hidden_size": 12}, "no vocab_size"),
        ({"vocab_size": 9, "hidden_size": 10}, "not a multiple of num_attention_heads 12"),
        ({"vocab_size": 0}, "invalid vocab_size 0"),
        ({"vocab_size": 9.5}, "invalid vocab_size 9.5"),
        ({"vocab_size": True}, "invalid vocab_size True"),
        ({"vocab_size": 2**31}, "invalid vocab_size 2147483648: must be at most 2,147,483,647"),
        ({"vocab_size": 9, "num_hidden_layers": 1001}, "invalid num_hidden_layers 1001: must be at most 1,000"),
        ({"vocab_size": 9, "hidden_dropout_prob": 1.0}, "invalid hidden_dropout_prob 1.0"),
        ({"vocab_size": 9, "hidden_dropout_prob": "x"}, "invalid hidden_dropout_prob 'x'"),
        ({"vocab_size": 9, "initializer_range": 0.0}, "invalid initializer_range 0.0"),
        ({"vocab_size": 9, "hidden_act": "swish"}, "unknown hidden_act 'swish'; use one of gelu, gelu_erf, relu"),
        ({"vocab_size": 9, "layer_norm_eps": 0}, "invalid layer_norm_eps 0"),
        ([], "the content is an array: expected object"),
    ],
)
def test_bad_configurations_are_named(content, message):
    with pytest.raises(ConfigError) as caught:
        BertConfig.from_json(json.dumps(content), origin="x.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("x.json")
    assert "\n" not in str(caught.value)


def test_resolve(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(BertConfig(vocab_size=9).to_json(), encoding="utf-8")
    assert resolve("base", 9) == resolve(str(path), 9)
    with pytest.raises(ConfigError, match=r"vocab_size 9, but vocab.txt of the data has 10 tokens"):
        resolve(str(path), 10)
    with pytest.raises(ConfigError, match="did you mean 'tiny'"):
        resolve("tinny", 9)
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve(str(tmp_path / "none.json"), 9)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="not valid JSON"):
        resolve(str(path), 9)
