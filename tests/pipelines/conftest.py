"""Fixtures for tests of data jobs."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def corpus(built, tmp_path) -> Path:
    """A copy of the corpus of `built`, without its dataset."""
    of_dataset = shutil.ignore_patterns("shards", "dataset.json", "report.html", "README.md", "croissant.json")
    return shutil.copytree(built, tmp_path / "corpus", ignore=of_dataset)
