"""Test the distribution of copies over workers, and the detection of finished copies."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.corpus.corpus_manifest import CorpusShard
from beambert.pipelines.dataset import Shard
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.examples.work_items import (
    ShardResult,
    completion_marker_name,
    deal_work_items,
    find_finished,
    write_completion_marker,
)
from beambert.pipelines.instances.options import PretrainingDataOptions


def parts(*sizes: int, held_out: int = 0) -> list[CorpusShard]:
    train = [CorpusShard(f"t{n}", "train", n, len(sizes), 9, 99, size, "") for n, size in enumerate(sizes)]
    return train + ([CorpusShard("v0", "validation", 0, 1, 9, 99, held_out, "")] if held_out else [])


@given(st.lists(st.integers(1, 100), min_size=1, max_size=9), st.integers(1, 12), st.integers(1, 9))
def test_every_copy_is_in_one_work_item(sizes, dupe_factor, workers):
    dealt = deal_work_items(parts(*sizes, held_out=7), PretrainingDataOptions(dupe_factor=dupe_factor), workers)
    found = [(each.corpus_shard.name, copy) for each in dealt for copy in each.copies]
    expected = [*itertools.product((f"t{n}" for n in range(len(sizes))), range(dupe_factor)), ("v0", 0)]
    assert sorted(found) == sorted(expected)


def loads(dealt, workers: int) -> list[int]:
    """Return the bytes times copies of each worker; the engine distributes its input once."""
    return [
        sum(each.corpus_shard.bytes * len(each.copies) for each in dealt[first::workers]) for first in range(workers)
    ]


@pytest.mark.parametrize(
    ("sizes", "dupe_factor", "workers"),
    [
        ((100,), 10, 2),
        ((100,), 10, 4),
        ((100, 90, 80), 5, 2),
        ((9, 9, 9, 9, 100), 10, 2),
        (tuple(range(84, 100)), 5, 2),
    ],
)
def test_no_worker_has_much_more_than_another(sizes, dupe_factor, workers):
    found = loads(
        deal_work_items(parts(*sizes, held_out=2), PretrainingDataOptions(dupe_factor=dupe_factor), workers), workers
    )
    assert max(found) / (sum(found) / workers) < 1.21


def test_shard_is_tokenized_once_if_no_worker_is_idle():
    for number, workers in ((1, 1), (7, 1), (16, 2), (64, 4)):
        dealt = deal_work_items(parts(*[100] * number), PretrainingDataOptions(dupe_factor=10), workers)
        assert [each.copies for each in dealt] == [tuple(range(10))] * number


def test_copy_is_finished_only_if_its_shards_have_their_sizes(tmp_path):
    part = parts(5)[0]
    shard = Shard("shards/a.tfrecord", "train", 3, 10, 4, "0" * 64, 128, 20)
    note = str(tmp_path / completion_marker_name(part.place, 3))
    assert find_finished(note, str(tmp_path)) is None
    finished = ShardResult("train", [shard], Statistics(rows=10, a_lengths=np.array([1, 2])))
    write_completion_marker(note, finished)
    assert find_finished(note, str(tmp_path)) is None
    (tmp_path / "shards").mkdir()
    for content, whole in ((b"123", False), (b"1234", True)):
        (tmp_path / shard.name).write_bytes(content)
        assert find_finished(note, str(tmp_path)) == (finished if whole else None)
