"""Test the recipe of `make bench-quality`: the commands of the documentation, on a fraction of the data and steps."""

import bz2
import io
import json
import re
import shlex
import subprocess
import sys
import tarfile

import pytest

from benchmarks.small_bert import __main__ as small_bert
from tests.conftest import ROOT
from tests.test_docs import commands
from tests.tutorials import blocks

PAGE = ROOT / "docs/guides/small-bert.md"
# Characters of Wikipedia, enough to learn a vocabulary of 8,000 tokens.
CHARACTERS = 4_000_000


def test_the_documentation_has_the_recipe():
    page = PAGE.read_text(encoding="utf-8")
    recipe = [shlex.split(command.replace("DATA/", ""))[1:] for command in small_bert.RECIPE.values()]
    assert commands(page)[: len(recipe)] == recipe
    model = next(block.text for block in blocks(page) if block.language == "json")
    assert json.loads(model) == json.loads(small_bert.MODEL.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_a_part_of_the_recipe(tmp_path, shared_data):
    data, results = tmp_path / "data", tmp_path / "results"
    write_part(shared_data, data)
    command = [sys.executable, "-m", "benchmarks.small_bert", str(data), str(results), "--fraction", "0.002"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (results / "short/report.html").is_file()
    options = json.loads((results / "run/run.json").read_text())["options"]
    assert (options["num_train_steps"], options["num_warmup_steps"]) == (40, 2)
    scores = dict(re.findall(r"^\| (\w[\w ]+) \| ([\d.]+) \|", done.stdout, re.MULTILINE))
    losses = ["masked_lm_loss", "masked_lm_accuracy", "next_sentence_accuracy"]
    assert list(scores) == [*losses, "BLiMP", "minutes of training"]
    assert 6 < float(scores["masked_lm_loss"]) < 9.2
    assert 20 < float(scores["BLiMP"]) < 80
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert again.stdout.count("done before") == len(small_bert.RECIPE)
    assert again.stdout.splitlines()[-7:] == done.stdout.splitlines()[-7:]
    # The scores of a trial must not count as those of the complete recipe.
    other = subprocess.run(command[:-2], cwd=ROOT, capture_output=True, text=True, check=False)
    assert other.returncode == 1
    assert "give another directory" in other.stderr
    assert "BLiMP |" not in other.stdout


def test_a_directory_with_other_files_is_refused(tmp_path):
    for name in ("wiki-extracted", "blimp", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "results/model.json").write_text("mine")
    command = [sys.executable, "-m", "benchmarks.small_bert", str(tmp_path), str(tmp_path / "results")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "has other files: give a new or empty directory" in done.stderr
    assert (tmp_path / "results/model.json").read_text() == "mine"


def write_part(source, data):
    """Write a part of an extracted file, and the first pair of each paradigm."""
    (data / "wiki-extracted").mkdir(parents=True)
    text = bz2.decompress((source / "wiki-extracted/enwiki-2015-00.bz2").read_bytes()).decode()
    text = text[: text.index("</doc>", CHARACTERS) + len("</doc>\n")]
    (data / "wiki-extracted/part.bz2").write_bytes(bz2.compress(text.encode()))
    (data / "blimp").mkdir()
    with (
        tarfile.open(next((source / "blimp").glob("*.tar.xz"))) as pairs,
        tarfile.open(data / "blimp/part.tar.xz", "w:xz") as part,
    ):
        for member in pairs.getmembers():
            if re.fullmatch(r"data/\w+\.jsonl", member.name):
                line = pairs.extractfile(member).readline()
                member.size = len(line)
                part.addfile(member, io.BytesIO(line))


@pytest.mark.parametrize(
    ("names", "flags", "message"),
    [
        ((), [], "has no directory wiki-extracted"),
        (("wiki-extracted",), [], "has no directory blimp"),
        (("wiki-extracted", "blimp"), [], "has no BLiMP archive"),
        (("wiki-extracted", "blimp"), ["--fraction", "2"], "invalid --fraction 2.0: must be above 0 and at most 1"),
    ],
)
def test_usage_errors_are_one_line(tmp_path, names, flags, message):
    for name in names:
        (tmp_path / name).mkdir()
    command = [sys.executable, "-m", "benchmarks.small_bert", str(tmp_path), str(tmp_path / "results"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode
    (line,) = done.stderr.splitlines()
    assert message in line
