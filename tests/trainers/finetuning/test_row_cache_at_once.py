"""Test processes that encode the same rows into one cache directory at the same time."""

import dataclasses
import os

import numpy as np

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.finetuning.row_cache import encode_cached
from tests.processes_at_once import run_at_once
from tests.trainers.finetuning.rows_of_random_text import random_rows
from tests.trainers.random_models import VOCABULARY

PROCESSES, ROUNDS = 3, 20


class LargeTask:
    """A task whose rows take some milliseconds to write."""

    name = "large"

    def fingerprint(self, split):
        return split

    def rows(self, split, tokenizer, max_seq_length):
        extras = {"places": np.arange(300_000, dtype=np.int64)}
        return dataclasses.replace(random_rows("classification"), extras=extras)


def test_what_a_killed_process_left_in_the_cache_is_removed(tmp_path):
    def killed(_number):
        import numpy

        numpy.savez = lambda file, **arrays: (file.write(b"half"), file.flush(), os.kill(os.getpid(), 9))
        encode_cached(LargeTask(), "train", Tokenizer(VOCABULARY), 16, tmp_path)

    assert run_at_once(PROCESSES, killed) == [-9] * PROCESSES
    assert list(tmp_path.iterdir())
    encode_cached(LargeTask(), "train", Tokenizer(VOCABULARY), 16, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
