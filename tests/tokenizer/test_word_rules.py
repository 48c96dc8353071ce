"""Test word rules other than the released ones: against the library `tokenizers`, and from files."""

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from beambert.common.word_rules import WordRules, rules_of, without_released_rules
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary, VocabularyError
from tests.tokenizer.test_in_graph import KEPT, STRIPPED, WORDS

RULES = {rules.summary: rules for rules in (KEPT, STRIPPED, WORDS)}
CASES = pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())


def test_equal_rules_are_equal() -> None:
    assert WordRules(True, True) == WordRules(True, None) == WordRules()
    assert WordRules(False, False) == WordRules(False) != WordRules(False, True)
    assert [rules.strips_accents for rules in (WordRules(), WordRules(False), KEPT, STRIPPED)] == [
        True,
        False,
        False,
        True,
    ]
    assert WORDS.summary == "uncased, accents kept, ideographs not separated"
    assert WORDS.flags == "--do_lower_case true --strip_accents false --tokenize_chinese_chars false"
    assert without_released_rules({"a": None, **asdict(WordRules(False))}) == {"a": None, "do_lower_case": False}
    for rules in (*RULES.values(), WordRules(), WordRules(False)):
        assert rules_of(without_released_rules(asdict(rules))) == rules


def words_of_library(texts: list[str], rules: WordRules) -> Iterator[list[str]]:
    """Yield the words of each text according to Hugging Face's `tokenizers`."""
    normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=rules.tokenize_chinese_chars,
        strip_accents=rules.strip_accents,
        lowercase=rules.do_lower_case,
    )
    splitter = BertPreTokenizer()
    for text in texts:
        yield [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]


def differing(rules: WordRules) -> set[str]:
    """Return the assigned characters that `tokenizers` treats differently."""
    characters = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    texts = [f"a{c}b {c}1 {c}" for c in characters]
    theirs = words_of_library(texts, rules)
    return {c for c, text, words in zip(characters, texts, theirs, strict=True) if split_words(text, rules) != words}


@pytest.fixture(scope="module")
def differing_cased() -> set[str]:
    return differing(WordRules(do_lower_case=False))


@CASES
@pytest.mark.usefixtures("forgotten_characters")
def test_every_character_against_the_library(rules: WordRules, differing_cased: set[str]) -> None:
    """Check that the rules add no difference to those of cased text, except marks newer than the library's Unicode."""
    different = differing(rules)
    # The library's range of ideographs starts at U+2B920 instead of U+2B820 (CJK Extension E).
    extension_e = {chr(code) for code in range(0x2B820, 0x2B920)}
    assert extension_e <= differing_cased
    assert different & extension_e == (extension_e if rules.tokenize_chinese_chars else set())
    marks = {c for c in different if unicodedata.category(c) in ("Mn", "Mc")} - differing_cased
    assert different - marks - extension_e == differing_cased - extension_e
    assert bool(marks) == rules.strips_accents
    # The rest are punctuation and format characters of later versions of Unicode, and no letters.
    rest = different - marks - extension_e
    assert not [c for c in rest if unicodedata.category(c)[0] in "LN"]
    assert len(rest) < 200


RECORDS = {
    "beambert.json": {"format": "beambert-model", "do_lower_case": True, "strip_accents": False},
    "dataset.json": {"format": "beambert-pretraining-data", "do_lower_case": True, "strip_accents": False},
    "corpus.json": {"format": "beambert-corpus", "options": {"do_lower_case": True, "strip_accents": False}},
    "tokenizer_config.json": {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": True},
    "tokenizer.json": {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "lowercase": True,
            "strip_accents": False,
            "handle_chinese_chars": True,
        }
    },
}


@pytest.mark.parametrize(("name", "content"), RECORDS.items())
def test_recorded_rules_are_used(name: str, content: object, tmp_path: Path) -> None:
    # Without a record, the capital letter would make the rules cased.
    (tmp_path / "vocab.txt").write_bytes(Vocabulary((*SPECIAL_TOKENS, "A")).to_bytes())
    (tmp_path / name).write_text(json.dumps(content))
    assert Tokenizer.load(tmp_path).rules == KEPT
    assert Tokenizer.load(tmp_path / "vocab.txt", tokenize_chinese_chars=False).rules == WORDS
    assert Tokenizer.load(tmp_path, do_lower_case=False).rules == WordRules(do_lower_case=False)
    (tmp_path / name).write_text(json.dumps(content).replace("false", '"no"', 1))
    with pytest.raises(VocabularyError, match=f"{name}: .*; correct the file"):
        Tokenizer.load(tmp_path)


def test_records_of_other_programs_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(Vocabulary((*SPECIAL_TOKENS, "A")).to_bytes())
    (tmp_path / "dataset.json").write_text('{"do_lower_case": true, "strip_accents": false}')
    (tmp_path / "corpus.json").write_text('{"options": ["a"]}')
    assert Tokenizer.load(tmp_path).rules == WordRules(do_lower_case=False)


def test_the_configuration_has_precedence_over_tokenizer_json(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(Vocabulary((*SPECIAL_TOKENS, "a")).to_bytes())
    (tmp_path / "tokenizer.json").write_text(json.dumps(RECORDS["tokenizer.json"]))
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true, "strip_accents": null}')
    assert Tokenizer.load(tmp_path).rules == WordRules()


def test_tensorflow_text_refuses_other_rules() -> None:
    pytest.importorskip("tensorflow_text", exc_type=ImportError)
    from beambert.tokenizer.tensorflow_text_tokenizer import TensorFlowTextTokenizer

    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a"))
    for rules in RULES.values():
        with pytest.raises(VocabularyError, match=rf"rules of the model \({rules.summary}\).*use --tokenizer exact"):
            TensorFlowTextTokenizer(vocabulary, **asdict(rules))
    assert np.array_equal(TensorFlowTextTokenizer(vocabulary, True, strip_accents=True).encode_batch(["A"])[0], [5])
