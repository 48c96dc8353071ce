import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.trainers.finetuning.tasks.tag_schemes import entities_of, entity_scores

# Recorded from seqeval 1.2.2, whose default mode equals conlleval.
TRUE = [
    "I-PER I-PER O B-LOC E-LOC",
    "S-LOC I-PER B-PER I-LOC I-LOC O",
    "O E-ORG E-ORG I-ORG S-ORG I-ORG",
    "B I O I B",
]
PREDICTED = [
    "I-PER I-PER O I-LOC I-LOC",
    "I-LOC B-PER I-PER B-LOC I-LOC I-LOC",
    "O B-ORG B-ORG I-ORG I-ORG I-ORG",
    "B I I I O",
]
BY_SENTENCE = [(1, 1, 1), (1 / 3, 1 / 4, 0.28571428571428575), (0.5, 0.2, 0.28571428571428575), (0, 0, 0)]
ALL = (0.5, 0.2857142857142857, 0.36363636363636365)
BY_TYPE = {
    "": (0, 0, 0, 3),
    "LOC": (0.666667, 0.666667, 0.666667, 3),
    "ORG": (0.5, 0.2, 0.285714, 5),
    "PER": (0.5, 0.333333, 0.4, 3),
}


def entities(sentences):
    splits = np.cumsum([0, *map(len, sentences)])
    return entities_of([tag for sentence in sentences for tag in sentence], splits)


def test_scores_equal_seqeval():
    true, predicted = ([row.split() for row in rows] for rows in (TRUE, PREDICTED))
    for one, other, wanted in zip(true, predicted, BY_SENTENCE, strict=True):
        assert entity_scores(entities([one]), entities([other]))[0][:3] == pytest.approx(wanted)
    scores, by_type = entity_scores(entities(true), entities(predicted))
    assert scores[:3] == pytest.approx(ALL)
    assert scores.true == 14
    assert list(by_type) == ["", "LOC", "ORG", "PER"]
    for kind, wanted in BY_TYPE.items():
        assert by_type[kind] == pytest.approx(wanted, abs=1e-6)


@given(
    st.lists(
        st.lists(st.tuples(*[st.sampled_from(["O", "B-X", "I-X", "B-Y", "I-Y", "B-Z"])] * 2), min_size=1, max_size=9),
        min_size=1,
        max_size=6,
    )
)
def test_scores_equal_set_operations(sentences):
    true, predicted = (entities([[pair[n] for pair in sentence] for sentence in sentences]) for n in (0, 1))
    sets = [set(zip(*(values.tolist() for values in side), strict=True)) for side in (true, predicted)]
    scores, by_type = entity_scores(true, predicted)
    for kind in (None, *by_type):
        of_kind = [{entity for entity in side if kind in (None, entity[2])} for side in sets]
        right = len(of_kind[0] & of_kind[1])
        found = scores if kind is None else by_type[kind]
        assert found.precision == (right / len(of_kind[1]) if of_kind[1] else 0)
        assert found.recall == (right / len(of_kind[0]) if of_kind[0] else 0)
        assert found.f1 == pytest.approx(2 * right / max(len(of_kind[0]) + len(of_kind[1]), 1))
        assert found.true == len(of_kind[0])
    assert set(by_type) == {entity[2] for side in sets for entity in side}


def test_no_entities():
    scores, by_type = entity_scores(entities([["O"]]), entities([["O"]]))
    assert scores == (0, 0, 0, 0)
    assert by_type == {}
