"""Test sentence segmentation, truncation noise, document IDs, and their validation split and partitions."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.cleaning.rules import fold_whitespace
from beambert.pipelines.corpus.document_steps import segment_document
from beambert.pipelines.documents import Document, identity, is_validation, partition_of
from beambert.pipelines.segmentation.segmenters import (
    MAX_SENTENCE_CHARACTERS,
    SEGMENTERS,
    paragraph_segmenter,
    split_sentences,
    split_with_sentencex,
    truncate_sentences,
)

# By language: file names of the golden rules, and the minimum number of correct cases.
GOLDEN = {
    "am": ("amharic", 1),
    "ar": ("arabic", 1),
    "bg": ("bulgarian", 4),
    "da": ("danish", 44),
    "de": ("deutsch", 30),
    "el": ("greek", 1),
    "en": ("english english_clean issues", 148),
    "es": ("spanish", 31),
    "fa": ("persian", 1),
    "fr": ("french", 5),
    "hi": ("hindi", 1),
    "hy": ("armenian", 26),
    "it": ("italian", 36),
    "ja": ("japanese", 4),
    "kk": ("kazakh", 12),
    "mr": ("marathi", 5),
    "my": ("burmese", 1),
    "nl": ("dutch", 2),
    "pl": ("polish", 1),
    "ru": ("russian", 42),
    "sk": ("slovak", 5),
    "ur": ("urdu", 1),
    "zh": ("chinese", 2),
}
ODD = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(".!?…。।։ \"'“”„«»‘’()[]「」,1a•\x00\u0301\u200d\ud800\u2028A"),
    )
)


@pytest.fixture(scope="module")
def golden_rules(shared_data):
    """The cases of each file: (text, sentences, name of the set)."""
    rules = {}
    lines = (shared_data / "segmentation/golden_rules.jsonl").read_text(encoding="utf-8").splitlines()
    for case in map(json.loads, lines):
        sentences = [sentence if isinstance(sentence, str) else sentence[0] for sentence in case["sents"]]
        file = case["file"].removeprefix("test_").removesuffix(".py")
        rules.setdefault(file, []).append((case["text"], [fold_whitespace(s) for s in sentences], case["set"]))
    return rules


def without_whitespace(text):
    return "".join(text.split())


def ends(sentences):
    """Return the ends of the sentences, counted in characters that are not whitespace."""
    return {len(without_whitespace("".join(sentences[: number + 1]))) for number in range(len(sentences))}


def test_split_sentences_by_language():
    assert split_sentences("Dr. Smith came  home. He slept!\tWell?", "en") == [
        "Dr. Smith came home.",
        "He slept!",
        "Well?",
    ]
    assert split_sentences("Er kam z.B. um 8 Uhr. Sie ging.", "de") == ["Er kam z.B. um 8 Uhr.", "Sie ging."]
    # The apostrophe does not end the quotation.
    assert split_sentences("The sign 'Don't run. Walk.' was new.", "en") == ["The sign 'Don't run. Walk.' was new."]
    assert split_sentences("你好。世界。", "zh") == ["你好。", "世界。"]
    assert split_sentences(" \n ", "en") == []


def test_sentences_never_cross_paragraphs_and_segmented_text_stays():
    segmented = segment_document(Document(["No end here", "but a new start. Yes.", " "]), "en")
    assert segmented.paragraphs == ["No end here", "but a new start.\nYes."]
    segmented = segment_document(Document(["One. Two.  Three.", " "], segmented=True), "en")
    assert segmented.paragraphs == ["One. Two. Three."]


@given(ODD, st.sampled_from([*GOLDEN, "ca", "xx", "", "pt-BR"]))
def test_no_character_but_whitespace_is_lost(text, language):
    sentences = split_sentences(text, language)
    assert without_whitespace("".join(sentences)) == without_whitespace(text)
    assert all(sentence and sentence == fold_whitespace(sentence) for sentence in sentences)
    assert all(len(sentence) <= MAX_SENTENCE_CHARACTERS for sentence in sentences)
    assert sentences == split_sentences(text, language)


@pytest.mark.parametrize("language", GOLDEN)
def test_golden_rules(language, golden_rules):
    files, at_least = GOLDEN[language]
    cases = [case for file in files.split() for case in golden_rules[file]]
    assert sum(split_sentences(text, language) == sentences for text, sentences, _ in cases) >= at_least
    for text, _, _ in cases:
        assert without_whitespace("".join(split_sentences(text, language))) == without_whitespace(text)


@pytest.mark.parametrize("language", [language for language, (_, right) in GOLDEN.items() if right > 20])
def test_a_long_paragraph_is_split_as_well_as_short_ones(language, golden_rules):
    """Compare F1 on one paragraph of all gold sentences with F1 on paragraphs of five sentences.

    Both have nearly the same number of boundaries between sentences.
    """
    gold = [
        sentence
        for file in GOLDEN[language][0].split()
        for text, sentences, _ in golden_rules[file]
        if without_whitespace(text) == without_whitespace("".join(sentences))
        for sentence in sentences
        # Exclude list items: joined, they would be lists that start again within a paragraph, unlike real text.
        if not re.match(r"\W*(\d+|[a-z])[.)]", sentence) and sentence[-1] in ".!?։:"
    ]

    def f1(length):
        hits = total = 0
        for start in range(0, len(gold), length):
            paragraph = gold[start : start + length]
            expected, found = ends(paragraph), ends(split_sentences(" ".join(paragraph), language))
            hits += len(expected & found)
            total += len(expected) + len(found)
        return 2 * hits / total

    assert f1(len(gold)) > f1(5) - 0.02


@pytest.mark.parametrize("mark", list("\"'`«»“”„‘()[]{}<>「』"))
@pytest.mark.parametrize("language", ["en", "de", "ru"])
def test_unbalanced_mark_hides_no_boundaries(mark, language):
    sentences = [f'Then number {number} came "home" (late). Who saw it?' for number in range(300)]
    text = " ".join(sentences)
    spoilt = text.replace("number 7 ", f"number 7 {mark}").replace("number 200 ", f"number 200{mark} ")
    assert len(split_sentences(text, language)) == 600
    assert abs(len(split_sentences(spoilt, language)) - 600) <= 2


def test_rules_that_few_texts_need():
    """Test rules whose patterns are searched only in texts that may match."""
    assert split_sentences("? …? er", "de") == ["? …? er"]
    assert split_sentences("See a) Milk b) Bread.", "en") == ["See", "a) Milk", "b) Bread."]
    assert split_sentences("Fruit: • one • two", "en") == ["Fruit:", "• one", "• two"]
    assert split_sentences("Ein A\ud800. B \ud800 c. D", "de") == ["Ein A\ud800.", "B \ud800 c. D"]


def test_quotations_brackets_and_lists():
    assert split_sentences('He said: "Stop! Now!" and left. “Why?” (No one knew. Not he.)', "en") == [
        'He said: "Stop! Now!" and left.',
        "“Why?”",
        "(No one knew. Not he.)",
    ]
    assert split_sentences("A study found it (Smith 2003). [12] It was new.[3] Others agreed.", "en") == [
        "A study found it (Smith 2003). [12]",
        "It was new.[3]",
        "Others agreed.",
    ]
    assert split_sentences("He left. ) Then he came.» « Why?", "en") == ["He left. )", "Then he came.»", "« Why?"]
    assert split_sentences("1. Come home. Soon. 2. Eat", "en") == ["1. Come home.", "Soon.", "2. Eat"]
    assert split_sentences("他说「你好」，然后走了。1999年他来了。", "zh") == [
        "他说「你好」，然后走了。",
        "1999年他来了。",
    ]


def test_language_codes():
    text = "Er kam am 3. Mai z.B. um 8 Uhr. Sie ging."
    assert split_sentences(text, "de") == split_sentences(text, "de-AT") == split_sentences(text, "DE_ch")
    assert split_sentences("One. Two.", "no such language") == ["One.", "Two."]


@pytest.mark.parametrize(
    "text",
    ["x" * 100_000, "ab, cd " * 20_000, "文" * 10_000, "(" * 50_000, "!" * 100_000, '"a ' * 20_000, "e\u0301" * 9_999],
)
def test_text_without_sentence_ends_is_cut_without_loss(text):
    for language in ("en", "da", "zh"):
        sentences = split_sentences(text, language)
        assert without_whitespace("".join(sentences)) == without_whitespace(text)
        assert max(map(len, sentences)) <= MAX_SENTENCE_CHARACTERS
        assert len(sentences) <= 2 * len(text) / MAX_SENTENCE_CHARACTERS + 1


def test_a_long_sentence_is_cut_after_punctuation_or_a_blank():
    words = "word " * 399
    assert split_sentences(words + "here, " + words, "en")[0] == words + "here,"
    assert split_sentences(words * 2, "en")[0][-5:] == " word"
    assert "\u0301" not in {sentence[0] for sentence in split_sentences("xe\u0301" * 1000, "en")}


def test_segmenters():
    text = "Dr. Smith came.\nHe  slept. Well"
    assert SEGMENTERS["lines"](text, "en") == ["Dr. Smith came.", "He slept. Well"]
    assert SEGMENTERS["sentencex"](text, "en") == ["Dr. Smith came.", "He slept.", "Well"]
    assert paragraph_segmenter("en", False, "lines")(text) == ["Dr. Smith came.", "He slept. Well"]


@given(st.text(st.sampled_from("ab A1,-'\"(<>=/")), st.sampled_from(["en", "de", "el", "hy", "ja", "und"]))
def test_ascii_text_without_terminators_is_one_sentence_of_sentencex(text, language):
    folded = " ".join(text.split())
    assert split_sentences(folded, language) == [folded] * bool(folded)
    assert split_with_sentencex(folded, language) == [folded] * bool(folded)


def test_truncation_noise():
    sentences = [f"Sentence number {number} of a long text." for number in range(5000)]
    assert truncate_sentences(sentences, 0.0, b"id") == sentences
    noisy = truncate_sentences(sentences, 0.02, b"id")
    assert noisy == truncate_sentences(sentences, 0.02, b"id")
    assert noisy != truncate_sentences(sentences, 0.02, b"other")
    assert len(noisy) == len(sentences)
    cut = [(before, after) for before, after in zip(sentences, noisy, strict=True) if before != after]
    assert 60 < len(cut) < 140
    assert all(after and before.startswith(after + " ") for before, after in cut)
    assert {len(after.split()) for _, after in cut} == {1, 2, 3, 4, 5, 6}


@given(st.lists(st.text(min_size=1).map(fold_whitespace).filter(bool)), st.binary(min_size=16, max_size=16))
def test_truncation_keeps_the_beginning(sentences, document_id):
    noisy = truncate_sentences(sentences, 1.0, document_id)
    assert len(noisy) == len(sentences)
    assert all(after and before.startswith(after) for before, after in zip(sentences, noisy, strict=True))
    assert all(after != before for before, after in zip(sentences, noisy, strict=True) if len(before) > 1)


def test_identity_is_of_the_text_alone():
    assert identity(["A.", "B."]) == identity(["A.", "B."])
    assert identity(["A.", "B."]) != identity(["A. B."])
    # blake2b-128 of "A.\nB.": a change of this would move every document to another partition.
    assert identity(["A.", "B."]).hex() == "11ef33ab209ec00f0a32eff8eda22276"


def test_validation_fraction_and_even_partitions():
    ids = [identity([str(number)]) for number in range(20_000)]
    share = sum(is_validation(i, 0.05) for i in ids) / len(ids)
    assert abs(share - 0.05) < 0.006
    assert not any(is_validation(i, 0.0) for i in ids)
    assert all(is_validation(i, 1.0) for i in ids)
    # Documents in a validation split of 1 % are also in one of 5 %.
    assert all(is_validation(i, 0.05) for i in ids if is_validation(i, 0.01))
    counts = [0] * 16
    for i in ids:
        counts[partition_of(i, 16)] += 1
    assert min(counts) > 1100
    assert max(counts) < 1400
