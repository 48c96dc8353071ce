import numpy as np
import pytest

pytest.importorskip("jax")

from beambert.bert_model.ops.jax.dropout import example_seeds, keep_mask

ELEMENTS = 2**20
RATES = [0.1, 0.5]


def masks_of_examples():
    """Return masks with rate 1/2: six examples at two consecutive steps, three consecutive sites, and small seeds."""
    steps = [keep_mask((6, ELEMENTS), 0.5, example_seeds(12345, step, 0, 6)) for step in (7, 8)]
    sites = [keep_mask((1, ELEMENTS), 0.5, example_seeds(12345, 7, 0, 1) + np.array([0, site])) for site in (1, 2)]
    pairs = [keep_mask((1, ELEMENTS), 0.5, np.array([[first, site]])) for first in (0, 1, 2) for site in (0, 1)]
    return np.concatenate([*steps, *sites, *pairs])


def normal_scores(both_dropped, count, rate):
    """Return the deviations from independence of counts of pairs that are both dropped, in standard deviations.

    A count over neighbors in one mask has a larger variance, because an element is in two pairs.
    """
    expected = rate**2
    variance = expected * (1 - expected) + 2 * (rate**3 - rate**4)
    return (np.array(both_dropped) - count * expected) / np.sqrt(count * variance)


@pytest.mark.parametrize("rate", RATES)
def test_rate(rate):
    """Check each of 16 examples and all of them together, to five standard deviations of a binomial count."""
    dropped = ~np.asarray(keep_mask((16, ELEMENTS), rate, example_seeds(1, 2, 3, 16)))
    for values in (*dropped, dropped):
        assert abs(values.mean() - rate) < 5 * (rate * (1 - rate) / values.size) ** 0.5


def test_examples_steps_sites_and_consecutive_seeds_are_independent():
    dropped = ~masks_of_examples()
    counts = [np.sum(dropped[first] & dropped[second]) for first in range(len(dropped)) for second in range(first)]
    scores = normal_scores(counts, ELEMENTS, 0.5)
    assert np.abs(scores).max() < 5
    # Counts over two masks have three fifths of the variance of counts over neighbors.
    assert np.std(scores) == pytest.approx(0.6**0.5, abs=0.2)


def test_masks_of_an_example_do_not_depend_on_the_others():
    shape = (4, 5, 7)
    whole = keep_mask((8, *shape), 0.3, example_seeds(1, 2, 40, 8))
    for start, count in ((0, 1), (1, 3), (4, 4)):
        part = keep_mask((count, *shape), 0.3, example_seeds(1, 2, 40 + start, count))
        np.testing.assert_array_equal(part, whole[start : start + count])
    # With one seed for a batch, positions are counted over the whole batch.
    shared = np.asarray(keep_mask((8, *shape), 0.3, np.array([1, 2], np.int32)))
    np.testing.assert_array_equal(shared.reshape(1, -1), keep_mask((1, 8 * 140), 0.3, np.array([[1, 2]], np.int32)))
    assert len({values.tobytes() for values in shared}) == 8


def test_masks_are_those_of_the_formula():
    """Check the formula, because masks must be equal in all releases, so that a resumed run continues with its own."""
    low = 2**32 - 1

    def mixed(word):
        word = (word ^ word >> 16) * 0x21F0AAAD & low
        word = (word ^ word >> 15) * 0x735A2D97 & low
        return word ^ word >> 15

    def keys(left, right):
        left, right = left & low, right & low
        for number in (1, 2, 3, 4):
            left, right = right ^ mixed(left + number * 0x9E3779B9 & low), left
        return left, right

    def kept(seed, position, rate):
        first, second = keys(*seed)
        word = first + 0x9E3779B9 * position & low
        word = (word ^ word >> 16) * 0x21F0AAAD & low ^ second
        return (word ^ word >> 15) * 0x735A2D97 & low >= round(rate * 2**32)

    seeds = example_seeds(12345, 99, 7, 3)
    first, second = keys(12345, 99)
    expected_seeds = [keys(first ^ example, second) for example in (7, 8, 9)]
    np.testing.assert_array_equal(np.asarray(seeds).view(np.uint32), expected_seeds)
    expected = [[kept(seed, position, 0.1) for position in range(60)] for seed in expected_seeds]
    np.testing.assert_array_equal(keep_mask((3, 3, 5, 4), 0.1, seeds), np.reshape(expected, (3, 3, 5, 4)))


def test_seeds_of_steps_and_examples_differ():
    seeds = np.concatenate([example_seeds(4, step, 0, 4096) for step in range(64)])
    assert seeds.dtype == np.int32
    assert len(np.unique(seeds, axis=0)) == len(seeds)
    np.testing.assert_array_equal(example_seeds(4, 5, 100, 8), example_seeds(4, 5, 0, 108)[100:])
    other_run = example_seeds(5, 0, 0, 4096)
    assert not (seeds[:4096] == other_run).all(axis=1).any()
