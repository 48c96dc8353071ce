"""Test that the documentation site builds without warnings, and that the examples in the help of commands run."""

import shlex
import subprocess
import sys
from pydoc_data.topics import topics

import pytest

from beambert import cli
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


def test_the_site_builds_without_a_warning(tmp_path):
    """Build the site; broken links or anchors, pages in no table of contents and docstring errors are warnings."""
    flags = ["--fail-on-warning", "--keep-going", "--quiet"]
    command = [sys.executable, "-m", "sphinx", *flags, "docs", tmp_path / "site"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    for page in ("index", "reference/cli", "reference/python-api", "tutorials/first-bert", "validation-status"):
        assert (tmp_path / "site" / f"{page}.html").is_file()


# Command, index of its example, and flags that shorten the run. The commands read the outputs of earlier ones.
EXAMPLES = [
    ("corpus", 0, "--vocab_size 600"),
    ("pretraining-data", 0, "--dupe_factor 1"),
    ("inspect", 0, ""),
    ("vocab", 0, "--vocab_size 600"),
    ("pretrain", 0, "--num_train_steps 2"),
    ("fill-mask", 0, ""),
    ("features", 1, ""),
    ("convert", 0, ""),
    ("finetune", 1, "--num_train_epochs 1 --train_batch_size 8"),
    ("predict", 0, ""),
    ("export", 0, ""),
    ("plan", 0, ""),
]


def test_examples_in_help_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "texts").mkdir()
    for number, text in enumerate(list(topics.values())[:40]):
        (tmp_path / "texts" / f"{number}.txt").write_text(text, encoding="utf-8")
    (tmp_path / "texts.txt").write_text("A wonderful film.\nA dull one.\n")
    (tmp_path / "reviews").mkdir()
    for split in ("train", "dev"):
        rows = "A wonderful film.,good\nA dull film.,bad\n" * 8
        (tmp_path / "reviews" / f"{split}.csv").write_text(f"text,label\n{rows}")
    monkeypatch.chdir(tmp_path)
    for name, index, flags in EXAMPLES:
        argv = shlex.split(cli.make_parser(name)[1].EXAMPLE.splitlines()[index])[1:]
        assert cli.main([*argv, *flags.split()]) == 0, (argv, capsys.readouterr().err)
