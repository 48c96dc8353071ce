"""Tests of `beambert vocab`: the same bytes as `beambert corpus`, coverage of the validation split, and errors."""

import json
from pathlib import Path

import pytest

from beambert import cli
from beambert.common.word_rules import WordRules
from beambert.pipelines.corpus import corpus_manifest
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import Coverage, split_word
from tests.every_output import corpus_rows

FLAGS = [
    *("--input_format", "language_reference", "--validation_fraction", "0.15", "--vocab_size", "1990"),
    *("--vocab_multiple_of", "8", "--num_unused", "10", "--alphabet_limit", "90", "--min_count", "2"),
]


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    """A vocabulary for --compare_vocab, with most letters and few words."""
    path = tmp_path_factory.mktemp("compared") / "other.txt"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "statement", *".,()"]
    pieces += [prefix + letter for prefix in ("", "##") for letter in "abcdefghijklmnopqrstuvwxy"]
    path.write_text("\n".join(pieces) + "\n")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, compared) -> Path:
    output = tmp_path_factory.mktemp("corpus") / "data"
    assert cli.main(["corpus", *FLAGS, "--output", str(output), "--compare_vocab", str(compared)]) == 0
    return output


def fit_of_documents(corpus: Path, vocab_file: Path) -> Coverage:
    """Return the coverage of the validation split, counted word by word."""
    pieces = set(Vocabulary.load(vocab_file).tokens)
    words = unknown = whole = spelt = 0
    for row in corpus_rows(corpus, "validation"):
        for word in split_words("\n".join(row["sentences"]), WordRules()):
            spelling = split_word(word, pieces)
            words += 1
            unknown += spelling == ["[UNK]"]
            whole += len(spelling) == 1 and spelling != ["[UNK]"]
            spelt += len(spelling)
    return Coverage(words, unknown, whole, spelt)


def test_the_same_bytes_as_the_corpus(corpus, compared, tmp_path, capsys):
    output = tmp_path / "new" / "vocab.txt"
    output.parent.mkdir()
    output.write_text("old")
    argv = ["vocab", *FLAGS, "--output", str(output), "--compare_vocab", str(compared)]
    assert cli.main(argv) == 1
    assert "already exists; use --overwrite" in capsys.readouterr().err
    assert cli.main([*argv, "--overwrite"]) == 0
    assert output.read_bytes() == (corpus / "vocab.txt").read_bytes()
    assert list(tmp_path.rglob("*.*")) == [output]
    printed = capsys.readouterr().out
    vocab = corpus_manifest.load(str(corpus)).vocab
    for name in ("vocab", "compare_vocab"):
        assert str(Coverage(**vocab["validation"][name])) in printed


def test_coverage_is_that_of_the_validation_split(corpus, compared):
    vocab = corpus_manifest.load(str(corpus)).vocab
    own, other = (Coverage(**vocab["validation"][name]) for name in ("vocab", "compare_vocab"))
    assert own == fit_of_documents(corpus, corpus / "vocab.txt")
    assert other == fit_of_documents(corpus, compared)
    assert own.tokens < other.tokens
    assert other.unknown > own.unknown


def test_size_layout_and_words_left_out(corpus):
    vocabulary = Vocabulary.load(corpus / "vocab.txt")
    assert len(vocabulary) == 1992
    assert vocabulary.tokens[:16] == (
        "[PAD]",
        *(f"[unused{number}]" for number in range(10)),
        *("[UNK]", "[CLS]", "[SEP]", "[MASK]", "!"),
    )
    manifest = corpus_manifest.load(str(corpus))
    words = manifest.vocab["learned_from"]
    counts: dict[str, int] = {}
    for row in corpus_rows(corpus, "train"):
        for word in split_words("\n".join(row["sentences"]), WordRules()):
            counts[word] = counts.get(word, 0) + 1
    rare = [word for word, count in counts.items() if count < 2]
    assert words == {
        "words": sum(counts.values()),
        "words_excluded": len(rare),
        "distinct_words": len(counts),
        "distinct_words_excluded": len(rare),
    }
    assert json.loads((corpus / "corpus.json").read_text())["options"]["min_count"] == 2


MISTAKES = {
    "more pieces than words": ("--vocab_size 30000", "the words of the text allow at most"),
    "fewer pieces than characters": ("--vocab_size 9", "raise --vocab_size to at least"),
    "no such file to compare with": ("--compare_vocab {0}/none.txt", "--compare_vocab {0}/none.txt does not exist"),
    "no vocabulary to compare with": (
        "--compare_vocab {0}/there.txt",
        "there.txt: missing special tokens [PAD]",
    ),
    "no directory": ("--output {0}/there.txt/vocab.txt", "cannot be written"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(name, tmp_path, capsys):
    (tmp_path / "there.txt").write_text("word\n")
    flags, says = MISTAKES[name]
    (tmp_path / "in.txt").write_text("The cat sat on the mat.\n")
    argv = ["vocab", "--input", str(tmp_path / "in.txt"), *flags.format(tmp_path).split()]
    if "--output" not in argv:
        argv += ["--output", str(tmp_path / "vocab.txt")]
    assert cli.main(argv) == 1
    err = capsys.readouterr().err
    assert says.format(tmp_path) in err
    assert err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "there.txt"}
    assert (tmp_path / "there.txt").read_text() == "word\n"
