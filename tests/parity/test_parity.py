"""Compare our models with those of transformers, converted in both directions; the required tolerance is 1e-4.

The measured differences are printed; use -s to see them.
"""

import json

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers
from tiny_models import LENGTH, MODELS, PIECES, outputs, random_inputs, random_model, write_vocabulary

from beambert import cli
from beambert.bert_model.checkpoints import tf1
from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads import ALL_HEADS
from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests.converted_models import assert_same_bytes, our_outputs, stored_values

CONFIG = BertConfig(
    vocab_size=len(PIECES),
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=LENGTH + 2,
)
TASKS = {
    "pretraining": (None, "BertForPreTraining"),
    "classification": (4, "BertForSequenceClassification"),
    "regression": (1, "BertForSequenceClassification"),
    "span": (2, "BertForQuestionAnswering"),
    "token_classification": (5, "BertForTokenClassification"),
    "multiple_choice": (1, "BertForMultipleChoice"),
}


def convert(source, destination, kind, *flags):
    assert cli.main(["convert", str(source), str(destination), "--to", kind, *flags]) == 0


def assert_close(what, ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in sorted(ours):
        difference = np.abs(ours[name] - theirs[name]).max()
        print(f"{what:<40} {name:<24} largest |difference| {difference:.1e} of {np.abs(theirs[name]).max():.1f}")
        assert difference < 1e-4, name


def with_encoder_outputs(model, inputs):
    results = outputs(model, inputs)
    if isinstance(model, transformers.BertForPreTraining):
        encoded = outputs(model.bert, inputs)
        results |= {name: encoded[name] for name in ("last_hidden_state", "pooler_output")}
    return results


def loaded(path, kind):
    """Load a model with transformers, and assert that nothing is missing or unexpected."""
    model, information = getattr(transformers, kind).from_pretrained(path, output_loading_info=True)
    problems = {key: sorted(map(str, value)) for key, value in information.items() if value}
    assert problems == {}
    return model.eval()


def write_release(directory, task, num_labels, hidden_act="gelu"):
    directory.mkdir()
    generator = np.random.default_rng(3)
    values = {
        name.tf1: (generator.normal(0, 0.3, name.shape) + name.tf1.endswith("gamma")).astype(np.float32)
        for name in ALL_HEADS[task].variable_names(CONFIG, num_labels)
    }
    names = sorted(values)
    tf.raw_ops.SaveV2(
        prefix=str(directory / "bert_model.ckpt"),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[values[name] for name in names],
    )
    content = {**json.loads(CONFIG.to_json()), "hidden_act": hidden_act}
    (directory / "bert_config.json").write_text(json.dumps(content), encoding="utf-8")
    write_vocabulary(directory)
    return values


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_erf"])
@pytest.mark.parametrize("task", TASKS)
def test_tf1_to_native_to_transformers_and_back(tmp_path, task, hidden_act):
    num_labels, kind = TASKS[task]
    values = write_release(tmp_path / "tf1", task, num_labels, hidden_act)
    convert(tmp_path / "tf1", tmp_path / "native", "native", "--task", task)
    convert(tmp_path / "native", tmp_path / "huggingface", "huggingface")
    model = loaded(tmp_path / "huggingface", kind)
    assert model.config.hidden_act == {"gelu": "gelu_new", "gelu_erf": "gelu"}[hidden_act]
    inputs = random_inputs(task)
    assert_close(f"{task}, {hidden_act}", our_outputs(tmp_path / "native", inputs), with_encoder_outputs(model, inputs))
    # The model that transformers saves is converted back bit for bit, except for a pooler that its class does not have.
    model.save_pretrained(tmp_path / "saved")
    write_vocabulary(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "again", "tf1")
    again = stored_values(tf1.find(tmp_path / "again"))
    assert_same_bytes(again, {name: value for name, value in values.items() if name in again})
    assert len(values) - len(again) in (0, 2 if task in ("span", "token_classification") else 0)


@pytest.mark.parametrize("name", MODELS)
def test_transformers_to_native(tmp_path, name):
    model = random_model(name)
    model.save_pretrained(tmp_path / "model")
    write_vocabulary(tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "native", "native")
    inputs = random_inputs(name)
    assert_close(
        f"from transformers, {name}", our_outputs(tmp_path / "native", inputs), with_encoder_outputs(model, inputs)
    )
    if name == "classification":
        convert(tmp_path / "native", tmp_path / "back", "huggingface")
        assert loaded(tmp_path / "back", type(model).__name__).config.id2label == {0: "no", 1: "maybe", 2: "yes"}


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM", "BertForNextSentencePrediction"])
def test_parts_of_a_pretraining_model(tmp_path, kind):
    torch.manual_seed(0)
    config = transformers.BertConfig(**random_model("span").config.to_dict())
    model = getattr(transformers, kind)(config).eval()
    model.save_pretrained(tmp_path / "model")
    write_vocabulary(tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "native", "native")
    convert(tmp_path / "native", tmp_path / "back", "huggingface")
    again = loaded(tmp_path / "back", kind)
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


RULES = [
    WordRules(strip_accents=False),
    WordRules(do_lower_case=False, strip_accents=True),
    WordRules(tokenize_chinese_chars=False),
]


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: rules.summary)
def test_word_rules_are_those_of_transformers(tmp_path, rules):
    khmer, thai = "\u1797\u17b6\u179f\u17b6\u1781\u17d2\u1798\u17c2", "\u0e17\u0e35\u0e48"
    text = f"\u00c9t\u00e9 e\u0301 \u6771\u4eac\u306f {khmer} {thai} \ud55c\uae00"
    words = [word for each in [*RULES, WordRules(), WordRules(False)] for word in split_words(text, each)]
    characters = sorted(set("".join(words)))
    pieces = dict.fromkeys([*SPECIAL_TOKENS, *characters, *(f"##{character}" for character in characters)])
    vocabulary = Vocabulary(tuple(pieces))
    write_release(tmp_path / "tf1", "pretraining", None)
    convert(tmp_path / "tf1", tmp_path / "model", "huggingface", *rules.flags.split())
    (tmp_path / "model" / "vocab.txt").write_bytes(vocabulary.to_bytes())
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert Tokenizer.load(tmp_path / "model").rules == rules
    assert theirs.tokenize(text) == Tokenizer.load(tmp_path / "model").tokenize(text)
    theirs.save_pretrained(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").rules == rules
    # tokenizer.json alone also records the rules.
    (tmp_path / "saved" / "tokenizer_config.json").unlink()
    assert Tokenizer.load(tmp_path / "saved").rules == rules


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_auto_classes_find_model_and_tokenizer(tmp_path, do_lower_case):
    write_release(tmp_path / "tf1", "pretraining", None)
    flags = ["--do_lower_case", str(do_lower_case).lower()]
    convert(tmp_path / "tf1", tmp_path / "model", "huggingface", *flags)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    pieces = tokenizer.tokenize("A be É [MASK]")
    assert pieces == (["a", "b", "##e", "e", "[MASK]"] if do_lower_case else ["[UNK]", "b", "##e", "[UNK]", "[MASK]"])
    encoded = tokenizer("b", "c")
    assert encoded["input_ids"] == [2, PIECES.index("b"), 3, PIECES.index("c"), 3]
    assert tokenizer.model_max_length == CONFIG.max_position_embeddings
    assert isinstance(
        transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model"), transformers.BertForMaskedLM
    )
    fill = transformers.pipeline("fill-mask", model=str(tmp_path / "model"), top_k=3)
    theirs = [(answer["token_str"], answer["score"]) for answer in fill("b [MASK] c")]
    from beambert.trainers.commands.fill_mask import fill_masks

    ours = [(filling.token, filling.probability) for filling in fill_masks(tmp_path / "model", ["b [MASK] c"], 3)[0][0]]
    assert [piece for piece, _ in ours] == [piece for piece, _ in theirs]
    assert [probability for _, probability in ours] == pytest.approx([score for _, score in theirs], abs=1e-4)
