"""Sentences of paragraphs; identity."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.documents import bucket_of, identity, is_validation
from pipelines.segmentation import document_sentences, split_sentences


def test_split_sentences_by_language():
    assert split_sentences("Dr. Smith came  home. He slept!\tWell?", "en") == [
        "Dr. Smith came home.",
        "He slept!",
        "Well?",
    ]
    assert split_sentences("Er kam z.B. um 8 Uhr. Sie ging.", "de") == ["Er kam z.B. um 8 Uhr.", "Sie ging."]
    assert split_sentences("你好。世界。", "zh") == ["你好。", "世界。"]
    assert split_sentences(" \n ", "en") == []


def test_sentences_never_cross_paragraphs_and_segmented_text_stays():
    assert document_sentences(["No end here", "but a new start. Yes."], "en", False) == [
        "No end here",
        "but a new start.",
        "Yes.",
    ]
    assert document_sentences(["One. Two.  Three.", " "], "en", True) == ["One. Two. Three."]


@given(st.text())
def test_no_character_but_whitespace_is_lost(text):
    assert "".join(split_sentences(text, "en")).replace(" ", "") == "".join(text.split())


def test_identity_is_of_the_text_alone():
    assert identity(["A.", "B."]) == identity(["A.", "B."])
    assert identity(["A.", "B."]) != identity(["A. B."])
    # blake2b-128 of "A.\nB.": a change of this would move every document to another bucket.
    assert identity(["A.", "B."]).hex() == "11ef33ab209ec00f0a32eff8eda22276"


def test_held_out_share_and_buckets_are_even():
    ids = [identity([str(number)]) for number in range(20_000)]
    share = sum(is_validation(i, 0.05) for i in ids) / len(ids)
    assert abs(share - 0.05) < 0.006
    assert not any(is_validation(i, 0.0) for i in ids)
    assert all(is_validation(i, 1.0) for i in ids)
    # Whoever is held out at 1 % is held out at 5 %.
    assert all(is_validation(i, 0.05) for i in ids if is_validation(i, 0.01))
    counts = [0] * 16
    for i in ids:
        counts[bucket_of(i, 16)] += 1
    assert min(counts) > 1100
    assert max(counts) < 1400
