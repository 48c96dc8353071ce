"""Test decontamination with files of SQuAD and GLUE, against a slow search with sets of tuples of words."""

import json
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beambert.pipelines.cleaning.decontamination import (
    NGRAM,
    document_keys,
    evaluation_keys,
    find_shared_ngram,
    load_evaluation,
    read_evaluation_texts,
)
from beambert.pipelines.cleaning.ngrams import plain_words
from beambert.pipelines.errors import SourceError


def runs(text: str) -> set[tuple[str, ...]]:
    """Return all runs of 13 words, computed the slow way."""
    words = re.findall(r"[^\W_]+", text.lower())
    return {tuple(words[start : start + NGRAM]) for start in range(len(words) - NGRAM + 1)}


def test_a_contaminated_document_is_found_and_others_are_not(shared_data):
    path = shared_data / "squad" / "xquad.en.json"
    context = next(read_evaluation_texts(str(path)))
    keys = load_evaluation((str(path),)).keys
    words = context.split()
    disguised = " ".join(words[:20]).upper().replace(",", " ,").replace(" ", "  ")
    assert find_shared_ngram(["Something else first.", disguised, "And after."], keys)
    # The shared words cross a sentence boundary.
    assert find_shared_ngram(["My own. " + " ".join(words[:8]), " ".join(words[8:16])], keys)
    assert not find_shared_ngram([" ".join(words[:12]) + " different", "Nothing of it here at all."], keys)
    german = load_evaluation((str(shared_data / "squad" / "xquad.de.json"),)).keys
    assert not find_shared_ngram([context], german)


def test_text_and_json_lines(tmp_path):
    sentence = "one two three four five six seven eight nine ten eleven twelve thirteen"
    (tmp_path / "a.txt").write_text(f"Short.\n\n{sentence.replace(' six', chr(10) + 'six')}\n\nShort again.")
    (tmp_path / "a.jsonl").write_text(json.dumps({"a": ["x", {"b": sentence}]}) + "\n\n")
    for name in ("a.txt", "a.jsonl"):
        keys = load_evaluation((str(tmp_path / name),)).keys
        assert len(keys) == 1
        assert find_shared_ngram([sentence.title() + "!"], keys)


def test_errors_name_the_file(tmp_path):
    (tmp_path / "short.txt").write_text("Too short.")
    with pytest.raises(SourceError, match=r"short.txt: no text has 13 words"):
        load_evaluation((str(tmp_path / "short.txt"),))
    with pytest.raises(SourceError, match=r"nothing.txt cannot be"):
        load_evaluation((str(tmp_path / "nothing.txt"),))


def test_shared_ngram_names_the_first_file_with_it(tmp_path):
    texts = [" ".join(f"{name}{number}" for number in range(13)) for name in ("a", "b", "c")]
    (tmp_path / "one.txt").write_text(f"{texts[1]}\n\n{texts[0]}")
    (tmp_path / "two.txt").write_text(f"{texts[2]}\n\n{texts[1]}")
    one, two = str(tmp_path / "one.txt"), str(tmp_path / "two.txt")
    for paths in ((one, two), (two, one)):
        evaluation = load_evaluation(paths)
        described = [
            evaluation.describe(find_shared_ngram([f"And: {text.upper()}!"], evaluation.keys)) for text in texts
        ]
        assert described == [
            {"evaluation_file": path, "matching_words": text}
            for path, text in zip((one, paths[0], two), texts, strict=True)
        ]


def test_evaluation_texts_are_normalized_like_documents():
    document = " ".join(f"Việt{number} Hôtel" for number in range(7))
    keys = evaluation_keys([document])
    for evaluation in (
        unicodedata.normalize("NFD", document),
        document.replace("ô", "&#244;"),
        document.replace("Hôtel", "Hô\u00adtel"),
        "\ufeff" + document,
    ):
        assert (evaluation_keys([evaluation]) == keys).all()
        assert find_shared_ngram([evaluation], keys).words == " ".join(document.lower().split()[:NGRAM])


@pytest.mark.parametrize(
    "text",
    [
        "भारत की राजधानी नई दिल्ली है",
        "பாரதத்தின் தலைநகரம் புது தில்லி",
        "ভারতের রাজধানী নয়া দিল্লি",
        "กรุงเทพมหานคร เป็นเมืองหลวง ที่ใหญ่ที่สุด",
        "𑄌𑄋𑄴𑄟𑄳𑄦 𑄞𑄌𑄴",
    ],
    ids=["Hindi", "Tamil", "Bengali", "Thai", "Chakma"],
)
def test_vowel_signs_are_parts_of_words(text):
    text = unicodedata.normalize("NFC", text)
    assert plain_words(text) == text.split()
    assert plain_words("“" + text.replace(" ", "। – ") + "”") == text.split()


def test_joiners_and_variation_selectors_are_no_parts_of_words():
    assert plain_words("क्\u200dष می\u200cخواهم") == ["क्ष", "میخواهم"]
    assert plain_words("I ❤\ufe0f 葛\U000e0100") == ["i", "葛"]


words = st.lists(st.sampled_from(["a", "B", "é", "É", "Straße", "don't", "x_y", "–", "12", "漢字"]), max_size=40).map(
    " ".join
)


@given(words, words)
@example("É " * 13, "é " * 13)
def test_any_pair_of_texts_against_tuples(evaluation, document):
    keys = evaluation_keys([evaluation])
    assert len(keys) == len(runs(evaluation))
    found = find_shared_ngram([document], keys)
    shared = runs(evaluation) & runs(document)
    assert (found is not None) == bool(shared)
    # The result is the first shared run of the document, normalized as for the comparison.
    words_of_document = re.findall(r"[^\W_]+", document.lower())
    in_order = [tuple(words_of_document[start : start + NGRAM]) for start in range(len(words_of_document) - NGRAM + 1)]
    assert found is None or tuple(found.words.split(" ")) == next(run for run in in_order if run in shared)
    assert len(document_keys(document)) == max(0, len(re.findall(r"[^\W_]+", document.lower())) - NGRAM + 1)


@given(st.text(), st.text())
def test_no_text_raises(evaluation, document):
    find_shared_ngram([document], evaluation_keys([evaluation]))
