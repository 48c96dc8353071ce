"""Test `beambert evaluate` against a slow loop in NumPy: one masked copy at a time, without padding."""

import math
import tracemalloc

import numpy as np
import pytest

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.errors import TrainingError
from beambert.trainers.evaluation.evaluation_run import encode_pairs
from beambert.trainers.evaluation.minimal_pairs import MinimalPair
from beambert.trainers.evaluation.text_scores import masked_lm_scores, masked_windows, mean_score, pseudo_log_likelihood
from beambert.trainers.evaluation.text_windows import text_windows
from beambert.trainers.inference import masked_scoring
from beambert.trainers.inference.masked_scoring import MaskedScorer, distinct_copies, masked_copies
from beambert.trainers.inference.model_loading import load_model
from tests.conftest import ROOT
from tests.trainers.random_models import TEXTS, VOCABULARY, write_model

# Its weights have a large standard deviation, so that the context changes the predictions.
HUGGING_FACE = ROOT / "tests/fixtures/hugging_face/pretraining_erf"
SENTENCES = [
    "the sea is near",
    "an iron tier",
    "a",
    "x!?",
    "the sea is near",
]


@pytest.fixture(scope="module")
def model():
    return load_model(HUGGING_FACE)


def encoded(model, texts):
    tokenizer = model.tokenizer()
    return [
        np.array(
            [tokenizer.vocabulary.cls_id, *tokenizer.encode_batch([text])[0], tokenizer.vocabulary.sep_id], np.int32
        )
        for text in texts
    ]


def log_softmax(logits):
    logits = np.asarray(logits).astype(np.float64)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def slow_log_probabilities(model, row, whole_word=False):
    """Return the log-probability of each token by definition: mask it, run the model and look up its value.

    With `whole_word`, the following tokens that start with ## are masked too.
    """
    tokens = model.vocabulary.tokens
    result = []
    for place in range(1, len(row) - 1):
        copy = row.copy()
        copy[place] = model.vocabulary.mask_id
        later = place + 1
        while whole_word and tokens[row[later]].startswith("##"):
            copy[later] = model.vocabulary.mask_id
            later += 1
        features = {
            "input_ids": copy[None],
            "input_mask": np.ones_like(copy)[None],
            "segment_ids": np.zeros_like(copy)[None],
            "masked_lm_positions": np.arange(len(copy))[None],
        }
        result.append(log_softmax(model.model(features).masked_lm[0, place])[row[place]])
    return np.array(result)


@pytest.mark.parametrize(("whole_word", "batch_size"), [(False, None), (True, 3)])
def test_log_probabilities_are_those_of_a_slow_loop(model, whole_word, batch_size):
    rows = encoded(model, SENTENCES)
    scorer = MaskedScorer(model, model.max_seq_length, batch_size)
    found = scorer.token_log_probabilities(rows, whole_word=whole_word)
    wanted = [slow_log_probabilities(model, row, whole_word) for row in rows]
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert max(np.abs(scores).max() for scores in wanted) > 3


def test_memory_is_linear_in_the_number_of_scores(model, monkeypatch):
    rng = np.random.default_rng(1)
    # All words of one token have the same copy, with as many labels.
    lengths = [1] * 3000 + [5] * 3000
    rows = [np.array([2, *rng.integers(5, len(model.vocabulary), size), 3], np.int32) for size in lengths]
    scorer = MaskedScorer(model, 18)

    def batches(copies, segments, positions, labels):
        order = rng.permutation(len(copies)).tolist()
        for batch in (order[start : start + 100] for start in range(0, len(order), 100)):
            found = np.zeros((len(batch) + 1, max(len(labels[index]) for index in batch)), np.float32)
            for row, index in enumerate(batch):
                found[row, : len(labels[index])] = labels[index]
            yield batch, found

    monkeypatch.setattr(scorer._labels, "batches", batches)
    tracemalloc.start()
    scores = scorer.token_log_probabilities(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    for row, of_row in zip(rows, scores, strict=True):
        assert of_row.dtype == np.float32
        assert of_row.tolist() == row[1:-1].tolist()
    # A matrix of copies and labels has 12,000 x 3,000 numbers.
    assert peak < 50e6


def test_masked_copies_by_hand():
    row = np.array([2, 10, 11, 12, 13, 3], np.int32)
    continues = np.isin(np.arange(20), [11, 12])
    assert masked_copies(row, 4).tolist() == [
        [2, 4, 11, 12, 13, 3],
        [2, 10, 4, 12, 13, 3],
        [2, 10, 11, 4, 13, 3],
        [2, 10, 11, 12, 4, 3],
    ]
    assert masked_copies(row, 4, continues).tolist() == [
        [2, 4, 4, 4, 13, 3],
        [2, 10, 4, 4, 13, 3],
        [2, 10, 11, 4, 13, 3],
        [2, 10, 11, 12, 4, 3],
    ]
    # A window may start within a word.
    assert masked_copies(np.array([2, 11, 12, 3], np.int32), 4, continues).tolist() == [[2, 4, 4, 3], [2, 11, 4, 3]]


def test_texts_that_differ_in_a_token_share_a_copy(model):
    first, second = encoded(model, ["a b c", "a d c"])
    copies = distinct_copies([first, second], model.vocabulary.mask_id)
    assert len(copies.rows) == 5
    assert [labels.tolist() for labels in copies.labels if len(labels) > 1] == [[first[2], second[2]]]


def test_chunks_change_nothing(model, monkeypatch):
    rows = encoded(model, SENTENCES)
    scorer = MaskedScorer(model, 18)
    wanted = scorer.token_log_probabilities(rows)
    monkeypatch.setattr(masked_scoring, "TOKENS_A_CHUNK", 40)
    assert len(list(masked_scoring._chunks(rows))) > 3
    reported = []
    found = scorer.token_log_probabilities(rows, report=lambda tokens, positions: reported.append((tokens, positions)))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert sum(tokens for tokens, _ in reported) == sum(len(row) - 2 for row in rows)


def test_masked_lm_scores_are_those_of_a_slow_loop(model):
    tokenizer = model.tokenizer()
    windows = text_windows([*SENTENCES, "rain on a tin roof near the sea"], tokenizer, 16)
    scores = masked_lm_scores(MaskedScorer(model, 16), windows)
    rows, positions, labels = masked_windows(windows.rows, model.vocabulary, 16)
    losses, hits = [], []
    for row, places, originals, count in zip(rows, positions, labels, windows.counts, strict=True):
        features = {
            "input_ids": row[None],
            "input_mask": np.ones_like(row)[None],
            "segment_ids": np.zeros_like(row)[None],
            "masked_lm_positions": places[None],
        }
        for logits, original in zip(np.asarray(model.model(features).masked_lm[0]), originals, strict=True):
            losses += [-log_softmax(logits)[original]] * count
            hits += [int(np.argmax(logits)) == original] * count
    assert scores.loss.mean == pytest.approx(np.mean(losses), abs=1e-5)
    assert scores.accuracy.mean == pytest.approx(np.mean(hits))
    assert scores.loss.tokens == scores.accuracy.tokens == len(losses)


def test_masks_are_15_percent_and_depend_on_the_window_alone():
    windows = text_windows(TEXTS, Tokenizer(VOCABULARY), 64)
    rows, positions, labels = masked_windows(windows.rows, VOCABULARY, 64)
    masked, total, kinds = 0, 0, {"[MASK]": 0, "same": 0, "other": 0}
    for before, after, places, originals in zip(windows.rows, rows, positions, labels, strict=True):
        assert len(set(places.tolist())) == len(places) == max(1, round(0.15 * len(before)))
        assert before[places].tolist() == originals.tolist()
        assert 0 not in places
        assert len(before) - 1 not in places
        others = np.delete(np.arange(len(before)), places)
        np.testing.assert_array_equal(before[others], after[others])
        for original, new in zip(originals, after[places], strict=True):
            kinds["[MASK]" if new == VOCABULARY.mask_id else "same" if new == original else "other"] += 1
        masked, total = masked + len(places), total + len(before)
    assert masked / total == pytest.approx(0.15, abs=0.01)
    assert kinds["[MASK]"] / masked == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / masked))
    assert kinds["other"] / masked == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / masked))
    # Neither the order nor the padding matters.
    again, _, _ = masked_windows(windows.rows[::-1], VOCABULARY, 80)
    assert [row.tolist() for row in again[::-1]] == [row.tolist() for row in rows]


def test_pseudo_perplexity_counts_repeated_windows(model):
    tokenizer = model.tokenizer()
    texts = ["the sea", "a tin", "the sea"]
    windows = text_windows(texts, tokenizer, 18)
    loss = pseudo_log_likelihood(MaskedScorer(model, 18), windows)
    tokens = np.concatenate([slow_log_probabilities(model, row) for row in encoded(model, texts)])
    assert loss.mean == pytest.approx(-tokens.mean(), abs=1e-5)
    assert loss.tokens == len(tokens)


def test_the_standard_error_is_that_of_a_ratio():
    generator = np.random.default_rng(0)
    means = []
    for _ in range(2000):
        tokens = generator.integers(1, 20, 50).astype(float)
        sums = tokens * generator.normal(3, 1, 50)
        means.append(mean_score(sums, tokens, np.ones(50, np.int64)))
    assert np.mean([score.standard_error for score in means]) == pytest.approx(np.std([s.mean for s in means]), rel=0.1)
    twice = mean_score(sums[:25], tokens[:25], np.full(25, 2))
    listed = mean_score(np.repeat(sums[:25], 2), np.repeat(tokens[:25], 2), np.ones(50, np.int64))
    assert twice == pytest.approx(listed)
    assert mean_score(np.ones(1), np.ones(1), np.ones(1, np.int64)).standard_error is None


def test_constant_logits_are_ties(tmp_path):
    """Check that zero weights predict every token with probability 1 / V, so that sentences of equal length are ties.

    Of sentences of different lengths, the shorter one has the higher score.
    """
    write_model(tmp_path / "model", without=("cls/predictions/output_bias",))
    model = load_model(tmp_path / "model")
    for variable in model.model.variables:
        variable.assign(np.zeros(variable.shape, np.float32))
    pairs = [MinimalPair("a b", "a c", "p", "", "f", 1), MinimalPair("a b", "a b", "p", "", "f", 2)]
    rows = encode_pairs(pairs, Tokenizer(model.vocabulary), 64)
    scores = MaskedScorer(model, 64).token_log_probabilities(rows.rows)
    sums = np.array([of_row.sum() for of_row in scores])
    np.testing.assert_allclose(sums, -2 * math.log(len(VOCABULARY)), rtol=1e-6)
    assert not (sums[rows.good] > sums[rows.bad]).any()


def test_sentences_that_cannot_be_scored():
    tokenizer = Tokenizer(VOCABULARY)
    with pytest.raises(TrainingError, match=r"f, line 7: a sentence has 12 tokens with \[CLS\] and \[SEP\], more than"):
        encode_pairs([MinimalPair("a", "a " * 10, "p", "", "f", 7)], tokenizer, 11)
    with pytest.raises(TrainingError, match="f, line 7: a sentence has no tokens"):
        encode_pairs([MinimalPair("\u200b\x07", "a", "p", "", "f", 7)], tokenizer, 11)


def test_equal_sentences_are_encoded_once():
    pairs = [MinimalPair("A b", "a  b", "p", "", "f", 1), MinimalPair("c", "a b", "p", "", "f", 2)]
    encoded_pairs = encode_pairs(pairs, Tokenizer(Vocabulary(VOCABULARY.tokens)), 11)
    assert len(encoded_pairs.rows) == 2
    assert (encoded_pairs.good.tolist(), encoded_pairs.bad.tolist()) == ([0, 1], [0, 0])
