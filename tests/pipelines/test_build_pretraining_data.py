"""Test the random generators of shards, the random replacement tokens, and options out of range."""

import itertools

import pytest

from pipelines.dataset import PartitionOfSplit
from pipelines.errors import DatasetError
from pipelines.examples.pretraining_examples import generator
from pipelines.instances.masking import MaskingVocabulary
from pipelines.instances.options import PretrainingDataOptions
from tokenizer.vocabulary import Vocabulary


def test_draws_differ_between_shards_and_are_reproducible():
    shards = list(itertools.product((0, 1, 12345), ("train", "validation"), (0, 1, 7), (0, 1, 9)))
    first = [tuple(generator(shard[0], PartitionOfSplit(*shard[1:3], 1), shard[3]).random(4)) for shard in shards]
    assert len(set(first)) == len(shards)
    assert first == [
        tuple(generator(shard[0], PartitionOfSplit(*shard[1:3], 1), shard[3]).random(4)) for shard in shards
    ]
    # Recorded: another value would mean that every dataset built so far can no longer be rebuilt.
    assert generator(12345, PartitionOfSplit("train", 0, 1), 0).random() == 0.22733602246716966


def test_a_random_replacement_is_never_special_or_unused():
    vocab = Vocabulary(("[PAD]", "[unused0]", "a", "[UNK]", "[CLS]", "##b", "[SEP]", "[MASK]", "[unused17]", "[x]"))
    assert MaskingVocabulary.from_vocabulary(vocab).replacement_ids.tolist() == [2, 5, 9]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_seq_length", 7),
        ("max_predictions_per_seq", 0),
        ("max_predictions_per_seq", 129),
        ("masked_lm_prob", 1.01),
        ("short_seq_prob", -0.1),
        ("dupe_factor", 0),
        ("random_seed", -1),
    ],
)
def test_options_out_of_range_are_named(option, value):
    with pytest.raises(DatasetError, match=f"invalid --{option} {value}: must be from"):
        PretrainingDataOptions(**{option: value})
