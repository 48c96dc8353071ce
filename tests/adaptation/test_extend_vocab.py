import json
from pathlib import Path

import numpy as np
import pytest

from beambert import cli
from beambert.bert_model.checkpoints.reader import open_checkpoint
from beambert.tokenizer import Tokenizer
from beambert.trainers.commands.fill_mask import fill_masks
from tests.conftest import ROOT
from tests.converted_models import PIECES, stored_values, write_release
from tests.tokenizer.reference_tokenizer import published_pieces

FIXTURES = ROOT / "tests" / "fixtures" / "hugging_face"
WORDS = "bert/embeddings/word_embeddings"
BIAS = "cls/predictions/output_bias"
# In the vocabulary of the release: "abb" is a ##b ##b, "bab" is b ##a ##b, "cb" is c ##b.
TEXT = "Abb abb bab. Cb abba,\nabb cb d e\n\nbab cb cb f"


@pytest.fixture
def release(tmp_path):
    values = write_release(tmp_path / "uncased")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return values


def extend(capsys, *argv):
    """Run the command; return its exit code, standard output and standard error."""
    capsys.readouterr()
    code = cli.main(["extend-vocab", *map(str, argv)])
    return code, *capsys.readouterr()


def stored(model):
    with open_checkpoint(model) as checkpoint:
        return checkpoint.config, {name: tensor.read() for name, tensor in checkpoint.tensors.items()}


def vocabulary(model: Path) -> list[str]:
    return (model / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]


def test_the_words_that_are_split_most_are_added(release, tmp_path, capsys):
    argv = [tmp_path / "uncased", "--input", tmp_path / "text.txt", "--num_tokens", "2", "--min_count", "1"]
    code, said, err = extend(capsys, *argv, "--output", tmp_path / "new")
    assert (code, err) == (0, "")
    # Costs: abb 3 * 2, then bab 2 * 2 and cb 4 * 1.
    assert vocabulary(tmp_path / "new") == [*PIECES, "abb", "bab"]
    assert said.splitlines()[1:] == [
        "Note      uncased, inferred from the vocabulary; --do_lower_case overrides it",
        "Text      1 file, 15 words, 9 distinct",
        "Before    2.1333 tokens per word, 26.7% are one token, 6.667% [UNK]",
        "Added     2 words: abb (a ##b ##b), bab (b ##a ##b)",
        "After     1.3333 tokens per word, 60.0% are one token, 6.667% [UNK]",
        "Changed   1 other word, fewer tokens, such as abba: a ##b ##b ##a -> abb ##a",
        "Rows      17: 15 kept, 2 means of former tokens, 0 drawn",
        f"Wrote     native model {tmp_path / 'new'}: 46 tensors",
    ]
    config, values = stored(tmp_path / "new")
    assert config.vocab_size == len(PIECES) + 2
    assert values.keys() == release.keys()
    for name, value in values.items():
        former = value[: len(PIECES)] if name in (WORDS, BIAS) else value
        assert former.tobytes() == release[name].tobytes(), name
    for row, tokens in ((-2, ["a", "##b", "##b"]), (-1, ["b", "##a", "##b"])):
        ids = [PIECES.index(token) for token in tokens]
        for name in (WORDS, BIAS):
            mean = release[name][ids].mean(axis=0, dtype=np.float64).astype(np.float32)
            np.testing.assert_array_equal(values[name][row], mean)
    assert (tmp_path / "new" / "new_tokens.tsv").read_text(encoding="utf-8") == (
        "id\ttoken\tcount\tformer_tokens\n15\tabb\t3\ta ##b ##b\n16\tbab\t2\tb ##a ##b\n"
    )
    record = json.loads((tmp_path / "new" / "beambert.json").read_text(encoding="utf-8"))
    assert record["origin"] == "2 words added to the tf1 model uncased"
    assert {path.name for path in tmp_path.iterdir()} == {"uncased", "text.txt", "new"}
    assert Tokenizer.load(tmp_path / "new").tokenize("ABB bab ba") == ["abb", "bab", "b", "##a"]


def test_unused_tokens_are_replaced_and_the_size_stays(tmp_path, capsys):
    write_release(tmp_path / "uncased")
    tokens = [*PIECES[:5], "[unused7]", "[unused0]", *PIECES[7:]]
    (tmp_path / "uncased" / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    (tmp_path / "text.txt").write_text("ccc cdd cc cc", encoding="utf-8")
    argv = [tmp_path / "uncased", "--input", tmp_path / "text.txt", "--min_count", "1", "--fill_unused"]
    for number in ("3", "9999999"):
        code, _, err = extend(capsys, *argv, "--num_tokens", number, "--output", tmp_path / "new")
        assert code == 1
        assert err == (
            f"beambert extend-vocab: error: invalid --num_tokens {number}: {tmp_path}/uncased/vocab.txt has 2 "
            "[unusedN] tokens; lower --num_tokens to 2 or less, or omit --fill_unused\n"
        )
    assert extend(capsys, *argv, "--num_tokens", "2", "--output", tmp_path / "new")[0] == 0
    assert vocabulary(tmp_path / "new") == [*tokens[:5], "cc", "ccc", *tokens[7:]]
    former, values = stored_values(tmp_path / "uncased" / "bert_model.ckpt"), stored(tmp_path / "new")[1]
    kept = [number for number in range(15) if number not in (5, 6)]
    assert values[WORDS][kept].tobytes() == former[WORDS][kept].tobytes()
    # "ccc" and "cc" were [UNK]: their rows are drawn.
    assert not np.array_equal(values[WORDS][5], values[WORDS][6])


def test_a_hugging_face_model_with_rows_without_tokens(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("Tea tea sunrise rain, tea sunrise rain\n", encoding="utf-8")
    model = FIXTURES / "pretraining_erf"
    former = stored(model)[1]
    tokens = vocabulary(model)
    argv = [model, "--input", tmp_path / "text.txt", "--num_tokens", "2", "--min_count", "2"]
    for kind in ("huggingface", "tf1", "native"):
        assert extend(capsys, *argv, "--output", tmp_path / kind, "--to", kind)[0] == 0
        assert vocabulary(tmp_path / kind)[: len(tokens)] == tokens
        config, values = stored(tmp_path / kind)
        assert config.vocab_size == len(values[WORDS]) == len(tokens) + 2
        assert values[WORDS][: len(tokens)].tobytes() == former[WORDS][: len(tokens)].tobytes()
        assert values.keys() == former.keys()
        [[best]] = fill_masks(tmp_path / kind, ["a [MASK] tea"], top_k=len(tokens) + 2)
        assert {filling.token for filling in best} == set(vocabulary(tmp_path / kind))
        assert sum(filling.probability for filling in best) == pytest.approx(1)
    # `convert` keeps the rows too.
    for source, kind in (("native", "tf1"), ("tf1", "huggingface"), ("huggingface", "native")):
        assert cli.main(["convert", str(tmp_path / source), str(tmp_path / f"{kind}2"), "--to", kind]) == 0
        assert stored(tmp_path / f"{kind}2")[1][WORDS].tobytes() == values[WORDS].tobytes()


def test_a_fine_tuned_model_keeps_its_head(tmp_path, capsys):
    values = write_release(tmp_path / "spans", "span")
    (tmp_path / "text.txt").write_text("abb abb", encoding="utf-8")
    argv = [tmp_path / "spans", "--input", tmp_path / "text.txt", "--num_tokens", "1", "--min_count", "2"]
    assert extend(capsys, *argv, "--output", tmp_path / "new", "--to", "tf1")[0] == 0
    found = stored_values(tmp_path / "new" / "bert_model.ckpt")
    assert found.keys() == values.keys()
    assert all(found[name].tobytes() == values[name].tobytes() for name in values if name != WORDS)
    assert len(found[WORDS]) == len(PIECES) + 1


def test_another_vocabulary_takes_over_the_rows_of_its_tokens(release, tmp_path, capsys):
    tokens = ["[PAD]", "b", "##b", "[MASK]", "[CLS]", "[SEP]", "[UNK]", "ab", "##ab", "aba", "zz", "[unused0]", "##c"]
    (tmp_path / "other.txt").write_text("\n".join(tokens), encoding="utf-8")
    argv = [tmp_path / "uncased", "--replace", tmp_path / "other.txt", "--output", tmp_path / "new"]
    code, said, _ = extend(capsys, *argv)
    assert code == 0
    assert "Rows      13: 7 kept, 4 means of former tokens, 2 drawn" in said
    values = stored(tmp_path / "new")[1]
    sources = [published_pieces(token, set(PIECES)) for token in ("ab", "aba")]
    for number, token in enumerate(tokens):
        if token in PIECES:
            for name in (WORDS, BIAS):
                assert values[name][number].tobytes() == release[name][PIECES.index(token)].tobytes()
    # "##c" can only be spelled as "c".
    for number, pieces in zip((7, 8, 9, 12), (sources[0], ["##a", "##b"], sources[1], ["c"]), strict=True):
        mean = release[WORDS][[PIECES.index(piece) for piece in pieces]].mean(axis=0, dtype=np.float64)
        np.testing.assert_array_equal(values[WORDS][number], mean.astype(np.float32))
    code, said, _ = extend(capsys, *argv[:-1], tmp_path / "measured", "--input", tmp_path / "text.txt")
    assert code == 0
    assert "Before    2.1333 tokens per word" in said
    assert (tmp_path / "measured/model.ckpt.index").read_bytes() == (tmp_path / "new/model.ckpt.index").read_bytes()


def test_a_cased_vocabulary_in_place_of_an_uncased_one(release, tmp_path, capsys):
    tokens = [*PIECES[:5], "A", "Ba", "##B"]
    (tmp_path / "cased.txt").write_text("\n".join(tokens), encoding="utf-8")
    argv = [tmp_path / "uncased", "--replace", tmp_path / "cased.txt", "--output", tmp_path / "new"]
    assert "Note      cased, inferred" in extend(capsys, *argv)[1]
    values = stored(tmp_path / "new")[1][WORDS]
    assert values[5].tobytes() == release[WORDS][PIECES.index("a")].tobytes()
    assert values[7].tobytes() == release[WORDS][PIECES.index("##b")].tobytes()
    assert not json.loads((tmp_path / "new" / "beambert.json").read_text(encoding="utf-8"))["do_lower_case"]


def test_cased_words_keep_their_capitals(release, tmp_path, capsys):
    tokens = [*PIECES[:-1], "A"]
    (tmp_path / "uncased" / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    (tmp_path / "text.txt").write_text("Aa Aa aa A\u00e4\n", encoding="utf-8")
    argv = [tmp_path / "uncased", "--input", tmp_path / "text.txt", "--num_tokens", "2", "--min_count", "1"]
    assert extend(capsys, *argv, "--output", tmp_path / "cased")[0] == 0
    assert vocabulary(tmp_path / "cased")[-2:] == ["Aa", "A\u00e4"]
    assert extend(capsys, *argv, "--do_lower_case", "true", "--output", tmp_path / "tf1", "--to", "tf1")[0] == 1
    argv[4] = "1"
    code, _, err = extend(capsys, *argv, "--do_lower_case", "true", "--output", tmp_path / "tf1", "--to", "tf1")
    assert code == 0
    assert vocabulary(tmp_path / "tf1")[-1] == "aa"
    assert "warning: a TF1 checkpoint does not record the word rules (uncased)" in err
    assert "--do_lower_case true" in err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--num_tokens", "1"], "--input is missing"),
        (["--input", "{}/text.txt"], "--num_tokens is missing"),
        (["--replace", "{}/text.txt", "--num_tokens", "1"], "--num_tokens cannot be combined with --replace"),
        (["--replace", "{}/text.txt", "--fill_unused"], "--fill_unused cannot be combined with --replace"),
        (["--replace", "{}/nowhere"], "--replace {}/nowhere does not exist"),
        (["--replace", "{}"], "--replace {} is a directory"),
        (["--replace", "{}/text.txt"], "{}/text.txt"),
        (["--input", "{}/nowhere", "--num_tokens", "1"], "--input {}/nowhere matches no files"),
        (["--input", "{}", "--num_tokens", "1"], "--input {} is a directory"),
        (["--input", "{}/empty.txt", "--num_tokens", "1"], "matches only empty files"),
        (["--input", "{}/blank.txt", "--num_tokens", "1"], "--input has no words in 1 file"),
        (["--input", "{}/zeros.txt", "--num_tokens", "1"], "zeros.txt"),
        (["--input", "{}/text.txt", "--num_tokens", "1", "--text_field", "body"], "--text_field body has no effect"),
        (["--input", "{}/text.txt", "--num_tokens", "9", "--min_count", "1"], "the text has 5 words that occur at"),
        (["--input", "{}/text.txt", "--num_tokens", "9"], "lower --num_tokens to 2 or less"),
        (["--input", "{}/text.txt", "--num_tokens", "1", "--min_count", "99"], "99 times and that the vocabulary"),
        (["--input", "{}/text.txt", "--num_tokens", "1", "--fill_unused"], "has 0 [unusedN] tokens; omit --fill"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(release, tmp_path, capsys, argv, message):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "blank.txt").write_text(" \n\x00\n\ufffd \n", encoding="utf-8")
    (tmp_path / "zeros.txt").write_bytes(b"\xff\xfea\x00b\x00")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    code, _, err = extend(
        capsys, tmp_path / "uncased", "--output", tmp_path / "new", *(word.format(tmp_path) for word in argv)
    )
    assert (code, err.count("\n")) == (1, 1), err
    assert message.format(tmp_path) in err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_remote_model_is_refused(capsys, tmp_path):
    with pytest.raises(SystemExit):
        extend(capsys, "gs://bucket/model", "--replace", "x", "--output", tmp_path / "new")
    assert "MODEL gs://bucket/model is not supported; give a local path" in capsys.readouterr().err
