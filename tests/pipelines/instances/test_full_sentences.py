"""Test instances of whole sentences of one document: against a plain implementation, and their invariants."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.instances.full_sentences import full_sentences
from tests.pipelines.instances import reference_instances as reference
from tests.pipelines.instances.reference_instances import GivenDraws
from tests.pipelines.toy_documents import Recorded, corpora, flat, numbered


@settings(max_examples=300, deadline=None)
@given(
    lengths=corpora, seed=st.integers(0, 2**32), max_seq_length=st.integers(8, 64), short=st.sampled_from([0, 0.1, 1])
)
def test_same_draws_give_the_instances_of_the_reference(lengths, seed, max_seq_length, short):
    documents, rng = numbered(lengths), Recorded(seed)
    instances = full_sentences(flat(documents), max_seq_length, short, rng)
    (targets,) = rng.uniforms
    draws = GivenDraws(short=targets[0], length=targets[1])
    expected = [instance.a for instance in reference.full_sentences(documents, max_seq_length, short, draws)]
    tokens = flat(documents).token_ids
    found = [tokens[a : a + n].tolist() for a, n in zip(instances.a_start, instances.a_length, strict=True)]
    assert found == expected
    # Every token occurs exactly once.
    assert [token for run in found for token in run] == tokens.tolist()
    assert instances.tokens_truncated == instances.segments_dropped == 0
    assert not instances.b_length.any()
    assert not instances.labels.any()
    assert (instances.lengths <= max_seq_length).all()


def test_sentences_stay_whole_where_they_fit():
    documents = flat(numbered([[5, 5, 4, 30, 2], [3]]))
    instances = full_sentences(documents, 16, 0.0, np.random.default_rng(0))
    # 5 + 5 + 4 fill a row of 14. 30 is split into 14 + 14 + 2, and this rest shares a row with the next sentence.
    assert instances.a_length.tolist() == [14, 14, 14, 4, 3]


def test_a_short_target_cuts_no_sentence():
    documents = flat(numbered([[5] * 40] * 20))
    instances = full_sentences(documents, 16, 1.0, np.random.default_rng(0))
    assert set(instances.a_length.tolist()) == {5, 10}


def test_no_documents_give_no_instances():
    assert len(full_sentences(flat([]), 16, 0.1, np.random.default_rng(0))) == 0
