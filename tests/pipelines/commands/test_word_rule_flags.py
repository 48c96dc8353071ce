"""Tests of --strip_accents and --tokenize_chinese_chars from text to examples, and of data with different rules."""

import dataclasses
import json
import unicodedata

import beambert
from beambert_common.word_rules import WordRules
from bert_model.checkpoints import native
from pipelines import dataset
from tests.pipelines.commands.test_letter_case import _TEXTS, _WORDS, _marks
from tests.trainers.pretraining_shards import write_dataset
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary

KEPT = WordRules(strip_accents=False)
# Japanese text with spaces between words.
_JAPANESE = "東京 は 日本 の 首都 です 。 学生 は 毎日 大学 で 日本語 を 勉強 し ます 。"


def _run(command, tmp_path, output, *flags):
    argv = [command, "--input", str(tmp_path / "?.txt"), "--output", str(tmp_path / output)]
    return beambert.main([*argv, "--validation_fraction", "0", *flags])


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
    """Require the same manifest as in earlier versions, so that their outputs are recognized."""
    _write(tmp_path, _TEXTS["fr"])
    flags = ["--vocab_size", "130", "--num_partitions", "2"]
    assert _run("corpus", tmp_path, "plain", *flags) == 0
    assert _run("corpus", tmp_path, "flag", *flags, "--strip_accents", "true", "--tokenize_chinese_chars", "true") == 0
    for name in ("corpus.json", "vocab.txt"):
        assert (tmp_path / "flag" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert "strip_accents" not in (tmp_path / "plain" / "corpus.json").read_text()


def test_cased_text_can_be_stripped(tmp_path, capsys):
    _write(tmp_path, _TEXTS["fr"])
    flags = ["--vocab_size", "130", "--do_lower_case", "false", "--strip_accents", "true"]
    assert _run("vocab", tmp_path, "vocab.txt", *flags) == 0
    tokens = (tmp_path / "vocab.txt").read_text()
    assert "A" in tokens
    assert _marks(tokens) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "loses a mark" in line]
    assert "use --strip_accents false to keep them" in line


def test_segmented_words_are_learned(tmp_path):
    _write(tmp_path, _JAPANESE)
    flags = ["--language", "ja", "--do_lower_case", "false"]
    assert _run("vocab", tmp_path, "characters.txt", *flags, "--vocab_size", "120") == 0
    assert _run("vocab", tmp_path, "words.txt", *flags, "--vocab_size", "138", "--tokenize_chinese_chars", "false") == 0
    characters, words = (Vocabulary.load(tmp_path / f"{name}.txt") for name in ("characters", "words"))
    long = [token for token in words.tokens if len(token) > 1 and unicodedata.name(token[0], "").startswith("CJK")]
    assert {"東京", "日本", "首都", "学生", "大学", "勉強"} <= set(long)
    assert not {"東京", "首都"} & set(characters.tokens)
    tokenizer = Tokenizer(words, do_lower_case=False, tokenize_chinese_chars=False)
    assert tokenizer.tokenize("東京 は 首都 です 。") == ["東京", "は", "首都", "です", "。"]


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
    assert beambert.main([*argv, "--vocab_file", str(model / "vocab.txt")]) == 1
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
    assert beambert.main(["pretrain", *data, *flags]) == 1
    message = capsys.readouterr().err
    assert "differ in word rules; build both with the same --do_lower_case" in message
    assert "(uncased, accents kept)" in message
