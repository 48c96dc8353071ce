"""Test that statistics add up, survive JSON, and equal counts of the written examples one by one."""

import json

import numpy as np
import pytest

from beambert.pipelines.dataset import PartitionOfSplit
from beambert.pipelines.examples import inspection
from beambert.pipelines.examples.example_reader import read_examples
from beambert.pipelines.examples.pretraining_examples import PretrainingExamples
from beambert.pipelines.examples.shards import write_shards
from beambert.pipelines.examples.statistics import Statistics, document_bin_start, total
from beambert.pipelines.instances.instances import from_sentences
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary

VOCAB = Vocabulary(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"{a}{b}" for a in "bcdfghkl" for b in "aeiou"), "##s", "."),
    "vocab.txt",
)
TOKENIZER = Tokenizer(VOCAB, True)
OPTIONS = PretrainingDataOptions(max_seq_length=32, max_predictions_per_seq=6)


def documents_of(seed: int):
    rng = np.random.default_rng(seed)
    sentences = rng.integers(1, 30, 40)
    lengths = rng.integers(1, 25, sentences.sum())
    ids = rng.integers(5, len(VOCAB), lengths.sum()).astype(np.int32)
    ids[::50] = VOCAB.unk_id
    return from_sentences(ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), sentences)


def shard(seed: int, output) -> tuple[Statistics, str]:
    documents = documents_of(seed)
    examples = PretrainingExamples(lambda _: documents, PartitionOfSplit("train", seed, 9), (0,), TOKENIZER, OPTIONS)
    (written,), statistics = write_shards(examples, 0, str(output))
    statistics.add_text(documents, VOCAB)
    return statistics, f"{output}/{written.name}"


@pytest.fixture
def three(tmp_path) -> list[tuple[Statistics, str]]:
    return [shard(seed, tmp_path) for seed in range(3)]


def test_total_equals_counts_of_the_examples_one_by_one(three):
    summed = total(statistics for statistics, _ in three)
    slow = Statistics()
    a, b = [], []
    for _, path in three:
        for features in read_examples(path):
            example = inspection.decode(features, len(VOCAB))
            inspection.count(slow, example, VOCAB)
            (text,) = inspection.as_text(example, VOCAB)
            a.append(text.a_tokens)
            b.append(text.b_tokens)
    for name in (
        *("rows", "positions", "instances", "instances_labeled_1", "instance_tokens"),
        *("masked_tokens", "masked_as_mask", "masked_as_random", "masked_as_original"),
    ):
        assert getattr(summed, name) == getattr(slow, name), name
    for name in ("instance_lengths", "row_lengths", "masked_in_row"):
        assert getattr(summed, name).tolist() == getattr(slow, name).tolist(), name
    assert summed.a_lengths.tolist() == np.bincount(a).tolist()
    assert summed.b_lengths.tolist() == np.bincount(b).tolist()
    assert summed.masked_as_mask + summed.masked_as_random + summed.masked_as_original == summed.masked_tokens > 0


def test_text_counts_equal_direct_counts(three):
    summed = total(statistics for statistics, _ in three)
    texts = [documents_of(seed) for seed in range(3)]
    ids = [piece for text in texts for piece in text.token_ids.tolist()]
    assert summed.piece_counts.tolist() == [ids.count(piece) for piece in range(len(VOCAB))]
    assert summed.tokens == len(ids)
    assert summed.unknown_tokens == ids.count(VOCAB.unk_id) > 0
    assert summed.documents == summed.document_lengths.sum() == 120
    assert summed.sentences == summed.sentence_lengths.sum() == sum(len(text.sentence_starts) - 1 for text in texts)
    assert (np.arange(len(summed.sentence_lengths)) * summed.sentence_lengths).sum() == len(ids)


def test_document_lengths_are_within_their_bins(three):
    lengths = np.arange(1, 5000)
    bins = np.floor(np.log2(lengths) * 2).astype(int)
    starts = document_bin_start(np.arange(bins.max() + 2))
    assert all(starts[b] <= length < starts[b + 1] for length, b in zip(lengths, bins, strict=True))


def test_the_order_of_adding_does_not_matter_and_nothing_is_changed(three):
    first, second, third = (statistics for statistics, _ in three)
    before = json.dumps(first.to_json())
    assert (first + second) + third == third + (second + first) == total([second, third, first])
    assert json.dumps(first.to_json()) == before
    assert first + Statistics() == first
    assert first != second


def test_statistics_survive_json(three):
    for statistics, _ in three:
        back = Statistics.from_json(json.loads(json.dumps(statistics.to_json())))
        assert back == statistics
        assert back.piece_counts.tolist() == statistics.piece_counts.tolist()
        assert back + statistics == statistics + statistics
    assert Statistics.from_json(json.loads(json.dumps(Statistics().to_json()))) == Statistics()
