"""Test each cleaning rule on real examples, and the invariants of all rules."""

import dataclasses
import io
import re
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beambert.pipelines.cleaning import rules
from beambert.pipelines.cleaning.ngrams import count_words, ngram_keys, word_hashes, word_keys, word_spans
from beambert.pipelines.cleaning.personal_data import PERSONAL_DATA_RULES
from beambert.pipelines.cleaning.residual_markup import remove_residual_markup
from beambert.pipelines.cleaning.rules import CleaningOptions, clean_paragraphs, rejection_reason
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import gutenberg
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file

DEFAULT = CleaningOptions()


def letters(text: str) -> str:
    return "".join(filter(str.isalpha, text))


# From WikiExtractor's output of English Wikipedia, 2015, and Wikipedia's pages.
@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ('Albedo (), or "reflection coefficient"', 'Albedo, or "reflection coefficient"'),
        ("Ayn Rand (; born Alisa Zinov'yevna)", "Ayn Rand (born Alisa Zinov'yevna)"),
        ("Phoebus ( ; Φοῖβος, bright)", "Phoebus (Φοῖβος, bright)"),
        ("[[Category:Apple Newton]]", ""),
        ('"read online" at [[Google Books]].', '"read online" at Google Books.'),
        ("[[Berlin|the capital]] and [[Rome]]", "the capital and Rome"),
        ("[[File:PSAINS InteractStation7.jpg|250px|thumb|right|Petrosains.]]", ""),
        (" (Blažek 2006).<br>", " (Blažek 2006). "),
        ("the 2<sup>nd</sup> <i>Opus</i>", "the 2nd Opus"),
        ("It rose.<ref name=a>Smith 2001</ref> Then fell.<ref name=b />", "It rose. Then fell."),
        ("a<!-- hidden -->b", "ab"),
        ("'''Bold''' and ''italic'' text", "Bold and italic text"),
        ("== History ==", "History"),
        ("R&amp;D &#8211; x&nbsp;y", "R&D – x\xa0y"),
        ("caf&eacute; isn&rsquo;t &ldquo;closed&rdquo; 5 &euro;", "café isn’t “closed” 5 €"),
        ("&Auml;pfel &#x2014; &hearts; &nosuch; &copy 2020 a&lt=b", "Äpfel — ♥ &nosuch; &copy 2020 a&lt=b"),
        ("Aristotle&nbsp;(; Greek) was&nbsp;( ) here", "Aristotle (Greek) was here"),
        ('one<img src="a.png" alt="x"> <section class=a>two</section> <button>three</button>', "one   two   three "),
        ("<article><header>A</header><figure>B</figure></article><ins>c</ins>", "  A  B  c"),
        ('<label for="a">b</label> <time datetime="2020">May</time>', " b   May "),
        (
            "#include <map> and List<object> and <title> of <data>",
            "#include <map> and List<object> and <title> of <data>",
        ),
        ("born {{birth date|1950|{{nested}}}} in", "born  in"),
        ("#if: |&rft.au={{urlencode:}}{{#if:|", ""),
        ('height:13.0em; margin-left:0em; width:0.72em; ">', ""),
        # Code, and prose around code in a tag.
        ("|&rft.aulast={{urlencode: Snorri Sturluson", ""),
        ("#if: A Short Biographical Dictionary of English Literature", ""),
        ('| style="width:1.0em; padding:0 0 0 0.6em;"| - ||style="padding-left:0;text-align:left;"| 1914', ""),
        ("height:49.8482758621em;", ""),
        ('<poem style="margin-left:1em;">', ""),
        (
            'the headset was invented in 1989<span class="Z3988" title="ctx_ver=Z39.88-2004&rft.cc=US"> and 1992.',
            "the headset was invented in 1989 and 1992.",
        ),
        (
            'The keyboard of <span class="Z3988" title="ctx_ver=Z39.88-2004&rft.number=52"> has half the keys.',
            "The keyboard of  has half the keys.",
        ),
        # Text that resembles markup.
        ("3 < 4 > 2, and f() calls (nothing)", "3 < 4 > 2, and f() calls (nothing)"),
        ("`` so , '' he said , `` go , ''", "`` so , '' he said , `` go , ''"),
        ("the boys'' team's '' mark", "the boys'' team's '' mark"),
        ("AT&T; <unknown> a=b==c", "AT&T; <unknown> a=b==c"),
        ("We are #1: a 13 px; line", "We are #1: a 13 px; line"),
    ],
)
def test_residual_markup(dirty, clean):
    assert remove_residual_markup(dirty) == clean


@pytest.mark.parametrize("blank", [" ", "\xa0", "\t", "  ", " \u2009", "\u3000"], ids=ascii)
def test_rules_see_normalized_whitespace(blank):
    text = "ASCII ( ), abbreviated (; from A) was [citation needed] here."
    counts = Counter()
    (cleaned,) = clean_paragraphs([text.replace(" ", blank)], DEFAULT, counts)
    assert cleaned == "ASCII, abbreviated (from A) was here."
    assert counts[rules.WHITESPACE] == 1


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("Abraham Benjamin.[1] In 2005, it", "Abraham Benjamin. In 2005, it"),
        ("Greek alphabets.[3][12]", "Greek alphabets."),
        ("as of 2002[ [update]], the Sun", "as of 2002, the Sun"),
        ("History[edit]", "History"),
        ("Geschichte[Bearbeiten | Quelltext bearbeiten]", "Geschichte"),
        ("It is so.[citation needed] Some[who?] say[note 3]", "It is so. Some say"),
        # Indices, crystal orientations and additions to a quotation.
        ('formulas (E[0]=m) "uphold[ing] the wages"', 'formulas (E[0]=m) "uphold[ing] the wages"'),
        ("etching of silicon [100] produces", "etching of silicon [100] produces"),
    ],
)
def test_editorial_marks(dirty, clean):
    assert rules.remove_editorial_marks(dirty) == clean


def test_unicode_and_control_characters():
    assert rules.normalize_nfc("Cafe\u0301") == "Café"
    assert rules.remove_control_characters("computers—\u200bfollowing, جبال\u200e so\u00adft\x00") == (
        "computers—following, جبال soft"
    )
    # Persian and emoji need their joiners.
    for text in ("می\u200cخواهم", "👩\u200d🚀", "a\tb"):
        assert rules.remove_control_characters(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "This biographical article is a stub. You can help.",
        "Jump to navigation, search",
        "© 2015 Example Ltd. Some rights.",
        "All rights reserved.",
        "Please enable JavaScript to view this page.",
        "This page requires Java Script to work.",
        "The Example Company. All rights reserved.",
        "This website uses cookies to improve your experience.",
        "Privacy Policy | Terms of Use",
        "Read more »",
        "Click here to subscribe",
    ],
)
def test_boilerplate(text):
    assert rules.drop_boilerplate(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "The privacy policy of the state was debated for years.",
        "He read more than he wrote.",
        "She could not log in the register what she saw.",
        "All rights reserved to the crown were sold in 1302.",
        "The advertisement was in the paper.",
    ],
)
def test_boilerplate_leaves_prose(text):
    assert rules.drop_boilerplate(text) == text


def test_no_letters_and_end_punctuation():
    assert rules.drop_without_letters("}}{{ |") == ""
    assert rules.drop_without_letters('"42."') == '"42."'
    for text in ("He came.", '"Why?"', "It was (so.)", "好。", "So he said…”"):
        assert rules.require_end_punctuation(text) == text
    for text in ("Chapter 1", "Read more »", "and then"):
        assert rules.require_end_punctuation(text) == ""


def test_mojibake():
    pytest.importorskip("ftfy")
    assert rules.fix_mojibake("schÃ¶n â€“ MÃ¼nchen") == "schön – München"
    assert rules.fix_mojibake("Ã la carte") == "à la carte"
    for text in ("schön – München", "plain"):
        assert rules.fix_mojibake(text) == text


def test_counts_options_and_dropped_paragraphs():
    paragraphs = ["History[edit]", "  Two   blanks\tand a tab ", "* * *", "Read more", "", "Plain text."]
    counts: Counter[str] = Counter()
    dropped: list[tuple[str, str]] = []
    cleaned = clean_paragraphs(paragraphs, DEFAULT, counts, dropped)
    assert cleaned == ["History", "Two blanks and a tab", "Plain text."]
    assert counts == {"editorial_marks": 1, "whitespace": 1, "no_letters": 1, "boilerplate": 1}
    assert dropped == [("no_letters", "* * *"), ("boilerplate", "Read more")]
    options = CleaningOptions(skip_rules="boilerplate,editorial_marks,no_letters")
    kept = clean_paragraphs(paragraphs, options, Counter())
    assert kept == ["History[edit]", "Two blanks and a tab", "* * *", "Read more", "Plain text."]
    strict = clean_paragraphs(paragraphs, CleaningOptions(end_punctuation=True), Counter())
    assert strict == ["Plain text."]


@pytest.mark.parametrize("rule", [rule for rule in rules.SKIPPABLE if rule not in PERSONAL_DATA_RULES])
def test_every_rule_can_be_switched_off(rule):
    """Test each rule with a document that it changes or rejects, but not once the rule is skipped."""
    words = " ".join(f"word{number}x" for number in range(30))
    bad = {
        "residual_markup": ["a <b>tag</b>"],
        "editorial_marks": ["A fact.[1]"],
        "unicode_nfc": ["Cafe\u0301"],
        "control_characters": ["so\u00adft"],
        "boilerplate": ["Read more"],
        "no_letters": ["* * *"],
        "too_short": ["One sentence."],
        "symbols": [words + " ..." * 10],
        "digits": ["a1234567 " * 10 + "b7654321 " * 10],
        "non_letters": ["a 1 2 3 " * 5],
        "repeated_lines": ["This line comes again.", "Once."] * 2 + ["This line comes again."] * 8,
        "repeated_ngrams": [words[:100] + " again and " + words[:100] + f" {n}" for n in range(12)],
    }[rule]
    options = CleaningOptions(min_sentences=2 if rule == "too_short" else 1)
    others = ",".join(sorted(set(rules.SKIPPABLE) - {rule}))

    def outcome(options):
        counts: Counter[str] = Counter()
        sentences = clean_paragraphs(bad, options, counts)
        return set(counts) | {rejection_reason(sentences, options)} - {None, "no_text"} - {"whitespace"}

    assert outcome(dataclasses.replace(options, skip_rules=others)) - {"whitespace", None} == {rule}
    assert rule not in outcome(dataclasses.replace(options, skip_rules=rule))


def test_thresholds_reject():
    text = ["A sentence of six words here."]
    assert rejection_reason([], DEFAULT) == "no_text"
    assert rejection_reason(text, DEFAULT) is None
    assert rejection_reason(["Wait ...", "1914-1918"], DEFAULT) is None
    for options in (
        CleaningOptions(min_sentences=2),
        CleaningOptions(min_words=7),
        CleaningOptions(min_characters=30),
    ):
        assert rejection_reason(text, options) == "too_short"
    assert rejection_reason(text, CleaningOptions(min_words=6, min_characters=29)) is None


def test_ratios_by_hand():
    assert rules.symbol_ratio("# a ... b… c", 5) == 3 / 5
    assert rules.digit_ratio(b"ab 12\n") == 2 / 4
    assert rules.digit_ratio(b" ") == 0
    assert rules.non_letter_ratio("a1 22 \u00df --".encode(), 4) == 2 / 4
    assert rules.repeated_line_ratio(["ab", "cdef", "ab"]) == 2 / 8


def repeated_share(text: str) -> float:
    """Return the fraction of bytes in repeated 10-grams, computed the slow way with tuples of words."""
    words = text.split()
    runs = [tuple(words[start : start + 10]) for start in range(len(words) - 9)]
    counts = Counter(runs)
    inside = {start + offset for start, run in enumerate(runs) if counts[run] > 1 for offset in range(10)}
    lengths = [len(word.encode()) for word in words]
    return sum(lengths[place] for place in inside) / sum(lengths)


@given(st.integers(0, 2**32), st.integers(100, 400), st.integers(0, 60))
def test_repeated_ngrams_against_a_slow_count(seed, length, repeats):
    generator = np.random.default_rng(seed)
    words = [f"w{number}ß" for number in generator.integers(0, 500, length)]
    for start in generator.integers(0, length - 12, repeats // 10):
        words += words[start : start + 12]
    text = " ".join(words)
    data = text.encode()
    assert rules.repeated_ngram_ratio(data, word_spans(data)) == pytest.approx(repeated_share(text))


@given(st.lists(st.text("ab\u00e9 \n", max_size=150), max_size=6))
@example(["a" * 64 + "b", "a" + "a" * 63 + "b"])
@example(["abcdefgh", "abcdefgha", "abcdefghabcdefgh"])
@pytest.mark.parametrize("hash_words", [word_hashes, word_keys])
def test_hashes_are_equal_where_words_are(hash_words, texts):
    data = "\n".join(texts).encode()
    starts, lengths = word_spans(data)
    words = [data[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    assert words == re.split(rb"[\x00-\x20]+", data.strip(bytes(range(33)))) if words else not data.strip()
    assert count_words(data) == len(words)
    hashes = hash_words(data, starts, lengths).tolist()
    assert len(hashes) == len(words)
    assert len(set(hashes)) == len(set(words))
    assert len(set(zip(words, hashes, strict=True))) == len(set(words))


def test_ngram_keys_depend_on_order():
    hashes = np.array([1, 2, 3, 1, 2, 3, 3, 2, 1], np.uint64)
    keys = ngram_keys(hashes, 3).tolist()
    assert keys[0] == keys[3]
    assert len(set(keys)) == 6
    assert len(ngram_keys(hashes, 10)) == 0


# Text with the characters that rules look for.
marked = st.text(st.sampled_from(list("ab É.'\"()[]{}<>=|&;#*-_/!?1 2\n\t\u200b\u0301")) | st.characters(codec="utf-8"))


@given(st.lists(marked, max_size=5))
@example(["&#55296; &#0; &#9999999;"])
def test_cleaned_text_is_storable_folded_and_has_a_letter_or_digit(paragraphs):
    for paragraph in clean_paragraphs(paragraphs, DEFAULT, Counter()):
        assert paragraph == " ".join(paragraph.split())
        assert any(map(str.isalnum, paragraph))
        paragraph.encode("utf-8")
    rejection_reason(paragraphs, DEFAULT)


@given(st.text(st.characters(exclude_characters="<>[]{}&'#=`;")))
def test_text_without_marks_keeps_its_letters(text):
    if rules.drop_boilerplate(rules.fold_whitespace(text)):
        cleaned = "".join(clean_paragraphs([text], DEFAULT, Counter()))
        assert letters(cleaned) == letters(unicodedata.normalize("NFC", text))


def test_real_prose_passes(shared_data):
    """Test Wikipedia and a novel: only a page without text is rejected, and no letter of the novel is changed."""
    reasons: Counter[str | None] = Counter()
    paths = [shared_data / "wiki-extracted" / "enwiki-2015-00.bz2", shared_data / "gutenberg" / "pg1342.txt"]
    for path in paths:
        for document in read_file(str(path), ReadOptions(document_unit="chapter")):
            counts: Counter[str] = Counter()
            cleaned = clean_paragraphs(document.paragraphs, DEFAULT, counts)
            reasons[rejection_reason(cleaned, DEFAULT)] += 1
            if path.suffix == ".txt":
                assert cleaned == document.paragraphs
    assert reasons.total() - reasons[None] <= 1


def test_skipped_rules_may_have_blanks_and_any_order():
    options = CleaningOptions(skip_rules=" no_letters, boilerplate,,digits")
    assert options == CleaningOptions(skip_rules="boilerplate,digits,no_letters")
    assert not any(options.runs(rule) for rule in ("boilerplate", "digits", "no_letters"))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"skip_rules": "bolerplate"}, "invalid --skip_rules bolerplate: not a rule that can be skipped; choose from "),
        ({"skip_rules": "whitespace"}, "invalid --skip_rules whitespace: not a rule that can be skipped; choose from "),
    ],
)
def test_invalid_options(option, message):
    with pytest.raises(SourceError, match=message):
        CleaningOptions(**option)


_PROSE = "The river rose in the night and the lower town was flooded. "
_CODE = ("width:1.0em;", "padding:0px;", "#if: ", "&rft.genre=book", "{{urlencode:", "margin-left: 2px; color:red;")


@pytest.mark.parametrize("code", _CODE)
@pytest.mark.parametrize("times", [1, 4, 2000])
def test_prose_around_code_stays(code, times):
    text = f"{_PROSE * times}Set {code} for a table. {_PROSE * times}"
    cleaned = remove_residual_markup(text)
    assert code.strip() not in cleaned
    assert cleaned.split() == f"{_PROSE * times}Set  for a table. {_PROSE * times}".split()


@pytest.mark.parametrize("mark", [("x <a ", "> y"), ("<ref> x ", "</ref>"), ("{{ a ", "}}"), ("[[File:a ", "]]")])
def test_distant_marks_are_not_markup(mark):
    pages = _PROSE * 500
    cleaned = remove_residual_markup(f"Let {mark[0]}{pages}{mark[1]} be.")
    assert cleaned.count("lower town") == 500


def test_long_comment_is_kept_and_short_one_removed():
    assert remove_residual_markup(f"a <!-- {_PROSE * 500}--> b").count("lower town") == 500
    assert remove_residual_markup("a <!-- one --> b <!-- two --> c <!-- three") == "a  b  c <!-- three"


@given(
    st.lists(
        st.sampled_from(["é ご ", "x: y; ", *_CODE, "<b", ">", 'style="', "{{", "}}", "[[", "]]", " <!--", "-->"])
    ),
    st.integers(0, 3),
)
def test_sentences_between_marks_stay(marks, place):
    sentence = "We saw nine boats leave the small harbor at dawn."
    marks.insert(min(place, len(marks)), f" {sentence} ")
    text = "".join(f"{mark} {_PROSE}" for mark in marks)
    # Comments and templates are removed together with their content.
    if "<!--" not in marks and " <!--" not in marks and "{{" not in marks and "<b" not in marks:
        cleaned = remove_residual_markup(text)
        assert sentence in cleaned
        assert cleaned.count("lower town") == text.count("lower town")


def test_notes_in_books_do_not_remove_pages_of_text():
    pages = _PROSE * 500
    (document,) = gutenberg.read_documents(
        io.BytesIO(f"He came. [Illustration: a {pages}] Yes. Transcriber's note: {pages} end.".encode()),
        "book.txt",
        ReadOptions("gutenberg"),
    )
    assert "".join(document.paragraphs).count("lower town") == 1000
