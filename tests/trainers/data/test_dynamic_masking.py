"""Tests of dynamic masking: valid masks, their rates, new masks in every epoch, and the same masks after resuming."""

import dataclasses
import hashlib
import itertools

import numpy as np
import pytest

from beambert.pipelines.errors import DatasetError
from beambert.pipelines.instances.instances import Rows
from beambert.pipelines.instances.masking import MaskingVocabulary, mask_rows
from beambert.trainers.data.dynamic_masking import DynamicMasking, mask_batch
from beambert.trainers.data.example_order import stateless_hash
from beambert.trainers.data.pipeline import train_batches, validation_batches
from beambert.trainers.optimization.schedule import Stage
from tests.trainers.pretraining_shards import LENGTH, OPTIONS, PREDICTIONS, VOCABULARY, write_dataset

DYNAMIC = dataclasses.replace(OPTIONS, masking="dynamic")
TOKENS = np.arange(10, 1000, dtype=np.int32)
MASKING = DynamicMasking(0.15, 0.8, 0.1, mask_id=4, cls_id=2, sep_id=3, replacement_ids=TOKENS)
# Rows and their length, share of masked tokens, rates of [MASK] and random tokens, predictions, SHA-256 of the result.
RECORDED = [
    ((40, 64), 0.15, (0.8, 0.1), 10, "89454e17253f0cec"),
    ((40, 33), 0.9, (0.1, 0.7), 30, "c66e409b843a14b0"),
    ((300, 20), 0.4, (0.0, 1.0), 5, "caa01edab2cd6679"),
]


def text_batch(seed, rows, width):
    rng = np.random.RandomState(seed)  # NumPy has frozen this random stream (NEP 19).
    lengths = rng.randint(4, width + 1, size=rows)
    ids = rng.randint(10, 1000, size=(rows, width)).astype(np.int32)
    ids[:, 0] = 2
    ids[np.arange(rows), lengths - 1] = 3
    ids[:, 2] = 3
    mask = (np.arange(width) < lengths[:, None]).astype(np.int32)
    return ids * mask, mask


def draw(ids, mask, predictions, seed, masking=MASKING):
    features = {"input_ids": ids, "input_mask": mask, "other": np.ones(1)}
    original = ids.copy()
    masked = mask_batch(features, masking, predictions, stateless_hash(seed, np.arange(len(ids))))
    assert masked.pop("other") is features["other"]
    assert np.array_equal(ids, original)
    return masked


@pytest.mark.parametrize(("shape", "share", "rates", "predictions", "digest"), RECORDED)
def test_masks_equal_recorded_masks(shape, share, rates, predictions, digest):
    # Recorded: with other masks, a resumed run would not continue an earlier one.
    masking = DynamicMasking(share, *rates, mask_id=4, cls_id=2, sep_id=3, replacement_ids=TOKENS[:700])
    masked = draw(*text_batch(9, *shape), predictions, 8, masking)
    content = b"".join(masked[name].tobytes() for name in sorted(masked) if name != "input_mask")
    assert hashlib.sha256(content).hexdigest()[:16] == digest


def test_equal_random_numbers_are_taken_in_the_order_of_positions(monkeypatch):
    # 31-bit numbers of a row are rarely equal; here all of them are.
    monkeypatch.setattr(
        "beambert.trainers.data.dynamic_masking.extend_hash",
        lambda keys, numbers: np.full(np.broadcast_shapes(keys.shape, numbers.shape), 1 << 62, np.uint64),
    )
    ids, mask = np.full((2, 30), 5, np.int32), np.ones((2, 30), np.int32)
    ids[:, 0] = 2
    masked = draw(ids, mask, 4, 0, dataclasses.replace(MASKING, masked_lm_prob=1.0))
    assert masked["masked_lm_positions"].tolist() == [[1, 2, 3, 4]] * 2


@pytest.mark.parametrize(("predictions", "share"), [(20, 0.15), (3, 0.15), (64, 1.0), (10, 0.0)])
def test_masks_are_valid_and_counts_equal_those_of_static_masking(predictions, share):
    ids, mask = text_batch(1, 300, 64)
    masking = dataclasses.replace(MASKING, masked_lm_prob=share)
    masked = draw(ids, mask, predictions, 5, masking)
    maskable = (mask > 0) & (ids > 3)
    restored = masked["input_ids"].copy()
    for row in range(len(ids)):
        count = int(masked["masked_lm_weights"][row].sum())
        assert masked["masked_lm_weights"][row].tolist() == [1.0] * count + [0.0] * (predictions - count)
        positions = masked["masked_lm_positions"][row, :count]
        assert (np.diff(positions) > 0).all()
        assert maskable[row, positions].all()
        assert (masked["masked_lm_positions"][row, count:] == 0).all()
        assert (masked["masked_lm_ids"][row, count:] == 0).all()
        restored[row, positions] = masked["masked_lm_ids"][row, :count]
        elsewhere = np.setdiff1d(np.arange(64), positions)
        assert np.array_equal(masked["input_ids"][row, elsewhere], ids[row, elsewhere])
        assert np.isin(masked["input_ids"][row, positions], np.append(TOKENS, 4)).all()
    assert np.array_equal(restored, ids)

    nothing = np.zeros((len(ids), 1))
    rows = Rows(ids, ids, ids, mask.sum(axis=1), maskable, nothing, nothing, nothing)
    options = dataclasses.replace(OPTIONS, masked_lm_prob=share)
    vocab = MaskingVocabulary(4, TOKENS, np.zeros(1000, bool))
    of_job_2 = mask_rows(rows, predictions, options, vocab, np.random.default_rng(1))
    assert np.array_equal(masked["masked_lm_weights"], of_job_2.weights)


def test_rates_and_uniform_positions():
    rows, width = 20_000, 64
    ids = np.full((rows, width), 5, np.int32)
    ids[:, 0], ids[:, [30, 63]] = 2, 3
    masked = draw(ids, np.ones_like(ids), 20, 6)
    predicted = masked["masked_lm_weights"] > 0
    inserted = np.take_along_axis(masked["input_ids"], masked["masked_lm_positions"], axis=1)[predicted]
    n = len(inserted)
    assert n == rows * 10  # round(64 * 0.15)
    is_random = (inserted != 4) & (inserted != 5)
    for kind, expected in ((inserted == 4, 0.8), (is_random, 0.1), (inserted == 5, 0.1)):
        assert abs(kind.mean() - expected) < 3 * np.sqrt(expected * (1 - expected) / n)
    assert set(inserted[is_random]) == set(TOKENS)
    chosen = np.bincount(masked["masked_lm_positions"][predicted], minlength=width)
    assert chosen[[0, 30, 63]].sum() == 0
    assert (abs(chosen[ids[0] == 5] - n / 61) < 5 * np.sqrt(n / 61)).all()


def take(batches, count):
    return list(itertools.islice(batches, count))


def stages(batch_size, updates):
    return [Stage(data=0, batch_size=batch_size, first_step=0, end_step=updates, first_example=0)]


def equal(first, second):
    return all(np.array_equal(first[name], second[name]) for name in first) and first.keys() == second.keys()


def test_fresh_masks_in_every_epoch_and_the_same_when_resumed(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [12]}, options=DYNAMIC)
    batches = take(train_batches(tmp_path, dataset, stages(12, 4), 0, seed=1), 4)
    assert all(
        value.shape == (12, PREDICTIONS) for batch in batches for name, value in batch.items() if "masked" in name
    )
    # Each batch is an epoch with the same examples and other masks.
    texts = []
    for batch in batches:
        ids = batch["input_ids"].copy()
        row, slot = np.nonzero(batch["masked_lm_weights"])
        ids[row, batch["masked_lm_positions"][row, slot]] = batch["masked_lm_ids"][row, slot]
        texts.append(sorted(map(bytes, ids)))
        batch["masks"] = {
            bytes(text): tuple(positions)
            for text, positions in zip(ids, batch["masked_lm_positions"].tolist(), strict=True)
        }
    assert texts[0] == texts[1] == texts[2]
    assert sum(batches[0]["masks"][text] != batches[1]["masks"][text] for text in batches[0]["masks"]) >= 10
    for batch in batches:
        del batch["masks"]

    straight = take(train_batches(tmp_path, dataset, stages(5, 8), 0, seed=1), 8)
    resumed = take(train_batches(tmp_path, dataset, stages(5, 8), 4, seed=1), 8)
    assert len(resumed) == 4
    assert all(map(equal, straight[4:], resumed))
    assert not equal(straight[0], take(train_batches(tmp_path, dataset, stages(5, 1), 0, seed=2), 1)[0])


def test_the_same_place_in_a_batch_gets_other_masks_in_the_next(tmp_path):
    dataset = write_dataset(tmp_path, {("train", 0): [1]}, options=DYNAMIC)
    batches = take(train_batches(tmp_path, dataset, stages(1, 20), 0, seed=1), 20)
    assert len({batch["masked_lm_positions"].tobytes() for batch in batches}) >= 15


@pytest.mark.parametrize("changes", [{}, {"length_bins": (8, LENGTH)}, {"ragged": True, "objective": "mlm"}])
def test_evaluation_has_the_same_masks_whatever_the_batch_size(tmp_path, changes):
    options = dataclasses.replace(DYNAMIC, **changes)
    dataset = write_dataset(tmp_path, {("validation", 0): [70, 5]}, options=options)

    def rows(batch_size):
        batches = validation_batches(tmp_path, dataset, batch_size, max_batches=1000)
        return sorted(
            (bytes(ids), tuple(positions))
            for batch in batches
            for ids, positions, weight in zip(
                batch["input_ids"],
                batch["masked_lm_positions"].tolist(),
                batch["example_weights"],
                strict=True,
            )
            if weight
        )

    first = rows(7)
    assert len(first) == 75 * len(options.row_lengths)
    assert rows(7) == first
    assert rows(64) == first


def test_replacements_are_text_and_a_manifest_without_rates_is_refused(tmp_path):
    dataset = write_dataset(tmp_path, options=DYNAMIC)
    masking = DynamicMasking.from_dataset(tmp_path, dataset)
    assert masking.replacement_ids.tolist() == list(range(5, len(VOCABULARY)))
    assert (masking.mask_id, masking.masked_lm_prob) == (VOCABULARY.mask_id, 0.15)
    assert DynamicMasking.from_dataset(tmp_path, write_dataset(tmp_path / "masked")) is None
    with pytest.raises(DatasetError, match=r"dataset.json does not record the masking options .*'masked_lm_prob'"):
        DynamicMasking.from_dataset(tmp_path, dataclasses.replace(dataset, options={}))
