import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.trainers.finetuning.tasks.tag_schemes import (
    SCHEMES,
    Entities,
    detect,
    entities_of,
    first_unknown,
    labels_of,
    parse,
    scheme_of_labels,
    similar_tag,
    tags_of,
)


def listed(entities):
    return [tuple(entity) for entity in zip(*(values.tolist() for values in entities), strict=True)]


def entities_by_rule(tags, splits):
    """Return the entities, computed word by word from the rules of conlleval."""
    found = []
    for start, end in itertools.pairwise(splits):
        before, kind_before = "O", ""
        for place in range(start, end):
            letter, _, kind = tags[place].partition("-")
            letter = {"M": "I", "L": "E", "U": "S"}.get(letter, letter)
            begins = letter in "BS" or (letter in "IE" and (before in "OES" or kind != kind_before))
            if begins and letter != "O":
                found.append([place, place + 1, kind])
            elif letter != "O":
                found[-1][1] = place + 1
            before, kind_before = letter, kind
    return [tuple(entity) for entity in found]


@st.composite
def spans(draw):
    """Draw sentence splits, and entities within the sentences."""
    splits, entities = [0], []
    for size in draw(st.lists(st.integers(1, 8), min_size=1, max_size=5)):
        place = splits[-1]
        splits.append(place + size)
        while place < splits[-1]:
            end = draw(st.integers(place + 1, splits[-1]))
            kind = draw(st.sampled_from(["PER", "LOC", "A-B", "", None]))
            if kind is not None:
                entities.append((place, end, kind))
            place = end
    starts, ends, kinds = ([entity[number] for entity in entities] for number in range(3))
    return np.array(splits), Entities(np.array(starts, int), np.array(ends, int), np.array(kinds, str))


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "io"])
@given(spans())
def test_from_entities_to_tags_and_back(scheme, drawn):
    splits, entities = drawn
    tags = tags_of(entities, int(splits[-1]), scheme)
    assert first_unknown(tags, scheme) is None
    assert listed(entities_of(tags, splits)) == listed(entities)
    assert set(tags) <= set(labels_of(set(entities.types.tolist()), scheme))


@given(
    st.lists(
        st.lists(
            st.sampled_from(["O", "B-X", "I-X", "E-X", "S-X", "L-X", "U-X", "M-X", "I-Y", "B-Y", "E-Y", "I", "B"])
        ),
        min_size=1,
    )
)
def test_tags_that_break_the_rules(sentences):
    sentences = [sentence for sentence in sentences if sentence]
    splits = np.cumsum([0, *map(len, sentences)])
    tags = [tag for sentence in sentences for tag in sentence]
    assert listed(entities_of(tags, splits)) == entities_by_rule(tags, splits.tolist())


@pytest.mark.parametrize(
    ("tags", "found"),
    # Recorded from seqeval 1.2.2, whose ends are the last word of the entity; here they are the next word.
    [
        ("I-PER I-PER O B-LOC E-LOC", [(0, 2, "PER"), (3, 5, "LOC")]),
        ("S-LOC I-PER B-PER I-LOC I-LOC O", [(0, 1, "LOC"), (1, 2, "PER"), (2, 3, "PER"), (3, 5, "LOC")]),
        ("I-LOC B-PER I-PER B-LOC I-LOC I-LOC", [(0, 1, "LOC"), (1, 3, "PER"), (3, 6, "LOC")]),
        ("O E-ORG E-ORG I-ORG S-ORG I-ORG", [(place, place + 1, "ORG") for place in range(1, 6)]),
        ("B I O I B", [(0, 2, ""), (3, 4, ""), (4, 5, "")]),
    ],
)
def test_entities_equal_seqeval(tags, found):
    tags = tags.split()
    assert listed(entities_of(tags, np.array([0, len(tags)]))) == found


def test_every_scheme():
    entities = Entities(np.array([0, 1, 3, 6]), np.array([1, 3, 6, 7]), np.array(["X", "X", "X", "Y"]))
    written = {scheme: " ".join(tags_of(entities, 8, scheme)) for scheme in SCHEMES}
    assert written == {
        "iob1": "I-X B-X I-X B-X I-X I-X I-Y O",
        "iob2": "B-X B-X I-X B-X I-X I-X B-Y O",
        "iobes": "S-X B-X E-X B-X I-X E-X S-Y O",
        "bilou": "U-X B-X L-X B-X I-X L-X U-Y O",
        "bmes": "S-X B-X E-X B-X M-X E-X S-Y O",
        "io": "X X X X X X Y O",
    }
    splits = np.array([0, 8])
    for scheme, tags in written.items():
        if scheme != "io":
            assert detect(tags.split(), splits) == scheme
    assert listed(entities_of(written["io"].split(), splits, "io")) == [(0, 6, "X"), (6, 7, "Y")]
    assert detect(["O", "O"], np.array([0, 2])) is None
    # A single violation does not change the detected scheme.
    assert detect(["B-X", "O", "B-X", "I-X", "O", "I-X"], np.array([0, 6])) == "iob2"
    assert detect(["I-X", "O", "I-X", "I-X", "O", "B-X"], np.array([0, 6])) == "iob1"


def test_valid_and_invalid_tags():
    assert parse("B-PER") == ("B", "PER")
    assert parse("I-A-B") == ("I", "A-B")
    assert parse("I") == ("I", "")
    assert parse("person-actor", "io") == ("I", "person-actor")
    for tag in ("PER", "B-", "-PER", "b-PER", "B_PER", "X-PER", "", "NN", "0"):
        assert parse(tag) is None
    assert parse("E-PER", "iob2") is None
    assert first_unknown(["O", "B-PER", "PER", "NN"]) == 2
    assert first_unknown(["O", "B-PER"]) is None


@pytest.mark.parametrize(
    ("tag", "scheme", "meant"),
    [
        ("B_PER", None, "B-PER"),
        ("b-per", None, "B-PER"),
        ("b_per", None, "B-PER"),
        ("b-PER", None, "B-PER"),
        ("I:Per", "iob2", "I-Per"),
        ("PER-B", None, "B-PER"),
        ("s_geo_place", "bmes", "S-GEO_PLACE"),
        ("s_geo", "iob2", None),
        ("o", None, "O"),
        ("0", "iob1", "O"),
        ("b", None, "B"),
        ("PER", None, None),
        ("x-per", None, None),
        ("B-", None, None),
        ("", None, None),
    ],
)
def test_misspelled_tags_suggest_a_valid_one(tag, scheme, meant):
    assert parse(tag, scheme) is None
    assert similar_tag(tag, scheme) == meant


def test_classes():
    assert labels_of({"PER", "LOC"}, "iob2") == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert labels_of({"LOC"}, "iob1") == ("O", "B-LOC", "I-LOC")
    assert labels_of({"LOC"}, "iobes") == ("O", "S-LOC", "B-LOC", "I-LOC", "E-LOC")
    assert labels_of({"LOC", ""}, "iob2") == ("O", "B", "I", "B-LOC", "I-LOC")
    for scheme in SCHEMES:
        if scheme != "iob1":
            assert scheme_of_labels(labels_of({"PER", "LOC"}, scheme)) == scheme
    # A model with the shared task's original tags has no B- label for types that never required one.
    assert scheme_of_labels(("B-LOC", "I-LOC", "I-PER", "O")) == "iob1"
    assert scheme_of_labels(("LABEL_0", "LABEL_1")) is None
    assert scheme_of_labels(("O", "B-LOC", "x")) is None
