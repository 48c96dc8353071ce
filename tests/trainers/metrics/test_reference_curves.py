"""Test the recorded reference runs, which reports draw beside a run."""

import itertools

from trainers.metrics.reference_curves import REFERENCE_RUNS


def test_points_are_in_order_and_have_whole_sequences():
    for run in REFERENCE_RUNS:
        assert all(point.tokens % 128 == 0 for point in run.points), run.model
        assert all(0 < point.accuracy < 1 for point in run.points)
        for before, after in itertools.pairwise(run.points):
            assert before.tokens < after.tokens
            assert after.loss < before.loss + 0.1
