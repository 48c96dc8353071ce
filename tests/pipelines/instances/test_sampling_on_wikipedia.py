"""Test instances of real text: their invariants, and rows and masks against the published procedure."""

import itertools
import random

import numpy as np
import pytest

from pipelines.corpus.segmentation import document_sentences
from pipelines.instances.instances import TokenizedDocuments, from_sentences
from pipelines.instances.layout import lay_out, one_instance_per_row
from pipelines.instances.masking import MaskingVocabulary, mask_rows
from pipelines.instances.noise import add_noise
from pipelines.instances.options import OBJECTIVES, PretrainingDataOptions
from pipelines.instances.sampling import sample_instances
from pipelines.sources import read_file
from pipelines.sources.files import ReadOptions
from tests.pipelines.instances import reference_instances as reference
from tests.pipelines.toy_documents import document_of_token
from tokenizer.tokenizer import Tokenizer

DOCUMENTS = 250
OPTIONS = {objective: PretrainingDataOptions(objective=objective) for objective in OBJECTIVES}
BALANCED = PretrainingDataOptions(balance_next_sentence=True)


@pytest.fixture(scope="module")
def tokenizer(shared_data) -> Tokenizer:
    return Tokenizer.load(shared_data / "tokenizer" / "bert-base-uncased-vocab.txt")


@pytest.fixture(scope="module")
def documents(shared_data, tokenizer) -> TokenizedDocuments:
    """The first articles of Wikipedia, about 700,000 tokens."""
    path = str(shared_data / "wiki-extracted" / "enwiki-2015-00.bz2")
    articles = itertools.islice(read_file(path, ReadOptions()), DOCUMENTS)
    sentences = [document_sentences(article.paragraphs, "en", segmented=False) for article in articles]
    ids, splits = tokenizer.encode_batch([sentence for article in sentences for sentence in article])
    return from_sentences(ids, splits, np.array([len(article) for article in sentences]))


def sampled(documents, options, seed=1):
    return sample_instances(documents, options, np.random.default_rng(seed))


def uses(documents, starts, lengths) -> np.ndarray:
    """Return the number of runs that contain each token: int64 [tokens]."""
    changes = np.zeros(len(documents.token_ids) + 1, np.int64)
    np.add.at(changes, starts, 1)
    np.add.at(changes, starts + lengths, -1)
    return np.cumsum(changes[:-1])


@pytest.mark.parametrize("options", [*OPTIONS.values(), BALANCED], ids=[*OBJECTIVES, "balanced"])
def test_every_segment_is_a_run_of_one_document(documents, options):
    instances = sampled(documents, options)
    of_token = document_of_token(documents)
    for start, length in ((instances.a_start, instances.a_length), (instances.b_start, instances.b_length)):
        last = np.maximum(start + length - 1, start)
        assert (of_token[start] == of_token[last]).all()
    assert (instances.a_length >= 1).all()
    assert (instances.lengths <= options.max_seq_length).all()


@pytest.mark.parametrize("options", [OPTIONS["nsp"], BALANCED], ids=["nsp", "balanced"])
def test_b_follows_a_or_is_from_another_document(documents, options):
    pairs = sampled(documents, options)
    of_token = document_of_token(documents)
    is_next = pairs.labels == 0
    assert (pairs.b_length >= 1).all()
    assert ((of_token[pairs.a_start] == of_token[pairs.b_start]) == is_next).all()
    gap = (pairs.b_start - pairs.a_start - pairs.a_length)[is_next]
    # Only truncated tokens are between A and B, and only pairs that fill their row are truncated.
    assert (gap >= 0).all()
    full = pairs.lengths[is_next] == options.max_seq_length
    assert (gap[~full] == 0).all()
    assert gap.sum() <= pairs.tokens_truncated
    # A random B never has the text of A, unless A has fewer than six tokens.
    for row in np.flatnonzero(~is_next):
        a = documents.token_ids[pairs.a_start[row] :][: pairs.a_length[row]]
        b = documents.token_ids[pairs.b_start[row] :][: pairs.b_length[row]]
        assert len(a) < 6 or not np.array_equal(a, b)


def test_swapped_segments_are_neighbours_and_half_are_swapped(documents):
    options = OPTIONS["sop"]
    pairs = sampled(documents, options)
    swapped = pairs.labels == 1
    first_end = np.where(swapped, pairs.b_start + pairs.b_length, pairs.a_start + pairs.a_length)
    second = np.where(swapped, pairs.a_start, pairs.b_start)
    assert (second >= first_end).all()
    assert (second == first_end)[pairs.lengths < options.max_seq_length].all()
    assert abs(swapped.mean() - 0.5) < 3 * 0.5 / len(pairs) ** 0.5


@pytest.mark.parametrize("options", [*OPTIONS.values(), BALANCED], ids=[*OBJECTIVES, "balanced"])
def test_reported_truncation_equals_lost_tokens(documents, options):
    instances = sampled(documents, options)
    own_b = np.ones(len(instances), bool) if options.objective == "sop" else instances.labels == 0
    used = uses(documents, instances.a_start, instances.a_length)
    used += uses(documents, instances.b_start[own_b], instances.b_length[own_b])
    assert used.max() == 1
    assert instances.tokens_packed == len(documents.token_ids)
    # In "sop", a chunk of one token is dropped, and counted separately.
    lost = instances.tokens_truncated + (instances.segments_dropped if options.objective == "sop" else 0)
    assert np.count_nonzero(used == 0) == lost
    assert options.objective != "mlm" or lost == 0
    # Lost tokens are next to a truncated pair, which fills its row.
    full = instances.lengths == options.max_seq_length
    borders = np.zeros(len(documents.token_ids) + 1, bool)
    for start, length in ((instances.a_start, instances.a_length), (instances.b_start, instances.b_length)):
        borders[start[full]] = borders[(start + length)[full]] = True
    changes = np.diff(np.concatenate([[0], used == 0, [0]]))
    lost_starts, lost_ends = np.flatnonzero(changes == 1), np.flatnonzero(changes == -1)
    assert np.count_nonzero(~(borders[lost_starts] | borders[lost_ends])) <= instances.segments_dropped


def test_full_sentences_are_whole_and_as_many_as_fit(documents):
    options = OPTIONS["mlm"]
    instances = sampled(documents, options)
    bounds = set(documents.sentence_starts.tolist())
    ends = (instances.a_start + instances.a_length).tolist()
    outside = sum(end not in bounds for end in ends)
    # An instance ends inside a sentence only if the sentence is longer than a row.
    sentence_lengths = np.diff(documents.sentence_starts)
    assert outside <= (sentence_lengths // (options.max_seq_length - 2)).sum()
    without_short = sampled(documents, PretrainingDataOptions(objective="mlm", short_seq_prob=0.0))
    after = without_short.a_start + without_short.a_length  # ascending, as documents are
    next_end = documents.sentence_starts[np.searchsorted(documents.sentence_starts, after[:-1], side="right")]
    same = np.diff(document_of_token(documents)[without_short.a_start]) == 0
    # One more sentence, or the rest of a long one, would not have fit.
    assert ((next_end - without_short.a_start[:-1])[same] > options.max_seq_length - 2).all()


def test_balance_makes_half_of_the_labels_1(documents):
    assert sampled(documents, OPTIONS["nsp"]).labels.mean() > 0.51
    for seed in range(3):
        assert abs(sampled(documents, BALANCED, seed).labels.mean() - 0.5) < 0.01


def test_rows_and_masks_are_those_of_the_reference(documents, tokenizer):
    options, vocab = OPTIONS["nsp"], tokenizer.vocabulary
    pairs = sampled(documents, options)
    plan = one_instance_per_row(np.arange(len(pairs)))
    rows = lay_out(documents.token_ids, pairs, plan, options.max_seq_length, options.instances_per_row, vocab)
    masked = mask_rows(
        rows,
        options.max_predictions_per_seq,
        options,
        MaskingVocabulary.from_vocabulary(vocab),
        np.random.default_rng(2),
    )
    rng, special = random.Random(2), {vocab.cls_id, vocab.sep_id}
    kinds = {"mask": 0, "same": 0, "other": 0}
    theirs = dict(kinds)
    tokens = 0
    for number in range(len(pairs)):
        a, b = (
            documents.token_ids[start[number] :][: length[number]].tolist()
            for start, length in ((pairs.a_start, pairs.a_length), (pairs.b_start, pairs.b_length))
        )
        ids, segments = reference.row(reference.Instance(a, b, 0), vocab.cls_id, vocab.sep_id)
        length = len(ids)
        assert rows.input_ids[number, :length].tolist() == ids
        assert rows.segment_ids[number, :length].tolist() == segments
        assert (rows.input_ids[number, length:] == vocab.pad_id).all()
        expected, places, labels = reference.mask(
            ids, special, options.masked_lm_prob, options.max_predictions_per_seq, vocab.mask_id, len(vocab), rng
        )
        count = int(masked.weights[number].sum())
        assert count == len(places)
        tokens += length
        ours = masked.input_ids[number, masked.positions[number, :count]].tolist()
        for kind, inserted, originals in (
            (kinds, ours, masked.label_ids[number, :count].tolist()),
            (theirs, [expected[place] for place in places], labels),
        ):
            for new, old in zip(inserted, originals, strict=True):
                kind["mask" if new == vocab.mask_id else "same" if new == old else "other"] += 1
    total = sum(kinds.values())
    assert total == sum(theirs.values())
    assert 0.14 < total / tokens < 0.152
    for kind, share in (("mask", 0.8), ("same", 0.1), ("other", 0.1)):
        error = 3 * (share * (1 - share) / total) ** 0.5
        assert abs(kinds[kind] / total - share) < error
        assert abs(theirs[kind] / total - share) < error


def test_copies_have_other_pairs_and_other_masks(documents, tokenizer):
    options, vocab = OPTIONS["nsp"], tokenizer.vocabulary

    def places(pairs):
        runs = (pairs.a_start, pairs.a_length, pairs.b_start, pairs.b_length)
        return set(zip(*(run.tolist() for run in runs), strict=True))

    first, second = sampled(documents, options, 1), sampled(documents, options, 2)
    assert len(places(first) & places(second)) < 0.05 * len(first)

    # Equal instances, as those of the copies in "mlm", have different masks.
    options = OPTIONS["mlm"]
    instances = sampled(documents, options)
    plan = one_instance_per_row(np.arange(len(instances)))
    rows = lay_out(documents.token_ids, instances, plan, options.max_seq_length, options.instances_per_row, vocab)
    one, other = (
        mask_rows(
            rows,
            options.max_predictions_per_seq,
            options,
            MaskingVocabulary.from_vocabulary(vocab),
            np.random.default_rng(seed),
        )
        for seed in (1, 2)
    )
    # Nine or more positions among at least 58 tokens are never equal by chance.
    long = rows.lengths >= 60
    assert (one.positions != other.positions).any(axis=1)[long].all()


def test_noise_on_real_text(documents, tokenizer):
    noisy, count = add_noise(documents, 0.05, tokenizer, np.random.default_rng(3))
    bounds, new_bounds = documents.sentence_starts.tolist(), noisy.sentence_starts.tolist()
    assert np.array_equal(noisy.document_starts, documents.document_starts)
    changed = long_words = 0
    for i in range(0, len(bounds) - 1, 5):
        old = tokenizer.decode(documents.token_ids[bounds[i] : bounds[i + 1]]).split(" ")
        new = tokenizer.decode(noisy.token_ids[new_bounds[i] : new_bounds[i + 1]]).split(" ")
        for old_word, new_word in zip(old, new, strict=True):
            long_words += len(old_word) >= 4 and old_word.isalpha()
            changed += old_word != new_word
            assert abs(len(old_word) - len(new_word)) <= 1
    # Three standard deviations.
    assert abs(changed - 0.05 * long_words) < 3 * (long_words * 0.05 * 0.95) ** 0.5
    assert abs(count - 5 * changed) < 0.1 * count
