"""Articles in four files, what is built of them, and commands run as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import beambert
from pipelines.sources import ReadOptions, read_file

SMALL = ["--vocab_size", "2000", "--dupe_factor", "3", "--validation_fraction", "0.15", "--num_buckets", "3"]


@pytest.fixture(scope="session")
def articles(tmp_path_factory) -> Path:
    """The language reference as JSON lines in four files, with one document twice and one without text."""
    folder = tmp_path_factory.mktemp("articles")
    documents = list(read_file("language_reference", ReadOptions("language_reference")))
    lines = [json.dumps({"text": "\n".join(d.paragraphs), "title": d.title}) for d in documents]
    lines += [json.dumps({"text": documents[3].paragraphs[0] + "\n" + "  \n".join(documents[3].paragraphs[1:])})]
    lines += [json.dumps({"text": " \n "})]
    for number in range(4):
        (folder / f"{number}.jsonl").write_text("\n".join(lines[number::4]))
    return folder


@pytest.fixture(scope="session")
def built(articles, tmp_path_factory) -> Path:
    """What `beambert build` makes of them; to be read, not changed."""
    output = tmp_path_factory.mktemp("built") / "data"
    assert beambert.main(["build", "--input", f"{articles}/*.jsonl", "--output", str(output), *SMALL]) == 0
    return output


def command(*argv: object, **options) -> subprocess.CompletedProcess:
    """Runs beambert in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "beambert", *map(str, argv)], capture_output=True, text=True, check=False, **options
    )
