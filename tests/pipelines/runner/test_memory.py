"""Test the estimate of the memory that job 2 needs, and the available memory."""

import dataclasses
from pathlib import Path

import pytest

from beambert.pipelines.corpus.corpus_manifest import Corpus, CorpusShard
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.runner import memory

MB = 1_000_000


def corpus(*sizes: int, text_bytes: int) -> Corpus:
    shards = [
        CorpusShard(f"corpus/{n}.parquet", "train", n, len(sizes), 9, 99, size, "") for n, size in enumerate(sizes)
    ]
    return Corpus({}, [], {"bytes": text_bytes}, {}, shards, {})


def test_memory_depends_on_the_largest_shard_not_on_the_corpus():
    small, large = corpus(1, 3, text_bytes=400 * MB), corpus(*[1, 3] * 1000, text_bytes=400_000 * MB)
    assert memory.largest_text_bytes(small) == memory.largest_text_bytes(large) == 300 * MB


# (bytes of text in the largest shard, workers, peak as measured on English Wikipedia)
MEASURED = [
    (4.3 * MB, 1, 268 * MB),
    (4.3 * MB, 1, 304 * MB),  # rows of 2,048
    (15.5 * MB, 1, 418 * MB),
    (59.8 * MB, 1, 578 * MB),
    (59.8 * MB, 1, 715 * MB),  # rows of 512
    (15.5 * MB, 2, 879 * MB),
]


@pytest.mark.parametrize(("text_bytes", "workers", "measured"), MEASURED)
def test_the_estimate_is_near_what_was_measured(text_bytes, workers, measured):
    assert 0.95 < memory.peak_memory(text_bytes, workers) / measured < 1.5


def test_too_little_memory_is_an_error_before_the_job(monkeypatch, capsys):
    four_shards = corpus(1, 1, 1, 1, text_bytes=4000 * MB)
    needed = memory.peak_memory(1000 * MB, 2)
    monkeypatch.setattr(memory, "available_memory", lambda: 2 * needed)
    memory.require_memory(four_shards, 2, ignore=False)
    assert not capsys.readouterr().err
    monkeypatch.setattr(memory, "available_memory", lambda: int(needed * 1.2))
    memory.require_memory(four_shards, 2, ignore=False)
    assert capsys.readouterr().err.startswith("warning: the estimated memory is ")
    monkeypatch.setattr(memory, "available_memory", lambda: needed // 2)
    with pytest.raises(
        DatasetError, match="GB is available; use fewer --direct_num_workers than 2 or a corpus of"
    ) as caught:
        memory.require_memory(four_shards, 2, ignore=False)
    memory.require_memory(four_shards, 2, ignore=True)
    assert "warning" in capsys.readouterr().err
    # The recommended value does not even cause a warning.
    advised = int(str(caught.value).split("--num_partitions ")[1].split("`")[0])
    smaller = dataclasses.replace(four_shards, shards=four_shards.shards[:1] * advised)
    memory.require_memory(smaller, 2, ignore=False)
    assert not capsys.readouterr().err


def test_limit_of_a_parent_control_group_applies(tmp_path):
    root = tmp_path / "cgroup"

    def group(folder: Path, most: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text("3000\n")
        (folder / "memory.stat").write_text("anon 2000\ninactive_file 1000\n")

    group(root / "a", "9000")
    group(root / "a/b", "max")
    membership = tmp_path / "self"
    membership.write_text("0::/a/b\n")
    assert memory._group_limits(root, membership) == [7000]
    # Inside a container, only its own group is visible, as the root.
    membership.write_text("0::/elsewhere\n")
    group(root, "5000")
    assert memory._group_limits(root, membership) == [3000]
    assert memory._group_limits(tmp_path / "none", membership) == []
    # Version 1 has other files.
    membership.write_text("5:cpu:/x\n4:memory:/a/b\n")
    assert memory._group_limits(root, membership) == []
