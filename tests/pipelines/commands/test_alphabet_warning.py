"""Tests of the warning about words that are [UNK] because of --alphabet_limit, and of the limit it recommends."""

import json
import random
import re

import pytest

from beambert import cli
from beambert.pipelines.corpus.corpus_warnings import alphabet_warnings
from beambert.tokenizer.learner import alphabet_losses

_IDEOGRAPHS = [chr(0x4E00 + number) for number in range(150)]


@pytest.fixture
def chinese(tmp_path):
    generator = random.Random(3)
    for number in range(4):
        words = ["".join(generator.choices("abcdefgh", k=7)) for _ in range(60)]
        sentences = ["".join(generator.choices(_IDEOGRAPHS, k=30)) + f" {word}。" for word in words]
        (tmp_path / f"{number}.txt").write_text("".join(sentences), encoding="utf-8")
    return tmp_path


def _warnings(chinese, capsys, limit, output):
    argv = ["build", "--input", str(chinese / "?.txt"), "--output", str(chinese / output), "--language", "zh"]
    argv += ["--vocab_size", "400", "--validation_fraction", "0.3", "--dupe_factor", "1", "--num_partitions", "1"]
    assert cli.main([*argv, "--alphabet_limit", limit]) == 0
    said = capsys.readouterr()
    warnings = json.loads((chinese / output / "dataset.json").read_text())["counts"]["warnings"]
    return said.out + said.err, [warning for warning in warnings if "[UNK]" in warning]


def test_recommended_alphabet_limit_removes_the_warning(chinese, capsys):
    said, warnings = _warnings(chinese, capsys, "100", "first")
    (warning,) = warnings
    assert warning in said
    match = re.search(r"because --alphabet_limit 100 excludes ([\d,]+) of.* with --alphabet_limit (\d+)", warning)
    assert match
    _, warnings = _warnings(chinese, capsys, match[2], "second")
    assert warnings == []


def test_losses_of_an_alphabet():
    words = {"ab": 5000, "ac": 3000, "ad": 4, "e": 3}
    losses = alphabet_losses(words, 2)
    # The characters by frequency are a, b, c, d, e.
    assert losses == {
        "characters": 5,
        "characters_excluded": 3,
        "words_excluded": 3007,
        "sufficient_limit": 3,
    }
    assert alphabet_losses(words, 5)["words_excluded"] == 0
    assert alphabet_losses({}, 5)["characters"] == 0


def test_no_warning_if_most_unknown_words_have_another_cause():
    alphabet = {
        "characters": 1100,
        "characters_excluded": 100,
        "words_excluded": 20,
        "sufficient_limit": 1100,
    }
    vocab = {"learned_from": {"words": 1000}, "alphabet": alphabet}
    assert len(alphabet_warnings(vocab, 1000)) == 1
    assert alphabet_warnings(vocab, 1000, unknown=0.3) == []
    assert len(alphabet_warnings(vocab, 1000, unknown=0.02)) == 1
    # A vocabulary that was given has no counts.
    assert alphabet_warnings({"learned_from": None, "alphabet": None}, 1000) == []
