"""Fixtures for tests of data jobs."""

import importlib.util
import shutil
from pathlib import Path

import pytest


@pytest.fixture
def corpus(built, tmp_path) -> Path:
    """A copy of the corpus of `built`, without its dataset."""
    of_dataset = shutil.ignore_patterns("shards", "dataset.json", "report.html", "README.md", "croissant.json")
    return shutil.copytree(built, tmp_path / "corpus", ignore=of_dataset)


@pytest.fixture
def without_array_record(monkeypatch) -> None:
    """An environment in which the package array-record is not installed."""
    find_spec = importlib.util.find_spec

    def find_others(name, *more):
        return None if name.startswith("array_record") else find_spec(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", find_others)
