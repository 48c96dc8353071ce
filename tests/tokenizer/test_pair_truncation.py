"""Test the lengths of a truncated pair against the published loop, which removes one token at a time."""

import numpy as np

from beambert.tokenizer.pair_truncation import truncated_lengths
from tests.pipelines.instances import reference_instances


def test_every_small_pair_at_once():
    first, second, room = (values.ravel() for values in np.mgrid[:9, :9, :20])
    kept = np.stack(truncated_lengths(first, second, room), axis=1)
    cases = zip(first, second, room, strict=True)
    assert kept.tolist() == [list(reference_instances.truncated_lengths(*case)) for case in cases]
    assert kept.dtype == np.int64
