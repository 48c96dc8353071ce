"""Fixtures and settings that all tests share."""

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
# As in beambert/cli.py: gRPC reads it when it is imported, which test modules do before they call the command.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Compilation takes most of the time of a small run under JAX, so that all processes of the tests share a cache: that of
# pytest itself, or a directory that the caller has set, to keep it between runs.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
# A process that runs many tests has millions of objects. With the default thresholds, garbage collection takes a tenth
# of the time. Cycles, such as graphs of TensorFlow, are freed after each module instead.
gc.set_threshold(100_000, 20, 50)

# A shell ignores SIGINT in a background job; in tests, Ctrl-C acts as in the foreground of a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent.parent
# Flags of a small build.
SMALL = ["--vocab_size", "2000", "--dupe_factor", "3", "--validation_fraction", "0.15", "--num_partitions", "3"]

# No test depends on the speed of the machine. The environment of tests/parity has no Hypothesis.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    settings.register_profile("beambert", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("beambert")


def pytest_collection_finish() -> None:
    """Exclude imported modules and collected tests from garbage collection, and start the server of processes."""
    gc.collect()
    gc.freeze()
    if "tests.forked" in sys.modules:
        sys.modules["tests.forked"].start_server()


@pytest.fixture(scope="module", autouse=True)
def _freed_graphs() -> Iterator[None]:
    """Free the graphs, programs and weights of a module's models."""
    from beambert.trainers.backends.startup import freed_graphs

    with freed_graphs():
        yield
    if clear_caches := getattr(sys.modules.get("jax"), "clear_caches", None):
        clear_caches()
    # The C library keeps what compilers have freed: hundreds of megabytes after a few programs of JAX.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


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


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a directory that `make` fills once for all pytest processes of a session; tests must not change it."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, made = base / name, base / f"{name}.made"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


@pytest.fixture(scope="session")
def articles(tmp_path_factory) -> Path:
    """The language reference as JSON lines in four files, with one document twice and one without text."""
    return make_once(tmp_path_factory, "articles", _write_articles)


def _write_articles(folder: Path) -> None:
    from beambert.pipelines.formats.input_format import ReadOptions
    from beambert.pipelines.sources.readers import read_file

    documents = list(read_file("language_reference", ReadOptions("language_reference")))
    lines = [json.dumps({"text": "\n".join(d.paragraphs), "title": d.title}) for d in documents]
    lines += [json.dumps({"text": documents[3].paragraphs[0] + "\n" + "  \n".join(documents[3].paragraphs[1:])})]
    lines += [json.dumps({"text": " \n "})]
    for number in range(4):
        (folder / f"{number}.jsonl").write_text("\n".join(lines[number::4]))


@pytest.fixture(scope="session")
def built(articles, tmp_path_factory) -> Path:
    """A dataset built from `articles` by `beambert build`; tests must not change it."""

    def build(folder: Path) -> None:
        from beambert import cli

        assert cli.main(["build", "--input", f"{articles}/*.jsonl", "--output", f"{folder}/data", *SMALL]) == 0

    return make_once(tmp_path_factory, "built", build) / "data"


@pytest.fixture(scope="session")
def outputs(tmp_path_factory) -> Path:
    """A folder with one output of each kind, by name, and `inputs` for the commands; tests must not change it."""
    from tests.every_output import make_outputs

    return make_once(tmp_path_factory, "outputs", make_outputs)


_PROGRESS = re.compile(r"(Corpus|Vocabulary|Pretraining data) [\d.,]+ of ")


def without_progress(stderr: str) -> list[str]:
    """Return the lines of stderr without the progress of a data job, whose lines depend on the time."""
    return [line for line in stderr.splitlines() if not _PROGRESS.match(line)]


def with_slow(values: Iterable[Any], slow: Container[Any]) -> list[Any]:
    """Return values of a parameter, or tuples of several, as pytest parameters; mark those in `slow` as slow."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.slow] * (value in slow))
        for value in values
    ]
