import dataclasses
import json
import subprocess
import sys

import pytest

from bert_model.config import PRESETS, BertConfig, ConfigError, resolve


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


def test_json_round_trip():
    config = BertConfig(vocab_size=7, hidden_size=12, num_attention_heads=3, attention_probs_dropout_prob=0.25)
    assert BertConfig.from_json(config.to_json()) == config
    assert json.loads(config.to_json()) == dataclasses.asdict(config)


def test_extras_of_released_files_are_ignored():
    extras = {"directionality": "bidi", "pooler_type": "first_token_transform", "architectures": ["X"]}
    fixed = {"layer_norm_eps": 1e-12, "position_embedding_type": "absolute", "hidden_act": "gelu_new"}
    config = BertConfig.from_json(json.dumps({"vocab_size": 9, **extras, **fixed}))
    assert config.vocab_size == 9


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"vocab_size": 9, "hiden_size": 12}, "'hiden_size' that BERT does not know (did you mean 'hidden_size'?)"),
        ({"hidden_size": 12}, "no vocab_size"),
        ({"vocab_size": 9, "hidden_size": 10}, "not a multiple of num_attention_heads 12"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"vocab_size": 9.5}, "vocab_size is 9.5"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"vocab_size": 9, "hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0"),
        ({"vocab_size": 9, "hidden_dropout_prob": "x"}, "hidden_dropout_prob is 'x'"),
        ({"vocab_size": 9, "initializer_range": 0.0}, "initializer_range is 0.0"),
        ({"vocab_size": 9, "hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"vocab_size": 9, "layer_norm_eps": 1e-5}, "sets layer_norm_eps to 1e-05"),
        ([], "holds no JSON object"),
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
    with pytest.raises(ConfigError, match=r"vocab_size 9, the data's vocab.txt has 10 pieces"):
        resolve(str(path), 10)
    with pytest.raises(ConfigError, match="did you mean 'tiny'"):
        resolve("tinny", 9)
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve(str(tmp_path / "none.json"), 9)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="not valid JSON"):
        resolve(str(path), 9)


def test_config_and_names_need_no_keras():
    program = (
        "import sys, bert_model.config, bert_model.names; print('keras' in sys.modules, 'tensorflow' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False"]
