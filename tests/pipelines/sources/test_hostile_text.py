"""Tests of readers, cleaning, segmentation and tokenizer on one long line of one repeated mark.

All take linear time, and errors have one line.
"""

import contextlib
import io
from collections import Counter

import pytest

from beambert.common.word_rules import WordRules
from beambert.pipelines.cleaning import ngrams, residual_markup, rules
from beambert.pipelines.cleaning.rules import rejection_reason
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import get_format
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.segmentation import segmenters
from beambert.tokenizer.learner import count_words, learn_vocabulary
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary, VocabularyError
from tests.conftest import with_slow
from tests.cpu_time import seconds

_SIZE = 1 << 17
# Seconds of CPU time. Linear code takes less than 1 s; earlier, quadratic code took from 4 s to hours.
_LIMIT = 4.0
# The small size is enough to find code of cubic or exponential time.
sizes = pytest.mark.parametrize("size", with_slow([_SIZE >> 3, _SIZE], [_SIZE]))

# Strings that open, close or separate something in a format or a rule, each without its counterpart.
# fmt: off
MARKS = [
    "a", "a ", "A. ", "'", "''", "''a ", "\"", "\"\"", "\"a'", "`", "(", " (", "[", "[[", "[http:", "{",
    "{{", "{{a|", "{|", "}}", "]]", "<", "<a", "<a>", "</a>", "<ref>", "<!--", "<!---->", "-->", "&", "&#",
    "=", "==a", "== ", "!", "... ", "1) ", "• ", "- ", "a-", "\t", " ", "\u0000", "é", "中", "\u0300",
    "\ufeff", "\r", "\n", "a\n", "|", "@", "a.b@", "_a", "*", "\\", "a,", "\"a\",", "1px;", "height:1px;",
    "End of Project Gutenberg\n", "\u2028", "[1]", "#if:", "&rft.",
]
# fmt: on


def _text(mark: str, size: int) -> str:
    return mark * (size // len(mark))


def _read(input_format: str, text: str) -> list:
    stream = io.BufferedReader(io.BytesIO(text.encode()))
    return list(get_format(input_format).read_documents(stream, "file", ReadOptions(input_format=input_format)))


def _message(input_format: str, text: str) -> str:
    """Return the error message of a reader, "" if it reads the text."""
    try:
        _read(input_format, text)
    except SourceError as error:
        return str(error)
    return ""


# Contexts of the text in each format, such as inside a string or an element.
FRAMES = {
    "sentences": ["{}"],
    "text": ["{}"],
    "bookcorpus": ["{}"],
    "gutenberg": ["{}", "*** START OF THE PROJECT GUTENBERG EBOOK ***\n\n{}"],
    "jsonl": ["{}", '{{"text": "{}'],
    "json": ["{}", '[{{"text": "{}'],
    "csv": ["text\n{}", 'text\n"{}'],
    "tsv": ["text\n{}", 'text\n"{}'],
    "wikiextractor": ['<doc id="1" url="" title="{}', '<doc id="1" url="" title="A">\n{}'],
    "wikipedia": ["<mediawiki><page><title>{}", "<mediawiki>{}"],
}


def _slow(function, size: int, marks=MARKS) -> dict[str, float]:
    taken = {mark: seconds(lambda mark=mark: function(_text(mark, size)), _LIMIT) for mark in marks}
    return {mark: time for mark, time in taken.items() if time > _LIMIT}


@sizes
@pytest.mark.parametrize("input_format", FRAMES)
def test_readers_take_linear_time_and_report_in_one_line(input_format, size):
    def read(text: str) -> None:
        for frame in FRAMES[input_format]:
            message = _message(input_format, frame.format(text))
            assert message.startswith("file") or not message
            assert "\n" not in message
            assert len(message) <= 400

    assert not _slow(read, size)


@sizes
def test_cleaning_of_one_long_paragraph(size):
    options = rules.CleaningOptions(end_punctuation=True)

    def clean(text: str) -> None:
        paragraphs = rules.clean_paragraphs([text], options, Counter(), [], Counter())
        rejection_reason(paragraphs, options)
        residual_markup.has_html([text])
        ngrams.plain_word_hashes(text)

    assert not _slow(clean, size)


@sizes
@pytest.mark.parametrize("name", segmenters.SEGMENTERS)
@pytest.mark.parametrize("language", ["en", "da"])
def test_segmentation_of_one_long_paragraph(name, language, size):
    # Only the English rules get all marks. Segmentation by sentencex alone takes most of the time, and it has other
    # rules for each language.
    marks = MARKS if name == "rules" and language == "en" else ["a", "'", '"', "(", "A. ", "... ", "• ", "中"]
    if name == "sentencex" and language == "da":
        # sentencex compiles a pattern for each period, in linear time of 90 s for 1 MB.
        marks.remove("A. ")
    assert not _slow(lambda text: segmenters.SEGMENTERS[name](text, language), size, marks)


def test_an_apostrophe_inside_quotes_is_matched_in_one_way():
    # With two ways to match an apostrophe, there were 2 ** 60 ways to match the text.
    text = '"' + "a'" * 60 + " said he. And so on."
    assert seconds(lambda: segmenters.split_sentences(text, "en"), _LIMIT) < _LIMIT


def test_sentencex_reads_a_long_text_in_windows_with_the_same_result():
    text = "The Rhine was high on that day. Its water rose, says Mr. Elbe, by 3.5 feet! Was it so? "
    sentences = segmenters.split_with_sentencex(text * 1500, "en")
    assert sentences == segmenters.split_with_sentencex(text, "en") * 1500


@sizes
@pytest.mark.parametrize("compiled", [True, False])
def test_tokenizer_and_learner_on_one_long_word(compiled, size):
    tokenizer = Tokenizer(Vocabulary((*SPECIAL_TOKENS, "a", "##a", "'")), do_lower_case=True, compiled=compiled)

    def tokenize(text: str) -> None:
        tokenizer.encode_batch([text])
        with contextlib.suppress(VocabularyError):
            learn_vocabulary(count_words([text, "a text of some words"], WordRules()), 20)

    assert not _slow(tokenize, size, ["a", "ab", "'", "a'", "é", "中", "\u0300", "a\u0300", " ", "\x00", "##"])


def test_nested_json_and_long_numbers_are_refused_with_a_line():
    for text in ("[" * 100_000, '{"a":' * 100_000, '[{"text": ' + "[" * 100_000, '{"text": ' + "9" * 5000 + "}"):
        for input_format in ("json", "jsonl"):
            with pytest.raises(SourceError, match="file, ") as error:
                _read(input_format, text)
            assert len(str(error.value)) < 400
