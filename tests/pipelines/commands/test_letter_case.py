"""Tests of the default letter case by --language, and of the warning about marks that uncased text loses."""

import json
import unicodedata

import pytest

import beambert
from beambert_common.command_line.word_rule_flags import WordRuleFlags
from pipelines.commands.vocabulary_flags import word_rules
from tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary

# Article 1 of the Universal Declaration of Human Rights.
_TEXTS = {
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। "
    "उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
    "人間は、理性と良心とを授けられており、ドイツとフランスの同胞の精神をもって行動しなければならない。",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de "
    "conscience et doivent agir les uns envers les autres dans un esprit de fraternité.",
    "en": "All human beings are born free and equal in dignity and rights. They are endowed with reason and "
    "conscience and should act towards one another in a spirit of brotherhood.",
}

# Words without marks, for the vocabulary.
_WORDS = " ".join(a + b + c + d for a in "ab" for b in "ef" for c in "ijkl" for d in "mnop")


def _corpus(tmp_path, language, *flags):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"{_TEXTS[language]} {_WORDS} {number}.", encoding="utf-8")
    argv = ["corpus", "--input", str(tmp_path / "?.txt"), "--output", str(tmp_path / "data")]
    code = beambert.main([*argv, "--vocab_size", "130", "--validation_fraction", "0", "--num_partitions", "2", *flags])
    return code, tmp_path / "data"


def _marks(text):
    return sum(unicodedata.category(part) == "Mn" for part in unicodedata.normalize("NFD", text))


def test_a_language_whose_marks_distinguish_words_is_cased(tmp_path, capsys):
    code, data = _corpus(tmp_path, "hi", "--language", "hi")
    assert code == 0
    assert json.loads((data / "corpus.json").read_text())["options"]["do_lower_case"] is False
    assert _marks((data / "vocab.txt").read_text()) > 5
    said = capsys.readouterr()
    assert "Text is cased because of --language hi; --do_lower_case true overrides this" in said.out
    assert "loses a mark" not in said.err


@pytest.mark.parametrize(("language", "loss"), [("ja", "distinct words merge"), ("fr", "accents are lost")])
def test_warning_about_lost_marks_has_an_example(language, loss, tmp_path, capsys):
    # The flag overrides the default of the language.
    code, data = _corpus(tmp_path, language, "--language", language, "--do_lower_case", "true")
    assert code == 0
    manifest = json.loads((data / "corpus.json").read_text())
    assert manifest["options"]["do_lower_case"] is True
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "loses a mark" in line]
    assert loss in line
    assert "use --strip_accents false to keep them" in line
    before, after = manifest["counts"]["diacritics"]["example"]
    assert f"({before} -> {after})" in line
    # An independent oracle: the result is the lower-case word without its nonspacing marks.
    stripped = "".join(c for c in unicodedata.normalize("NFD", before.lower()) if unicodedata.category(c) != "Mn")
    assert before != after == stripped
    letters = [c for c in _TEXTS[language] + _WORDS if unicodedata.category(c)[0] in "LM"]
    lost = sum(bool(_marks(c.lower())) for c in letters)
    marks = manifest["counts"]["diacritics"]
    assert (marks["letters"], marks["lost"]) == (3 * len(letters), 3 * lost)


def test_english_is_uncased_without_a_warning(tmp_path, capsys):
    code, data = _corpus(tmp_path, "en")
    assert code == 0
    assert json.loads((data / "corpus.json").read_text())["options"]["do_lower_case"] is True
    said = capsys.readouterr()
    assert "mark" not in said.err
    assert "cased because" not in said.out


@pytest.mark.parametrize(("tokens", "uncased"), [(["a", "The"], False), (["a", "[URL]"], True), (["क", "के"], False)])
def test_a_given_vocabulary_decides(tokens, uncased, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(Vocabulary((*SPECIAL_TOKENS, *tokens)).to_bytes())
    assert word_rules(WordRuleFlags(), str(path), "hi").do_lower_case is uncased
