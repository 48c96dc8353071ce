"""Tests of the word rules of data jobs: their flags, the default letter case by --language, and lost marks."""

import dataclasses
import json
import unicodedata

import pytest

from beambert import cli
from beambert.bert_model.checkpoints import native
from beambert.common.word_rules import WordRuleFlags, WordRules
from beambert.pipelines import dataset
from beambert.pipelines.commands.corpus_run import word_rules
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests.trainers.pretraining_shards import write_dataset

KEPT = WordRules(strip_accents=False)


def _run(command, tmp_path, output, *flags):
    argv = [command, "--input", str(tmp_path / "?.txt"), "--output", str(tmp_path / output)]
    return cli.main([*argv, "--validation_fraction", "0", *flags])


def _write(tmp_path, text):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"{text} {_WORDS} Aa {number}.", encoding="utf-8")


def test_uncased_text_keeps_its_marks(tmp_path, capsys):
    _write(tmp_path, _TEXTS["hi"])
    flags = ["--vocab_size", "140", "--num_partitions", "2", "--language", "hi", "--strip_accents", "false"]
    assert _run("build", tmp_path, "data", *flags, "--max_seq_length", "64", "--dupe_factor", "1") == 0
    printed = capsys.readouterr()
    # With its marks kept, no language needs cased text to keep words distinct.
    assert "Text is cased" not in printed.out
    assert "loses a mark" not in printed.err
    data = tmp_path / "data"
    corpus = json.loads((data / "corpus.json").read_text())
    assert corpus["options"]["do_lower_case"] is True
    assert corpus["options"]["strip_accents"] is False
    assert "diacritics" not in corpus["counts"]
    manifest = dataset.load(data)
    assert WordRules.of(manifest) == KEPT
    vocabulary = Vocabulary.load(data / "vocab.txt")
    assert _marks("".join(vocabulary.tokens)) > 5
    assert not vocabulary.has_capitals()
    assert "uncased, accents kept" in (data / "README.md").read_text()
    # The examples are tokenized by the same rules, and a rerun recognizes the result.
    assert Tokenizer.load(data).rules == KEPT
    assert manifest.counts["train"]["unknown_tokens"] == 0
    assert _run("build", tmp_path, "data", *flags, "--max_seq_length", "64", "--dupe_factor", "1") == 0
    assert "up to date" in capsys.readouterr().out
    other = [*flags[:-1], "auto", "--do_lower_case", "true"]
    assert _run("build", tmp_path, "data", *other, "--max_seq_length", "64", "--dupe_factor", "1") == 1
    assert "strip_accents: False recorded, None requested" in capsys.readouterr().err


def test_default_rules_are_not_recorded(tmp_path):
    _write(tmp_path, _TEXTS["fr"])
    flags = ["--vocab_size", "130", "--num_partitions", "2"]
    assert _run("corpus", tmp_path, "plain", *flags) == 0
    assert _run("corpus", tmp_path, "flag", *flags, "--strip_accents", "true", "--tokenize_chinese_chars", "true") == 0
    for name in ("corpus.json", "vocab.txt"):
        assert (tmp_path / "flag" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert "strip_accents" not in (tmp_path / "plain" / "corpus.json").read_text()


def test_the_record_beside_a_vocabulary_is_the_default(tmp_path, capsys):
    _write(tmp_path, _TEXTS["fr"])
    model = tmp_path / "model"
    model.mkdir()
    characters = sorted(set(_TEXTS["fr"].lower() + "0123456789.") - {" "})
    tokens = dict.fromkeys([*SPECIAL_TOKENS, *characters, *(f"##{c}" for c in characters)])
    (model / "vocab.txt").write_bytes(Vocabulary(tuple(tokens)).to_bytes())
    record = native.ModelRecord(task="pretraining", **dataclasses.asdict(KEPT))
    (model / "beambert.json").write_text(record.to_json())
    flags = ["--vocab_file", str(model / "vocab.txt"), "--num_partitions", "2"]
    assert _run("corpus", tmp_path, "corpus", *flags) == 0
    assert json.loads((tmp_path / "corpus/corpus.json").read_text())["options"]["strip_accents"] is False
    # The flag overrides the record, but then this vocabulary is refused, since its record has other rules.
    assert _run("corpus", tmp_path, "auto", *flags, "--strip_accents", "auto") == 0
    argv = ["pretraining-data", "--input", str(tmp_path / "auto"), "--output", str(tmp_path / "data")]
    capsys.readouterr()
    assert cli.main([*argv, "--vocab_file", str(model / "vocab.txt")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "vocab.txt is recorded with other word rules (uncased, accents kept) than the corpus (uncased)" in line


def test_data_of_different_rules_is_refused(tmp_path, capsys):
    for name, rules in (("a", WordRules()), ("b", KEPT)):
        write_dataset(tmp_path / name)
        path = tmp_path / name / "dataset.json"
        manifest = dataclasses.replace(dataset.load(tmp_path / name), **dataclasses.asdict(rules))
        path.write_text(manifest.to_json(), encoding="utf-8")
    flags = ["--output", str(tmp_path / "run"), "--model", "tiny", "--num_train_steps", "1"]
    data = ["--data", str(tmp_path / "a"), str(tmp_path / "b")]
    assert cli.main(["pretrain", *data, *flags]) == 1
    message = capsys.readouterr().err
    assert "differ in word rules; build both with the same --do_lower_case" in message
    assert "(uncased, accents kept)" in message


# Article 1 of the Universal Declaration of Human Rights.
_TEXTS = {
    "hi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। "
    "उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।",
    "ja": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
    "人間は、理性と良心とを授けられており、ドイツとフランスの同胞の精神をもって行動しなければならない。",
    "fr": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de "
    "conscience et doivent agir les uns envers les autres dans un esprit de fraternité.",
}

# Words without marks, for the vocabulary.
_WORDS = " ".join(a + b + c + d for a in "ab" for b in "ef" for c in "ijkl" for d in "mnop")


def _corpus(tmp_path, language, *flags):
    _write(tmp_path, _TEXTS[language])
    code = _run("corpus", tmp_path, "data", "--vocab_size", "130", "--num_partitions", "2", *flags)
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
    letters = [c for c in f"{_TEXTS[language]} {_WORDS} Aa" if unicodedata.category(c)[0] in "LM"]
    lost = sum(bool(_marks(c.lower())) for c in letters)
    marks = manifest["counts"]["diacritics"]
    assert (marks["letters"], marks["lost"]) == (3 * len(letters), 3 * lost)


@pytest.mark.parametrize(("tokens", "uncased"), [(["a", "The"], False), (["a", "[URL]"], True), (["क", "के"], False)])
def test_a_given_vocabulary_decides(tokens, uncased, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(Vocabulary((*SPECIAL_TOKENS, *tokens)).to_bytes())
    assert word_rules(WordRuleFlags(), str(path), "hi").do_lower_case is uncased
