"""Test processes that encode the same rows into one cache directory at the same time."""

import dataclasses
import os

import numpy as np

from tests.processes_at_once import run_at_once
from tests.trainers.finetuning.rows_of_random_text import random_rows
from tests.trainers.random_models import VOCABULARY
from tokenizer.tokenizer import Tokenizer
from trainers.finetuning.row_cache import encode_cached, fingerprint

PROCESSES, ROUNDS = 3, 20


class LargeTask:
    """A task whose rows take some milliseconds to write."""

    name = "large"

    def fingerprint(self, split):
        return split

    def rows(self, split, tokenizer, max_seq_length):
        extras = {"places": np.arange(300_000, dtype=np.int64)}
        return dataclasses.replace(random_rows("classification"), extras=extras)


def test_all_get_the_same_rows_and_one_file_is_left_of_each_split(tmp_path):
    expected = fingerprint(LargeTask().rows("train", None, 16))

    def encode(_number):
        for number in range(ROUNDS):
            rows = encode_cached(LargeTask(), f"split-{number}", Tokenizer(VOCABULARY), 16, tmp_path / "cache")
            assert fingerprint(rows) == expected
            assert len(rows.extras["places"]) == 300_000

    assert run_at_once(PROCESSES, encode) == [0] * PROCESSES
    assert sorted(path.name.rpartition("-")[0] for path in (tmp_path / "cache").iterdir()) == sorted(
        f"split-{number}" for number in range(ROUNDS)
    )
    made = []
    task = LargeTask()
    task.rows = lambda *arguments: made.append(arguments)
    for number in range(ROUNDS):
        assert (
            fingerprint(encode_cached(task, f"split-{number}", Tokenizer(VOCABULARY), 16, tmp_path / "cache"))
            == expected
        )
    assert not made


def test_what_a_killed_process_left_in_the_cache_is_removed(tmp_path):
    def killed(_number):
        import numpy

        numpy.savez = lambda file, **arrays: (file.write(b"half"), file.flush(), os.kill(os.getpid(), 9))
        encode_cached(LargeTask(), "train", Tokenizer(VOCABULARY), 16, tmp_path)

    assert run_at_once(PROCESSES, killed) == [-9] * PROCESSES
    assert list(tmp_path.iterdir())
    encode_cached(LargeTask(), "train", Tokenizer(VOCABULARY), 16, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
