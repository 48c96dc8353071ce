"""Test that each option of the data commands is declared once: its flag, constructor, manifest and mapping agree."""

import re

import numpy as np
import pytest

from beambert import cli
from beambert.common.command_line.flags import Number, WholeNumber
from beambert.common.command_line.options import Option, from_args, from_mapping, options_of
from beambert.common.typed_json import JsonError, convert
from beambert.pipelines.cleaning.rules import CleaningOptions
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.errors import DatasetError, SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.segmentation.segmenters import SEGMENTERS
from beambert.pipelines.vocabulary.vocabulary_options import DEFAULT_VOCAB_SIZE

CLASSES = (CorpusOptions, CleaningOptions, ReadOptions, PretrainingDataOptions)
# Fields without a flag, and what determines them.
DETERMINED = {
    "read": "flags of ReadOptions",
    "cleaning": "flags of CleaningOptions",
    "character_rules": "tokenizer",
    "quality_model_sha256": "file of --quality_model",
    "language_factors": "word counts of the corpus",
}
# PretrainingDataOptions has the word rules of the corpus.
RULES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
# Values of the fields without a default.
REQUIRED = {"do_lower_case": True, "vocab_size": 100, "num_partitions": 1, "character_rules": ""}
ERRORS = {PretrainingDataOptions: DatasetError}


def every_option() -> list[tuple[type, Option]]:
    return [(cls, option) for cls in CLASSES for option in options_of(cls)]


def invalid_values() -> list[tuple[type, Option, object]]:
    """Return values of wrong types, and values just out of range."""
    values = []
    for cls, option in every_option():
        parse = option.keywords().get("type")
        if isinstance(parse, WholeNumber):
            values += [(cls, option, value) for value in (-1, parse.most + 1, "5", 1.5, True)]
        elif isinstance(parse, Number):
            values += [(cls, option, value) for value in (-0.01, 1.01, float("nan"), "0.5", None)]
        elif option.keywords().get("choices") and option.plain_type is not str and option.name not in RULES:
            values += [(cls, option, value) for value in ("no such value", 1)]
        elif option.plain_type in (bool, str):
            values += [(cls, option, 3)]
    return values


def make(cls: type, **values: object) -> object:
    return cls(**{**(REQUIRED if cls is CorpusOptions else {}), **values})


def test_every_option_has_a_flag_or_is_determined_elsewhere():
    parser, _ = cli.make_parser("build")
    flags = {action.option_strings[-1]: action for action in parser._actions if action.option_strings}
    for cls, option in every_option():
        if option.flag is None:
            assert option.name in DETERMINED or (cls is PretrainingDataOptions and option.name in RULES), option.name
            continue
        assert option.name not in DETERMINED
        assert len(flags[f"--{option.flag_name}"].help) > 20, option.name


def test_flags_that_are_not_given_leave_the_defaults():
    parser, _ = cli.make_parser("build")
    args, _ = parser.read(["--output", "o"])
    assert from_args(PretrainingDataOptions, args) == PretrainingDataOptions()
    assert from_args(CorpusOptions, args, **REQUIRED) == make(CorpusOptions)


def test_flags_that_are_given_are_in_the_options():
    argv = ["--output", "o", "--min_words", "7", "--drop_near_duplicates", "--id_field", "key", "--decontaminate", "a"]
    args, _ = cli.make_parser("build")[0].read([*argv, "--length_bins", "64,128", "--objective", "mlm"])
    corpus = from_args(CorpusOptions, args, **REQUIRED)
    assert (corpus.cleaning.min_words, corpus.near_duplicates, corpus.read.id_field) == (7, True, "key")
    assert corpus.decontaminate == ["a"]
    examples = from_args(PretrainingDataOptions, args)
    assert (examples.length_bins, examples.objective) == ((64, 128), "mlm")


@pytest.mark.parametrize(("cls", "option", "value"), invalid_values())
def test_an_invalid_value_is_refused_by_constructor_manifest_and_mapping(cls, option, value):
    error = ERRORS.get(cls, SourceError)
    with pytest.raises(error, match=rf"^invalid --{option.flag_name} .*: must be ") as refused:
        make(cls, **{option.name: value})
    assert str(refused.value).endswith(f"must be {option.requirement()}")
    fields = {**(REQUIRED if cls is CorpusOptions else {}), option.name: value}
    with pytest.raises(JsonError, match=rf"^options\.{option.name} "):
        convert(fields, cls, "options")
    with pytest.raises(error, match=rf"^rules\.{option.name} "):
        from_mapping(cls, fields, "rules", error)


def test_an_unknown_field_of_a_mapping_is_named():
    with pytest.raises(SourceError, match=r"^rules\.min_word is unknown; choose from skip_rules, .*min_words"):
        from_mapping(CleaningOptions, {"min_word": 3}, "rules", SourceError)
    with pytest.raises(SourceError, match=r"^rules is .*: expected object"):
        from_mapping(CleaningOptions, "boilerplate", "rules", SourceError)
    assert from_mapping(CleaningOptions, None, "rules", SourceError) == CleaningOptions()


def test_a_float_of_numpy_is_a_number():
    assert CleaningOptions(max_digit_ratio=np.float64(0.5)).max_digit_ratio == 0.5
    with pytest.raises(SourceError, match=r"invalid --min_words np\.int64\(5\): must be a whole number"):
        CleaningOptions(min_words=np.int64(5))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"vocab_file": "v"}, "--vocab_size and --vocab_file conflict"),
        ({"language": "xx"}, "invalid --language xx"),
        ({"abbreviations": "bzgl", "segmenter": "lines"}, "--abbreviations has no effect on --segmenter lines"),
        ({"read": ReadOptions("papyrus")}, "invalid --input_format papyrus: must be auto or one of parquet"),
        ({"read": ReadOptions("text"), "language_sampling_exponent": 0.7}, "whose documents state no language"),
        ({"read": ReadOptions("text", wikitext_extractor="wikiextractor")}, "has no effect on --input_format text"),
        ({"read": "text"}, "invalid --read 'text': must be an object"),
    ],
)
def test_contradicting_options_are_refused_by_the_constructor(values, message):
    with pytest.raises(SourceError, match=re.escape(message)):
        make(CorpusOptions, **values)


def test_texts_that_repeat_a_constant():
    options = {option.name: option for option in options_of(CorpusOptions)}
    assert set(options["segmenter"].keywords()["choices"]) == set(SEGMENTERS)
    assert f"(default: {DEFAULT_VOCAB_SIZE})" in options["vocab_size"].description
