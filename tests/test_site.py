"""Test the documentation site: it builds without warnings, generated and listed content is current, examples run."""

import importlib
import re
import shlex
import subprocess
import sys
from pydoc_data.topics import topics

import beambert
from tests.conftest import ROOT
from tests.test_docs import parse_problems

PACKAGES = ("tokenizer", "pipelines", "bert_model", "trainers")


def test_the_site_builds_without_a_warning(tmp_path):
    """Build the site; broken links or anchors, pages in no table of contents and docstring errors are warnings."""
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        "docs",
        tmp_path / "site",
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    for page in ("index", "reference/cli", "reference/python-api", "tutorials/first-bert", "validation-status"):
        assert (tmp_path / "site" / f"{page}.html").is_file()


def test_the_cli_reference_is_current():
    command = [sys.executable, "docs/generate_cli_reference.py", "--check"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    assert code == 0, "run python docs/generate_cli_reference.py"
    text = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    assert re.findall(r"^### beambert (.*)$", text, re.MULTILINE) == list(beambert.COMMANDS)


def test_the_api_reference_lists_every_public_name():
    text = (ROOT / "docs/reference/python-api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. auto\w+:: (\S+)$", text, re.MULTILINE)
    public = [f"{package}.{name}" for package in PACKAGES for name in importlib.import_module(package).__all__]
    assert sorted(listed) == sorted(public)


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
        argv = shlex.split(beambert.make_parser(name)[1].EXAMPLE.splitlines()[index])[1:]
        assert beambert.main([*argv, *flags.split()]) == 0, (argv, capsys.readouterr().err)


def test_examples_in_help_parse():
    for name in beambert.COMMANDS:
        for line in beambert.make_parser(name)[1].EXAMPLE.splitlines():
            words = shlex.split(line)
            assert words[: 1 + len(name.split())] == ["beambert", *name.split()]
            assert not parse_problems(words[1:])
