"""Tests of --language, which accepts only codes, and of --language_field and --language_sampling_exponent."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from beambert import cli
from beambert.pipelines.cleaning.language_codes import require_language
from beambert.pipelines.errors import SourceError


def _error(capsys):
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize("language", ["xx", "english", "Hindi", "e n", "en-"])
def test_a_language_that_is_no_code_is_refused(language):
    with pytest.raises(SourceError, match=f"invalid --language {language}: not a known ISO 639 code"):
        require_language(language)


def test_a_command_refuses_a_language_that_is_no_code(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("One day was wet. The river rose.")
    argv = ["corpus", "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out"), "--language", "German"]
    assert cli.main(argv) == 1
    assert "invalid --language German: not a known ISO 639 code; did you mean de (German)" in _error(capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("language", ["en", "pt-BR", "zh_Hans", "EN", "nah", "bho", "und", "bat-smg", "sr-Latn-RS"])
def test_language_codes_are_accepted(language):
    require_language(language)


def test_languages_of_the_identifier_are_valid_codes():
    pytest.importorskip("py3langid")
    from beambert.pipelines.cleaning.language_identification import known_languages

    for language in known_languages():
        require_language(language)


def _options(tmp_path):
    return ["--output", str(tmp_path / "data"), "--vocab_size", "300", "--validation_fraction", "0"]


def test_balancing_one_language_is_refused(tmp_path, capsys):
    lines = [json.dumps({"lang": "en", "text": f"Day {number} was wet."}) for number in range(5)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    argv = ["corpus", "--input", str(tmp_path / "in.jsonl"), *_options(tmp_path)]
    assert cli.main([*argv, "--language_sampling_exponent", "0.7"]) == 1
    error = capsys.readouterr().err
    assert "has no effect: all documents are in the language en" in error
    assert "--language_field" in error
    assert not (tmp_path / "data/corpus.json").exists()


def test_language_field_without_codes_is_refused(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"text": "a", "lang": "en"}\n{"text": "b", "lang": "German"}\n')
    argv = ["corpus", "--input", str(tmp_path / "in.jsonl"), *_options(tmp_path), "--language_field", "lang"]
    assert cli.main(argv) == 1
    error = _error(capsys)
    assert "in.jsonl, line 2: field 'lang' is 'German', not a language code" in error
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"text": "a"}]), tmp_path / "in.parquet")
    argv[2] = str(tmp_path / "in.parquet")
    assert cli.main(argv) == 1
    assert "column 'lang' is missing (columns: text)" in _error(capsys)


def test_mistyped_language_field_is_named(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"lang": "en", "text": "Day 1 was wet."}\n')
    argv = ["corpus", "--input", str(tmp_path / "in.jsonl"), *_options(tmp_path), "--language_field", "langue"]
    assert cli.main(argv) == 1
    error = _error(capsys)
    assert "--language_field" in error
    assert "in.jsonl" in error
    assert "'lang', 'text'" in error or "lang, text" in error
