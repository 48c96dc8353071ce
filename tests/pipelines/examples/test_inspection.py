"""Test the text form of examples: marks of masks, labels, and every layout of a row."""

import numpy as np
import pytest

from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples.inspection import MASK, OTHER, SAME, Span, as_text, count, decode
from beambert.pipelines.examples.statistics import Statistics
from beambert.tokenizer.vocabulary import Vocabulary

VOCAB = Vocabulary(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "play", "##ing", "##s", "dog", ".", "a\x1bb"),
    "vocab.txt",
)


def ids(text: str) -> np.ndarray:
    return np.array([VOCAB.ids[piece] for piece in text.split()])


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def plain(spans: list[Span]) -> str:
    return "".join(f"{'' if span.glued or not number else ' '}{span}" for number, span in enumerate(spans))


def padded() -> dict[str, np.ndarray]:
    """Return `the cat sat` / `playing dogs .` with three masks, in the format of google-research/bert."""
    return {
        "input_ids": ids("[CLS] the [MASK] sat [SEP] play ##ing cat ##s . [SEP] [PAD] [PAD]"),
        "input_mask": integers(*[1] * 11, 0, 0),
        "segment_ids": integers(*[0] * 5, *[1] * 6, 0, 0),
        "masked_lm_positions": integers(2, 6, 7, 0),
        "masked_lm_ids": integers(VOCAB.ids["cat"], VOCAB.ids["##ing"], VOCAB.ids["dog"], 0),
        "masked_lm_weights": np.array([1, 1, 1, 0], np.float32),
        "next_sentence_labels": integers(1),
    }


def test_masks_are_marked_by_kind_of_replacement():
    (text,) = as_text(decode(padded(), len(VOCAB)), VOCAB)
    assert plain(text.a) == "the [cat→MASK] sat"
    assert plain(text.b) == "play[##ing→##ing] [dog→cat]s ."
    assert [span.kind for span in (*text.a, *text.b) if span.kind] == [MASK, SAME, OTHER]
    assert (text.label, text.a_tokens, text.b_tokens, text.masked) == (1, 3, 5, 3)


def test_rows_without_padding_give_the_same_text():
    features = padded()
    ragged = {name: values[:11] for name, values in features.items()}
    ragged |= {name: features[name][:3] for name in features if name.startswith("masked_lm")}
    parquet = {name: ragged[name] for name in ragged if name not in ("input_mask", "masked_lm_weights")}
    expected = as_text(decode(features, len(VOCAB)), VOCAB)
    assert as_text(decode(ragged, len(VOCAB)), VOCAB) == expected
    assert as_text(decode(parquet, len(VOCAB)), VOCAB) == expected
    assert (decode(features, len(VOCAB)).row_length, decode(parquet, len(VOCAB)).row_length) == (13, 11)


def test_packed_row_is_split_into_its_instances():
    features = {
        "input_ids": ids("[CLS] the [SEP] cat [SEP] [CLS] [MASK] [SEP] sat . [SEP] [PAD]"),
        "input_mask": integers(*[1] * 11, 0),
        "segment_ids": integers(0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0),
        "sequence_ids": integers(*[1] * 5, *[2] * 6, 0),
        "masked_lm_positions": integers(6, 0),
        "masked_lm_ids": integers(VOCAB.ids["dog"], 0),
        "masked_lm_weights": np.array([1, 0], np.float32),
        "next_sentence_positions": integers(0, 5, 0),
        "next_sentence_labels": integers(0, 1, 0),
        "next_sentence_weights": np.array([1, 1, 0], np.float32),
    }
    first, second = as_text(decode(features, len(VOCAB)), VOCAB)
    assert (plain(first.a), plain(first.b), first.label, first.masked) == ("the", "cat", 0, 0)
    assert (plain(second.a), plain(second.b), second.label, second.masked) == ("[dog→MASK]", "sat .", 1, 1)


def test_rows_without_pairs_and_without_masks():
    features = {
        "input_ids": ids("[CLS] the cat . [SEP]"),
        "input_mask": integers(*[1] * 5),
        "segment_ids": integers(*[0] * 5),
    }
    example = decode(features, len(VOCAB))
    (text,) = as_text(example, VOCAB)
    assert (plain(text.a), text.b, text.label, example.masks) == ("the cat .", [], None, False)


def test_continuations_and_control_characters_at_the_edges():
    features = {"input_ids": ids("[CLS] ##ing ##s the a\x1bb [MASK] ##s")}
    features |= {"masked_lm_positions": integers(5), "masked_lm_ids": integers(VOCAB.ids["##ing"])}
    (text,) = as_text(decode(features, len(VOCAB)), VOCAB)
    assert plain(text.a) == "##ings the a\\u001bb[##ing→MASK]s"


def test_inconsistent_examples_are_errors():
    with pytest.raises(DatasetError, match=r"token id 13, but the vocabulary has 12 tokens.*--vocab_file"):
        decode({"input_ids": ids("the a\x1bb")}, 12)
    with pytest.raises(DatasetError, match="masked position 40 in an example of 13 positions"):
        decode(padded() | {"masked_lm_positions": integers(2, 6, 40, 0)}, len(VOCAB))
    with pytest.raises(DatasetError, match="have different lengths"):
        decode(padded() | {"masked_lm_ids": integers(1)}, len(VOCAB))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"input_ids": np.ones(13, np.float32)}, "input_ids has values that are missing or are not integers"),
        ({"masked_lm_positions": np.array([2, 6, 7, np.nan])}, "masked_lm_positions has values that are missing or"),
        ({"next_sentence_labels": np.array([np.nan])}, "next_sentence_labels has values that are missing or"),
        ({"next_sentence_labels": integers(-1)}, "label -1 .* must be 0 or 1"),
        ({"next_sentence_labels": integers(2)}, "label 2 .* must be 0 or 1"),
        ({"input_ids": -integers(*range(13))}, "token id -1, but the vocabulary has 14 tokens"),
        ({"masked_lm_positions": integers(2, -3, 7, 0)}, "masked position -3 in an example of 13 positions"),
        ({"input_mask": integers(0, 0, *[1] * 11)}, "has padding before tokens"),
    ],
)
def test_invalid_values_are_errors(changed, message):
    with pytest.raises(DatasetError, match=message) as caught:
        decode(padded() | changed, len(VOCAB))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", [0, 7])
def test_rows_without_tokens_have_no_instances(length):
    row = {name: np.zeros(length, np.int64) for name in ("input_ids", "input_mask", "segment_ids")}
    example = decode(row | {"next_sentence_labels": integers(0)}, len(VOCAB))
    assert (example.instances, as_text(example, VOCAB), example.row_length) == ([], [], length)
    statistics = Statistics()
    count(statistics, example, VOCAB)
    assert (statistics.rows, statistics.positions, statistics.instances, statistics.tokens) == (1, length, 0, 0)


def test_numbers_of_examples_add_up():
    statistics = Statistics()
    for _ in range(3):
        count(statistics, decode(padded(), len(VOCAB)), VOCAB)
    assert statistics.numbers() == Statistics().numbers() | {
        "rows": 3,
        "positions": 39,
        "instances": 3,
        "instances_labeled_1": 3,
        "instance_tokens": 33,
        "tokens": 24,
        "masked_tokens": 9,
        "masked_as_mask": 3,
        "masked_as_random": 3,
        "masked_as_original": 3,
    }
    assert statistics.row_lengths.nonzero()[0].tolist() == [11]
    assert statistics.masked_in_row.nonzero()[0].tolist() == [3]
    assert statistics.piece_counts[VOCAB.ids["dog"]] == 3
