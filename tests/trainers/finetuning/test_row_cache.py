import dataclasses
import io

import numpy as np
import pytest

from beambert.bert_model.heads import HEADS
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.errors import TrainingError
from beambert.trainers.finetuning.finetuning_task import parse_class_weights
from beambert.trainers.finetuning.row_cache import encode_cached, fingerprint
from tests.trainers.finetuning.rows_of_random_text import random_rows
from tests.trainers.random_models import VOCABULARY

# Offsets in an entry of the directory of a zip archive.
FLAGS, COMPRESSION = 8, 10


class CountedTask:
    """A task that counts how often its rows are encoded."""

    name, labels, head = "counted", ("a", "b", "c"), HEADS["classification"]

    def __init__(self, digest="1"):
        self.digest, self.made = digest, 0

    def fingerprint(self, split):
        return self.digest + split

    def rows(self, split, tokenizer, max_seq_length):
        self.made += 1
        return dataclasses.replace(
            random_rows("classification"), truncated=3, skipped=2, extras={"places": np.arange(4, dtype=np.int64)}
        )


def test_rows_are_encoded_once_for_the_same_inputs(tmp_path):
    task, tokenizer = CountedTask(), Tokenizer(VOCABULARY)
    first = encode_cached(task, "train", tokenizer, 16, tmp_path / "features")
    again = encode_cached(task, "train", tokenizer, 16, tmp_path / "features")
    assert task.made == 1
    for name in ("ids", "segment_ids", "row_splits"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
        assert getattr(first, name).dtype == getattr(again, name).dtype
    assert (again.truncated, again.skipped, again.choices) == (3, 2, 1)
    assert np.array_equal(again.targets["label_ids"], first.targets["label_ids"])
    assert np.array_equal(again.extras["places"], np.arange(4))
    encode_cached(task, "dev", tokenizer, 16, tmp_path / "features")
    encode_cached(task, "train", tokenizer, 17, tmp_path / "features")
    encode_cached(task, "train", Tokenizer(VOCABULARY, do_lower_case=False), 16, tmp_path / "features")
    assert task.made == 4
    other = CountedTask("2")
    encode_cached(other, "train", tokenizer, 16, tmp_path / "features")
    assert other.made == 1


def test_corrupt_cache_file_is_rewritten(tmp_path):
    task, tokenizer = CountedTask(), Tokenizer(VOCABULARY)
    encode_cached(task, "train", tokenizer, 16, tmp_path)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    # The entry of the first array in the directory of the zip archive: an encrypted array, an unknown compression.
    entry = content.index(b"PK\1\2")
    encrypted, compressed = (
        content[: entry + place] + b"\1" + content[entry + place + 1 :] for place in (FLAGS, COMPRESSION)
    )
    other_format = io.BytesIO()
    np.save(other_format, np.arange(3))
    for damaged in (
        b"",
        content[:100],
        content[:-30],
        b"no archive",
        encrypted,
        compressed,
        other_format.getvalue(),
    ):
        path.write_bytes(damaged)
        before = task.made
        encode_cached(task, "train", tokenizer, 16, tmp_path)
        assert task.made == before + 1
        assert path.read_bytes() == content


def test_fingerprint_covers_all_training_data():
    rows = random_rows("classification")
    digests = {fingerprint(rows), fingerprint(random_rows("classification", seed=1))}
    for name in ("ids", "segment_ids"):
        values = getattr(rows, name).copy()
        values[3] ^= 1
        digests.add(fingerprint(dataclasses.replace(rows, **{name: values})))
    other = rows.targets["label_ids"].copy()
    other[0] = (other[0] + 1) % 3
    digests.add(fingerprint(dataclasses.replace(rows, targets={"label_ids": other})))
    assert len(digests) == 5
    assert fingerprint(rows) == fingerprint(dataclasses.replace(rows, truncated=5))


def test_class_weights():
    task, rows = CountedTask(), random_rows("classification", 100)
    counts = [int((rows.targets["label_ids"] == label).sum()) for label in range(3)]
    balanced = parse_class_weights("balanced", task, rows)
    assert balanced == pytest.approx([100 / (3 * count) for count in counts])
    assert sum(weight * count for weight, count in zip(balanced, counts, strict=True)) == pytest.approx(100)
    assert parse_class_weights("b=2.5,c=0", task, rows) == (1.0, 2.5, 0.0)
    for text, said in (
        ("d=1", "unknown label 'd'"),
        ("a", "'a' is not LABEL=WEIGHT"),
        ("a=-1", "'a=-1' is not"),
        ("=1", "''"),
    ):
        with pytest.raises(TrainingError, match=said):
            parse_class_weights(text, task, rows)
    task.labels = None
    with pytest.raises(TrainingError, match="requires a task with one label per example"):
        parse_class_weights("balanced", task, rows)
