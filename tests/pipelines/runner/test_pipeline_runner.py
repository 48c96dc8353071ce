"""Test the embedded engine on a signal, and the errors of its workers."""

import logging
import signal

import pytest

from beambert import cli
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.runner import pipeline_runner
from tests.forked import Running


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_build_and_releases_its_output(number, tmp_path):
    flags = ["--input_format", "language_reference", "--vocab_size", "500", "--dupe_factor", "1000"]
    process = Running("build", *flags, "--output", tmp_path)
    process.wait_for(lambda: list(tmp_path.glob("shards/*")))
    process.kill(number)
    result = process.result()
    lines = [line for line in result.stderr.splitlines() if " of " not in line]
    assert result.returncode == 128 + number
    interrupted = "beambert build: interrupted; run the same command again to resume"
    assert lines == ([interrupted] if number == signal.SIGINT else [])
    assert (tmp_path / "corpus.json").exists()
    assert not (tmp_path / "dataset.json").exists()
    assert not (tmp_path / "build.lock").exists()


def test_worker_errors_are_found_in_the_engines_text():
    text = (
        "Traceback ...\nRuntimeError: first\n\nThe above exception was the direct cause ...\n"
        "beambert.pipelines.errors.SourceError: a.gz is cut [while running 'Read/ParDo(ReadDocuments)']\n"
    )
    error = pipeline_runner._as_user_error(RuntimeError(text), "out")
    assert (type(error).__name__, str(error)) == ("SourceError", "a.gz is cut")
    full = pipeline_runner._as_user_error(RuntimeError("OSError: [Errno 28] No space [while running 'x']"), "out")
    assert isinstance(full, DatasetError)
    assert "--output out" in str(full)
    fault = RuntimeError("ValueError: operands could not be broadcast [while running 'x']")
    assert pipeline_runner._as_user_error(fault, "out") is fault


def test_a_failed_run_leaves_other_loggers_alone(tmp_path, caplog):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\xfa text")
    argv = ["corpus", "--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "out"), "--vocab_size", "9"]
    assert cli.main(argv) == 1
    logging.getLogger("beambert").warning("heard")
    logging.getLogger("mine").warning("heard too")
    assert [record.message for record in caplog.records] == ["heard", "heard too"]


def test_a_traceback_of_beam_in_a_directory_named_beambert_is_not_ours():
    trace = 'Traceback (most recent call last):\n  File "{}", line 1, in f\nFileNotFoundError: docker'
    packages = "/home/me/beambert/.venv/lib/python3.12/site-packages"
    assert pipeline_runner._is_beam_traceback(trace.format(f"{packages}/apache_beam/runners/runner.py"))
    for path in ("/home/me/beambert/pipelines/errors.py", f"{packages}/beambert/pipelines/errors.py"):
        assert not pipeline_runner._is_beam_traceback(trace.format(path))
