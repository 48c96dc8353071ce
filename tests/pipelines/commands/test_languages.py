"""Tests of --language, which accepts only codes, and of --language_field and --language_sampling_exponent."""

import json
import random

import pyarrow
import pyarrow.parquet
import pytest

import beambert
from pipelines.cleaning.language_codes import require_language
from pipelines.sources import SourceError


def _error(capsys):
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize("language", ["xx", "english", "e n", "en-"])
def test_a_language_that_is_no_code_is_refused(language):
    with pytest.raises(SourceError, match=f"invalid --language {language}: not a known ISO 639 code"):
        require_language(language)


@pytest.mark.parametrize("command", ["corpus", "build", "vocab"])
def test_commands_refuse_a_language_that_is_no_code(command, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("One day was wet. The river rose.")
    argv = [command, "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out"), "--language", "German"]
    assert beambert.main(argv) == 1
    assert "invalid --language German: not a known ISO 639 code; did you mean de (German)" in _error(capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("language", ["en", "pt-BR", "zh_Hans", "EN", "nah", "bho", "und", "bat-smg", "sr-Latn-RS"])
def test_language_codes_are_accepted(language):
    require_language(language)


def test_languages_of_the_identifier_are_valid_codes():
    pytest.importorskip("py3langid")
    from pipelines.cleaning.language_identification import known_languages

    for language in known_languages():
        require_language(language)


def test_no_name_of_a_language_is_taken_for_a_code():
    for name in ("Hindi", "spanish", "Japanese"):
        with pytest.raises(SourceError, match="did you mean"):
            require_language(name)


_LANGUAGES = ("en", "de", "hi")


def _documents():
    """Yield language and text of 60 English, 30 German and 9 Hindi documents of invented words."""
    generator = random.Random(5)
    for language, count, letters in zip(_LANGUAGES, (60, 30, 9), ("abcdefgh", "ijklmnop", "कखगघचछजझ"), strict=True):
        words = ["".join(generator.choices(letters, k=4)) for _ in range(300)]
        for _ in range(count):
            yield language, " ".join(generator.choices(words, k=60))


def _options(tmp_path):
    return [
        "--output",
        str(tmp_path / "data"),
        "--vocab_size",
        "300",
        "--num_partitions",
        "1",
        "--validation_fraction",
        "0",
    ]


def test_language_field_balances_languages(tmp_path):
    path = tmp_path / "in.parquet"
    rows = [{"text": text, "lang": language} for language, text in _documents()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    argv = ["build", "--input", str(path), *_options(tmp_path), "--dupe_factor", "1", "--objective", "mlm"]
    flags = ["--language_sampling_exponent", "0.3", "--language_field", "lang"]
    assert beambert.main([*argv, *flags]) == 0
    languages = json.loads((tmp_path / "data/corpus.json").read_text())["counts"]["languages"]
    assert {name: size["documents"] for name, size in languages.items()} == {"en": 60, "de": 30, "hi": 9}
    factors = json.loads((tmp_path / "data/dataset.json").read_text())["options"]["language_factors"]
    shares = {"en": 60 / 99, "de": 30 / 99, "hi": 9 / 99}
    scale = sum(share**0.3 for share in shares.values())
    assert factors == pytest.approx({name: share**0.3 / scale / share for name, share in shares.items()})


def test_balancing_one_language_is_refused(tmp_path, capsys):
    rows = [{"text": text, "lang": language} for language, text in _documents()]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    argv = ["corpus", "--input", str(tmp_path / "in.jsonl"), *_options(tmp_path)]
    assert beambert.main([*argv, "--language_sampling_exponent", "0.7"]) == 1
    error = capsys.readouterr().err
    assert "has no effect: all documents are in the language en" in error
    assert "--language_field" in error
    assert not (tmp_path / "data/corpus.json").exists()


def test_balancing_a_format_without_languages_is_refused_at_once(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("One day was wet. The river rose.")
    argv = ["corpus", "--input", str(tmp_path / "in.txt"), *_options(tmp_path), "--input_format", "text"]
    assert beambert.main([*argv, "--language_sampling_exponent", "0.7"]) == 1
    assert "has no effect on --input_format text" in _error(capsys)


def test_language_field_without_codes_is_refused(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"text": "a", "lang": "en"}\n{"text": "b", "lang": "German"}\n')
    argv = ["corpus", "--input", str(tmp_path / "in.jsonl"), *_options(tmp_path), "--language_field", "lang"]
    assert beambert.main(argv) == 1
    error = _error(capsys)
    assert "in.jsonl, line 2: field 'lang' is 'German', not a language code" in error
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"text": "a"}]), tmp_path / "in.parquet")
    argv[2] = str(tmp_path / "in.parquet")
    assert beambert.main(argv) == 1
    assert "column 'lang' is missing (columns: text)" in _error(capsys)


@pytest.mark.parametrize("name", ["in.jsonl", "in.txt"])
def test_mistyped_language_field_is_named(name, tmp_path, capsys):
    lines = [json.dumps({"lang": "en", "text": f"Day {number} was wet."}) for number in range(5)]
    (tmp_path / name).write_text("\n".join(lines) if name == "in.jsonl" else "Day 1 was wet.\n")
    argv = ["corpus", "--input", str(tmp_path / name), "--output", str(tmp_path / "out"), "--language_field", "langue"]
    assert beambert.main([*argv, "--vocab_size", "40", "--validation_fraction", "0"]) == 1
    error = _error(capsys)
    assert "--language_field" in error
    assert name in error
    assert ("'lang', 'text'" in error or "lang, text" in error) == (name == "in.jsonl")
    assert ("no --input file has fields" in error) == (name == "in.txt")
