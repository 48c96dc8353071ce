"""Fixtures and settings that all tests share."""

import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# Compilation takes most of the time of a small run under JAX, so that the processes of the tests share a cache.
_COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = _COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
# A process that runs many tests has millions of objects. With the default thresholds, garbage collection takes a tenth
# of the time.
gc.set_threshold(100_000, 20, 50)

ROOT = Path(__file__).parent.parent
# Flags of a small build.
SMALL = ["--vocab_size", "2000", "--dupe_factor", "3", "--validation_fraction", "0.15", "--num_partitions", "3"]

# No test depends on the speed of the machine. The environment of tests/parity has no Hypothesis.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    settings.register_profile("beambert", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("beambert")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository; BEAMBERT_REQUIRE_DATA=1 makes its absence a failure."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        message = f"real data is not here: {os.path.relpath(path, ROOT)} (see CONTRIBUTING.md)"
        if os.environ.get("BEAMBERT_REQUIRE_DATA") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def articles(tmp_path_factory) -> Path:
    """The language reference as JSON lines in four files, with one document twice and one without text."""
    from pipelines.sources import ReadOptions, read_file

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
    """A dataset built from `articles` by `beambert build`; tests must not change it."""
    import beambert

    output = tmp_path_factory.mktemp("built") / "data"
    assert beambert.main(["build", "--input", f"{articles}/*.jsonl", "--output", str(output), *SMALL]) == 0
    return output


@pytest.fixture(scope="session")
def outputs(tmp_path_factory) -> Path:
    """A folder with one output of each kind, by name, and `inputs` for the commands; tests must not change it."""
    from tests.every_output import make_outputs

    folder = tmp_path_factory.mktemp("outputs")
    make_outputs(folder)
    return folder


def with_slow(values: Iterable[Any], slow: Container[Any]) -> list[Any]:
    """Return values of a parameter, or tuples of several, as pytest parameters; mark those in `slow` as slow."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.slow] * (value in slow))
        for value in values
    ]


def command(*argv: object, **options) -> subprocess.CompletedProcess:
    """Run beambert in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "beambert", *map(str, argv)], capture_output=True, text=True, check=False, **options
    )
