"""Test that every command reads the model that any command wrote, with unused rows and added tokens among others."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from beambert import cli
from beambert.bert_model.checkpoints import writer
from beambert.bert_model.checkpoints.reader import open_checkpoint
from beambert.bert_model.variable_names import TOKEN_VARIABLES
from beambert.common.tokenizer_files import AddedToken
from beambert.common.word_rules import WordRules
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.inference.model_loading import load_model
from tests.conftest import with_slow
from tests.converted_models import CONFIG, PIECES, write_release
from tests.trainers.pretraining_shards import LENGTH, VOCABULARY, write_dataset

ADDED = (AddedToken("[E1]"), AddedToken("ab c", single_word=True))
TOKENS = len(PIECES) + len(ADDED)
# Rows of a model, and added tokens in its vocabulary.
VARIANTS = {
    "plain": (len(PIECES), ()),
    "padded": (16, ()),
    "added": (TOKENS, ADDED),
    "padded and added": (24, ADDED),
}
TEXT = "a [e1] Ab c, b"
# Of the models that are slow to read, only the most general one is in the tests of every change.
GENERAL = ("huggingface", "padded and added")
SOURCES = with_slow(
    itertools.product(writer.KINDS, VARIANTS),
    [source for source in itertools.product(writer.KINDS, VARIANTS) if source != GENERAL],
)
HEADS = {"pretraining": None, "token_classification": ("O", "X")}


def vocabulary(variant: str) -> Vocabulary:
    added = VARIANTS[variant][1]
    return Vocabulary((*PIECES, *(token.content for token in added)), added_tokens=added)


def write_source(directory: Path, kind: str, variant: str, task: str = "pretraining") -> Path:
    """Write a model as another program does: with all of its rows."""
    labels = HEADS[task]
    config = dataclasses.replace(CONFIG, vocab_size=VARIANTS[variant][0])
    write_release(directory / "release", task, labels and len(labels), config=config)
    tokens = vocabulary(variant)
    content = (tokens.wordpieces if kind == "huggingface" else tokens).to_bytes()
    with open_checkpoint(directory / "release", task) as checkpoint:
        named = dataclasses.replace(checkpoint, labels=labels)
        writer.write(named, directory / "source", kind, content, WordRules(), added_tokens=tokens.added_by_id)
    return directory / "source"


def run(*argv: object) -> None:
    assert cli.main([str(argument) for argument in argv]) == 0


def weights(model: Path, task: str | None = None) -> dict[str, np.ndarray]:
    """Return the weights of a model, without rows that have no token."""
    with open_checkpoint(model, task) as checkpoint:
        values = {name: tensor.read() for name, tensor in checkpoint.tensors.items()}
        size = len(Vocabulary.load(checkpoint.vocab_file))
    return {name: value[:size] if name in TOKEN_VARIABLES else value for name, value in values.items()}


def check_model(model: Path, tokens: Vocabulary, expected: dict[str, np.ndarray], task: str | None = None) -> None:
    """Check the vocabulary and the weights of a model, and that each row has a token."""
    assert Vocabulary.load(model / "vocab.txt") == tokens
    with open_checkpoint(model, task) as checkpoint:
        assert checkpoint.config.vocab_size == len(tokens)
    assert Tokenizer.load(model).tokenize(TEXT) == Tokenizer(tokens).tokenize(TEXT)
    found = weights(model, task)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.parametrize("task", HEADS)
@pytest.mark.parametrize(("kind", "variant"), itertools.product(writer.KINDS, VARIANTS))
def test_a_converted_model_has_a_row_for_each_token(kind, variant, task, tmp_path, capsys):
    source, tokens = write_source(tmp_path, kind, variant, task), vocabulary(variant)
    expected = weights(source, task)
    of_kind = {}
    for target in writer.KINDS:
        run("convert", source, tmp_path / target, "--to", target, "--task", task)
        # A model of Hugging Face for tokens has no pooler.
        of_kind[target] = {
            name: value
            for name, value in expected.items()
            if target != "huggingface" or task == "pretraining" or "pooler" not in name
        }
        check_model(tmp_path / target, tokens, of_kind[target], task)
    unused = VARIANTS[variant][0] - len(tokens)
    assert (f"Note      {unused} embedding rows without tokens dropped" in capsys.readouterr().out) == bool(unused)
    # What a command wrote, it reads.
    for first, second in (("native", "tf1"), ("tf1", "huggingface"), ("huggingface", "native")):
        again = tmp_path / f"{first} to {second}"
        run("convert", tmp_path / first, again, "--to", second, "--task", task)
        common = {name: value for name, value in of_kind[second].items() if name in of_kind[first]}
        check_model(again, tokens, common, task)


def features_of(model: Path, folder: Path) -> list[tuple[str, list[list[float]]]]:
    """Return each token of TEXT with its hidden states, from `features`."""
    (folder / "texts.txt").write_text(f"{TEXT}\n", encoding="utf-8")
    output = folder / "features.jsonl"
    flags = ("--input_file", folder / "texts.txt", "--output_file", output, "--overwrite", "--max_seq_length", "10")
    run("features", *flags, "--init_checkpoint", model)
    [line] = output.read_text(encoding="utf-8").splitlines()
    return [(row["token"], [layer["values"] for layer in row["layers"]]) for row in json.loads(line)["features"]]


def read_by_all(model: Path, folder: Path, tokens: Vocabulary) -> None:
    """Read a pretrained model with every command."""
    features = features_of(model, folder)
    assert [token for token, _ in features] == ["[CLS]", *Tokenizer(tokens).tokenize(TEXT)[:8], "[SEP]"]
    assert load_model(model).config.vocab_size == len(tokens)
    run("fill-mask", model, "a [MASK] [E1]", "--top_k", len(tokens))
    (folder / "texts.txt").write_text(f"{TEXT}\n", encoding="utf-8")
    run("evaluate", model, "--texts", folder / "texts.txt", "--max_seq_length", "10")
    (folder / "words.txt").write_text("abb abb abb abb [E1]", encoding="utf-8")
    extended = folder / "extended"
    run("extend-vocab", model, "--input", folder / "words.txt", "--num_tokens", "1", "--output", extended)
    larger = Vocabulary((*tokens.tokens, "abb"), added_tokens=tokens.added_tokens)
    expected = weights(model)
    found = weights(extended)
    for name in TOKEN_VARIABLES:
        np.testing.assert_array_equal(found[name][:-1], expected[name])
    assert Vocabulary.load(extended / "vocab.txt") == larger
    for target in writer.KINDS:
        run("convert", extended, folder / f"extended {target}", "--to", target)
        check_model(folder / f"extended {target}", larger, found)
    assert [token for token, _ in features_of(extended, folder)] == [token for token, _ in features]


@pytest.mark.parametrize(("kind", "variant"), SOURCES)
def test_a_pretrained_model_is_read_by_every_command(kind, variant, tmp_path):
    source, tokens = write_source(tmp_path, kind, variant), vocabulary(variant)
    read_by_all(source, tmp_path, tokens)
    features = features_of(source, tmp_path)
    for target in writer.KINDS:
        run("convert", source, tmp_path / target, "--to", target)
        assert features_of(tmp_path / target, tmp_path) == features


def write_reviews(directory: Path) -> Path:
    directory.mkdir()
    rows = "".join(f"{'a' if number % 2 else '[E1]'} b,{number % 2}\n" for number in range(8))
    for name in ("train", "dev"):
        (directory / f"{name}.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    return directory


def finetune(model: Path, data: Path, output: Path) -> None:
    flags = ("--data_dir", data, "--text_column", "text", "--num_train_epochs", "1")
    flags += ("--max_seq_length", "8", "--train_batch_size", "4")
    run("finetune", "csv", *flags, "--init_checkpoint", model, "--output", output)


def predictions(model: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    run("predict", model, "[E1] b", "a ab c", "--json")
    return capsys.readouterr().out


@pytest.mark.parametrize(("kind", "variant"), SOURCES)
def test_a_fine_tuned_model_is_read_by_every_command(kind, variant, tmp_path, capsys):
    source, tokens = write_source(tmp_path, kind, variant), vocabulary(variant)
    data, tuned = write_reviews(tmp_path / "data"), tmp_path / "tuned"
    finetune(source, data, tuned)
    check_model(tuned, tokens, weights(tuned))
    before = predictions(tuned, capsys)
    for target in writer.KINDS:
        run("convert", tuned, tmp_path / target, "--to", target, "--task", "classification")
        check_model(tmp_path / target, tokens, weights(tuned), "classification")
        if target != "tf1":
            assert predictions(tmp_path / target, capsys) == before
    features_of(tuned, tmp_path)
    run("extend-vocab", tuned, "--replace", tuned / "vocab.txt", "--output", tmp_path / "extended")
    assert predictions(tmp_path / "extended", capsys) == before


@pytest.mark.slow
def test_a_fine_tuned_model_is_evaluated_and_fine_tuned_again(tmp_path):
    source, tokens = write_source(tmp_path, *GENERAL), vocabulary(GENERAL[1])
    data, tuned = write_reviews(tmp_path / "data"), tmp_path / "tuned"
    finetune(source, data, tuned)
    run("finetune", "csv", "--data_dir", data, "--text_column", "text", "--output", tuned, "--do_eval")
    finetune(tuned, data, tmp_path / "again")
    check_model(tmp_path / "again", tokens, weights(tmp_path / "again"))


def test_an_export_keeps_added_tokens_whole_or_is_refused(tmp_path, capsys):
    source = write_source(tmp_path, *GENERAL)
    for tokenizer in ("exact", "tensorflow_text"):
        assert cli.main(["export", str(source), str(tmp_path / "saved"), "--tokenizer", tokenizer]) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "the tokenizer in the graph cannot keep 2 added tokens" in said
        assert "such as '[E1]'; export token ids with --to onnx or --to litert" in said
    assert not (tmp_path / "saved").exists()
    run("export", source, tmp_path / "ids", "--to", "litert")
    tokens = vocabulary(GENERAL[1])
    assert Vocabulary.load(tmp_path / "ids" / "vocab.txt") == tokens
    assert Tokenizer.load(tmp_path / "ids").tokenize(TEXT) == Tokenizer(tokens).tokenize(TEXT)


@pytest.mark.slow
def test_pretraining_from_a_model_with_unused_rows_and_added_tokens(tmp_path, capsys):
    write_dataset(tmp_path / "data")
    added = {VOCABULARY.ids["da"]: AddedToken("da")}
    tokens = dataclasses.replace(VOCABULARY, added_tokens=tuple(added.values()))
    config = dataclasses.replace(CONFIG, vocab_size=len(tokens) + 8, max_position_embeddings=LENGTH)
    write_release(tmp_path / "release", config=config)
    with open_checkpoint(tmp_path / "release") as checkpoint:
        writer.write(checkpoint, tmp_path / "model", "huggingface", tokens.to_bytes(), WordRules(), added_tokens=added)
    flags = ("--data", tmp_path / "data", "--num_train_steps", "1", "--train_batch_size", "4", "--do_train")
    run("pretrain", *flags, "--init_checkpoint", tmp_path / "model", "--output", tmp_path / "run")
    said = capsys.readouterr()
    assert "Note      8 embedding rows without tokens dropped, of 40\n" in said.out
    assert "the data was built without 1 added token of" in said.err
    check_model(tmp_path / "run", tokens, weights(tmp_path / "run"))
    run("fill-mask", tmp_path / "run", "bada [MASK]")
    # The last added tokens of a model of Hugging Face are not in its vocab.txt, with which the data was built.
    last = {len(tokens): AddedToken("[E1]")}
    with open_checkpoint(tmp_path / "release") as checkpoint:
        writer.write(checkpoint, tmp_path / "last", "huggingface", tokens.to_bytes(), WordRules(), added_tokens=last)
    command = ["pretrain", *flags, "--init_checkpoint", tmp_path / "last", "--output", tmp_path / "other"]
    assert cli.main([str(argument) for argument in command]) == 1
    assert "build the data with --vocab_file vocab.txt of the native model to which" in capsys.readouterr().err
