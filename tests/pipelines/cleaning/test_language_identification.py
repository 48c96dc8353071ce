"""Test language identification on parallel English and German text, and on texts too short for a result."""

import json

import pytest

pytest.importorskip("py3langid", reason="the extra [clean] is not installed")

from beambert.pipelines.cleaning.language_identification import identify, is_other_language, sample


def contexts(shared_data, language):
    data = json.loads((shared_data / "squad" / f"xquad.{language}.json").read_text(encoding="utf-8"))["data"]
    return [paragraph["context"] for article in data for paragraph in article["paragraphs"]]


def test_xquad(shared_data):
    english, german = contexts(shared_data, "en")[::4], contexts(shared_data, "de")[::4]
    assert sum(identify(text) == "en" for text in english) >= 0.98 * len(english)
    assert sum(identify(text) == "de" for text in german) >= 0.98 * len(german)
    assert not any(is_other_language([text], "de") for text in german)
    assert all(is_other_language([text], "en") for text in german if len(text) >= 200)


def test_short_texts_are_not_judged_and_a_quotation_does_not_decide(shared_data):
    assert not is_other_language(["Guten Morgen, liebe Leute, wie geht es euch?"], "en")
    english, german = contexts(shared_data, "en")[0], contexts(shared_data, "de")[0]
    assert not is_other_language([german[:250], english * 5], "en")
    assert is_other_language([german], "en")
    assert not is_other_language([german], "de-AT")


def test_sample_is_short_and_of_the_text():
    text = ["".join(map(str, range(1000))), "end"]
    assert sample(["a", "b"]) == "a b"
    pieces = sample(text).split(" ")
    assert len(sample(text)) <= 1010
    assert sample(text).endswith("end")
    assert all(piece in " ".join(text) for piece in pieces)
