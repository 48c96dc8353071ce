"""Test masked-LM samples: masked examples with the predictions of the model, as lines of text."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.monitoring.mlm_samples import FILLED, mlm_samples
from tests.trainers.pretraining_shards import VOCABULARY, random_features

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "##s",
    "a",
    "mat",
    ",",
    "it",
    "'",
    "well",
    "-",
    "known",
    "(",
    "or",
    ")",
    ".",
    "\u200b",
]
ENGLISH = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS), "vocab.txt")


def batch(*rows: str, length: int = 24, room: int = 4):
    """Return the features of rows of tokens; a masked token is written `visible>original`."""
    features = {
        "input_ids": np.zeros((len(rows), length), np.int64),
        "input_mask": np.zeros((len(rows), length), np.int64),
        "masked_lm_positions": np.zeros((len(rows), room), np.int64),
        "masked_lm_ids": np.zeros((len(rows), room), np.int64),
        "masked_lm_weights": np.zeros((len(rows), room), np.float32),
    }
    for row, text in enumerate(rows):
        masked = 0
        for position, word in enumerate(["[CLS]", *text.split(" "), "[SEP]"]):
            seen, _, original = word.partition(">")
            features["input_ids"][row, position] = ENGLISH.ids[seen]
            features["input_mask"][row, position] = 1
            if original:
                features["masked_lm_positions"][row, masked] = position
                features["masked_lm_ids"][row, masked] = ENGLISH.ids[original]
                features["masked_lm_weights"][row, masked] = 1
                masked += 1
    return features


def logits_for(features, *pieces: str, share: float = 0.75):
    """Return logits that predict the given tokens at the masks in order, each with probability `share`."""
    weights = features["masked_lm_weights"]
    logits = np.full((*weights.shape, len(ENGLISH) + 3), np.log((1 - share) / (len(ENGLISH) - 1)), np.float32)
    # Entries of a padded vocabulary that are no token are never predicted.
    logits[..., len(ENGLISH) :] = 50
    for (row, slot), piece in zip(np.argwhere(weights > 0), pieces, strict=True):
        logits[row, slot, ENGLISH.ids[piece]] = np.log(share)
    return logits


def test_masks_are_shown_with_original_prediction_and_probability():
    features = batch(
        "the [MASK]>cat ##s sat on a>the mat , well - known ( or it ' ##s ) [MASK]>.",
        "it sat>sat [MASK]>##s [SEP] a mat",
    )
    lines = mlm_samples(features, logits_for(features, "mat", "the", ".", "cat", "##s"), ENGLISH)
    assert lines == [
        "the [cat→mat 75%]s sat on [the→the 75%] mat, well-known (or it's) [.→. 75%]",
        "it [sat→cat 75%][##s→##s 75%] [SEP] a mat",
    ]


def test_padding_rows_and_rows_without_masks_are_skipped():
    features = batch("the [MASK]>cat", "it sat", "a [MASK]>mat", "the [MASK]>mat", "on [MASK]>it")
    features["example_weights"] = np.array([1, 1, 0, 1, 1], np.float32)
    logits = logits_for(features, "the", "a", "cat", "on", share=0.5)
    lines = mlm_samples(features, logits, ENGLISH, examples=2)
    assert lines == ["the [cat→the 50%]", "the [mat→cat 50%]"]


def test_long_rows_begin_shortly_before_the_first_mask():
    text = " ".join(["on"] * 12 + ["[MASK]>it"] + ["a"] * 9)
    features = batch(text)
    logits = logits_for(features, "it")
    short = mlm_samples(features, logits, ENGLISH, most_tokens=12)
    assert short == ["… on on on [it→it 75%] a a a a a a a a …"]
    (at_end,) = mlm_samples(features, logits, ENGLISH, most_tokens=18)
    assert at_end == "… on on on on on on on on [it→it 75%] a a a a a a a a a"
    (whole,) = mlm_samples(features, logits, ENGLISH, most_tokens=22)
    assert "…" not in whole


def test_unprintable_characters_are_escaped():
    features = batch("the [MASK]>\u200b")
    assert mlm_samples(features, logits_for(features, "\u200b"), ENGLISH) == [r"the [\u200b→\u200b 75%]"]


def test_predictions_are_parsed_from_a_line():
    line = "a [SEP][##s→##t 3%] [[→[SEP] 4%] [##[→] 5%][→→→ 6%] [x] → y"
    assert FILLED.findall(line) == [("##s", "##t", "3%"), ("[", "[SEP]", "4%"), ("##[", "]", "5%"), ("→", "→", "6%")]


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2]), st.integers(1, 40))
def test_any_example_is_one_line_with_its_masks(seed, instances, most):
    generator = np.random.default_rng(seed)
    features = random_features(generator, 3, instances=instances)
    if instances > 1:
        del features["input_mask"]
    logits = generator.normal(size=(3, features["masked_lm_ids"].shape[1], len(VOCABULARY))).astype(np.float32)
    lines = mlm_samples(features, logits, VOCABULARY, examples=10, most_tokens=most)
    assert len(lines) == 3
    decoder = Tokenizer(VOCABULARY, do_lower_case=True)
    for row, line in enumerate(lines):
        assert line.isprintable()
        masked = int(features["masked_lm_weights"][row].sum())
        assert 1 <= line.count("→") <= masked
        if most >= 32:
            assert line.count("→") == masked
            # With the originals in place of the predictions and without spaces, the line equals the row.
            original = features["input_ids"][row].copy()
            original[features["masked_lm_positions"][row, :masked]] = features["masked_lm_ids"][row, :masked]
            length = np.flatnonzero(features.get("sequence_ids", features.get("input_mask"))[row])[-1] + 1
            expected = decoder.decode(original[1 : length - 1])
            found = FILLED.sub(r"\1", line)
            assert found.replace(" ", "").replace("##", "") == expected.replace(" ", "").replace("##", "")
