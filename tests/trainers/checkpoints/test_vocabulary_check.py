"""Vocabularies that do not have a token for each row of a model, and --added_tokens."""

import dataclasses
import json

import numpy as np
import pytest

from beambert import cli
from beambert.bert_model.checkpoints.reader import open_checkpoint
from beambert.bert_model.checkpoints.stored_tensors import CheckpointError
from beambert.common.tokenizer_files import AddedToken
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.checkpoints.vocabulary_check import drop_unused_rows, vocabulary_of
from tests.converted_models import CONFIG, PIECES, stored_values, write_release

N = len(PIECES)
WORDS = "bert/embeddings/word_embeddings"


def release(tmp_path, rows, **options):
    values = write_release(tmp_path / "model", config=dataclasses.replace(CONFIG, vocab_size=rows), **options)
    return tmp_path / "model", values


def run(capsys, *argv):
    """Run a command; return its exit code, standard output and standard error."""
    capsys.readouterr()
    code = cli.main([str(argument) for argument in argv])
    return code, *capsys.readouterr()


@pytest.mark.parametrize(("rows", "is_padding"), [(16, True), (64, True), (128, True), (17, False), (24, False)])
def test_only_rows_up_to_a_multiple_are_padding(rows, is_padding, tmp_path, capsys):
    assert N == 15
    model, _ = release(tmp_path, rows)
    code, out, err = run(capsys, "convert", model, tmp_path / "out", "--to", "native")
    if is_padding:
        assert code == 0
        assert f"Note      {rows - N} embedding rows without tokens dropped, of {rows}\n" in out
    else:
        assert code == 1
        assert f"has {N} tokens, but vocab_size of the model is {rows}; give the vocabulary of the model" in err


def test_slots_of_the_optimizer_lose_the_same_rows(tmp_path, capsys):
    model, values = release(tmp_path, 16, slots=True)
    assert run(capsys, "convert", model, tmp_path / "out", "--to", "tf1", "--optimizer", "keep")[0] == 0
    written = stored_values(tmp_path / "out" / "bert_model.ckpt")
    assert written.keys() == values.keys()
    for name, value in values.items():
        expected = value[:N] if WORDS in name or "predictions/output_bias" in name else value
        assert written[name].tobytes() == expected.tobytes(), name


def test_rows_that_the_configuration_does_not_have_are_dropped(tmp_path, capsys):
    model, values = release(tmp_path, 16, slots=True)
    config = model / "bert_config.json"
    config.write_text(CONFIG.to_json(), encoding="utf-8")
    code, out, _ = run(capsys, "convert", model, tmp_path / "out", "--to", "tf1", "--optimizer", "keep")
    assert code == 0
    assert f"Ignored   1: rows 15 to 15 of {WORDS}\n" in out
    written = stored_values(tmp_path / "out" / "bert_model.ckpt")
    for name in (WORDS, f"{WORDS}/adam_m", "cls/predictions/output_bias", "cls/predictions/output_bias/adam_v"):
        assert written[name].tobytes() == values[name][:N].tobytes()
    config.write_text(dataclasses.replace(CONFIG, vocab_size=7).to_json(), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"shape \[16, 8\], while its .* \[7, 8\]"), open_checkpoint(model):
        pass


def test_a_model_without_unused_rows_stays_the_same(tmp_path):
    model, _ = release(tmp_path, N)
    with open_checkpoint(model) as checkpoint:
        assert drop_unused_rows(checkpoint, vocabulary_of(checkpoint)) is checkpoint


def test_tokens_of_a_file_are_kept_whole(tmp_path, capsys):
    model, _ = release(tmp_path, N)
    (tmp_path / "tokens.txt").write_text("##b\n\ng\r\n", encoding="utf-8")
    flags = ("--to", "native", "--added_tokens", tmp_path / "tokens.txt")
    assert run(capsys, "convert", model, tmp_path / "out", *flags)[0] == 0
    vocabulary = Vocabulary.load(tmp_path / "out" / "vocab.txt")
    assert vocabulary.added_tokens == (AddedToken("g"), AddedToken("##b"))
    assert Tokenizer.load(tmp_path / "out").tokenize("aga##b") == ["a", "g", "a", "##b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"g\n[E1]\n", r"the model has no embedding for the token '[E1]', which is not in"),
        (b" \n\n", "has no tokens; give a UTF-8 file with one token per line"),
        (b"\xff\n", "is not UTF-8; give a UTF-8 file with one token per line"),
        (None, "No such file or directory; give a UTF-8 file with one token per line"),
    ],
)
def test_files_of_tokens_that_do_not_fit_are_one_line(content, message, tmp_path, capsys):
    model, _ = release(tmp_path, N)
    file = tmp_path / "tokens.txt"
    if content is not None:
        file.write_bytes(content)
    for command in (
        ("convert", model, tmp_path / "out", "--to", "native"),
        ("fill-mask", model, "a [MASK]"),
        (
            "features",
            "--init_checkpoint",
            model,
            "--input_file",
            model / "vocab.txt",
            "--output_file",
            tmp_path / "o.npz",
        ),
    ):
        code, _, err = run(capsys, *command, "--added_tokens", file)
        assert code == 1
        assert err.count("\n") == 1
        assert f"--added_tokens {file}" in err
        assert message in err


def test_an_added_token_without_embedding_is_named_and_added(tmp_path, capsys):
    model, values = release(tmp_path, N)
    (model / "added_tokens.json").write_text(json.dumps({"a.b": N, "bad": N + 1}), encoding="utf-8")
    code, _, err = run(capsys, "fill-mask", model, "a [MASK]")
    assert code == 1
    assert f"has no embedding for its added token 'a.b' (id {N}, while vocab_size is {N}); add it with" in err
    (tmp_path / "tokens.txt").write_text("bad\ng\n", encoding="utf-8")
    extended = tmp_path / "extended"
    flags = ("--added_tokens", tmp_path / "tokens.txt", "--output", extended)
    code, out, err = run(capsys, "extend-vocab", model, *flags)
    assert code == 0, err
    assert f"Rows      {N + 2}: {N} kept, 1 means of former tokens, 1 drawn\n" in out
    vocabulary = Vocabulary.load(extended / "vocab.txt")
    assert vocabulary.tokens == (*PIECES, "a.b", "bad")
    assert [token.content for token in vocabulary.added_tokens] == ["g", "a.b", "bad"]
    with open_checkpoint(extended) as checkpoint:
        words = checkpoint.tensors[WORDS].read()
    assert words[:N].tobytes() == values[WORDS].tobytes()
    # The row of "bad", which was [UNK], is drawn.
    mean = values[WORDS][[PIECES.index(token) for token in "a.b"]].mean(axis=0, dtype=np.float64)
    assert words[N].tobytes() == mean.astype(np.float32).tobytes()
