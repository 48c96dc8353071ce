"""Test the command-line interface: help, mistyped commands and flags, unsupported paths, interrupts."""

import os
import subprocess
import sys

import pytest

import beambert
from tests.conftest import ROOT
from trainers.commands import convert


def run(capsys, *argv: str) -> tuple[int, str, str]:
    try:
        code = beambert.main(list(argv))
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_python_without_docstrings_is_refused_in_a_line():
    environment = {**os.environ, "PYTHONOPTIMIZE": "2"}
    argv = [sys.executable, "-m", "beambert", "corpus", "--input", "a", "--output", "b"]
    result = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "beambert: error: Apache Beam needs docstrings; unset PYTHONOPTIMIZE, or set it to 1\n"


def test_overview_names_every_command(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"  {command} " in out for command in beambert.COMMANDS)
    assert run(capsys)[0] == 2


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["frobnicate"], "unknown command 'frobnicate'; see beambert --help"),
        (["build", "--output", "x", "--vocab_sze", "9"], "unknown argument --vocab_sze; did you mean --vocab_size?"),
        (["build", "--output", "x", "--direct_num_worker=2"], "did you mean --direct_num_workers?"),
        (["build", "--output", "x", "--vocab", "9"], "unknown argument --vocab; did you mean"),
        (["pretrain", "--data", "d", "--output", "x", "--runner", "FlinkRunner"], "unknown argument --runner"),
        (["build", "--output", "x", "--do_lower_case", "perhaps"], "'perhaps' is neither true nor false"),
        (["submit"], "submit requires a destination (flink, dataflow or tpu)"),
        (["submit", "flink", "--flink_mastr", "x", "build"], "--flink_mastr; did you mean --flink_master?"),
        (["submit", "flink", "--flink_master", "h:1", "build", "--vocab_sze", "9"], "did you mean --vocab_size?"),
        (
            ["submit", "flink", "--flink_master", "h:8081"],
            "the command to run is missing after the flags of submit flink: build, corpus or",
        ),
        (["submit", "flink", "pretrain"], "submit flink cannot run 'pretrain', only build, corpus or"),
        (["build"], "the following arguments are required: --output"),
        (["build", "--output", "x", "--num_bucket", "9"], "did you mean --num_partitions?"),
    ],
)
def test_a_mistyped_command_or_flag_is_a_one_line_error(capsys, argv, says):
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        (["pretrain", "--data", "here", "s3://bucket/data", "--output", "run"], "--data s3://bucket/data"),
        (["finetune", "mrpc", "--data_dir", "d", "--output", "hdfs://bucket/run"], "--output hdfs://bucket/run"),
        (["pretrain", "--data", "d", "--output", "o", "--model", "s3://b/own.json"], "--model s3://b/own.json"),
        (["convert", "http://bucket/run", "model", "--to", "native"], "SRC http://bucket/run"),
        (["finetune", "csv", "--output", "o", "--cache_dir", "gs://bucket/c"], "--cache_dir gs://bucket/c"),
    ],
)
def test_training_refuses_other_file_systems(capsys, argv, flag):
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert f"{flag} is not supported; give a local path" in err
    assert ("gs://BUCKET/NAME" in err) != ("--cache_dir" in argv)
    assert err.count("\n") == 1


def test_a_text_argument_may_look_like_a_cloud_path(capsys):
    code, _, err = run(capsys, "predict", "nowhere", "gs://bucket/run")
    assert code == 1
    assert "bucket" not in err


def test_an_internal_error_keeps_its_traceback(monkeypatch):
    from pipelines.commands import build

    def fails(args):
        raise ValueError("a fault in beambert")

    monkeypatch.setattr(build, "configure", fails)
    with pytest.raises(ValueError, match="a fault in beambert"):
        beambert.main(["build", "--output", "x"])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), ""),
        (MemoryError("Unable to allocate 9 GiB\nfor an array"), " (Unable to allocate 9 GiB for an array)"),
    ],
)
def test_a_lack_of_memory_is_one_line(capsys, monkeypatch, error, reason):
    def fails(config):
        raise error

    monkeypatch.setattr(convert, "run", fails)
    code, _, err = run(capsys, "convert", "--to", "native", "a", "b")
    remedy = "free some memory, or use a machine with more"
    assert (code, err) == (1, f"beambert convert: error: not enough memory{reason}; {remedy}\n")


def test_an_interrupt_that_a_library_turns_into_another_exception_is_an_interrupt(capsys, monkeypatch):
    """Test both exceptions: pybind11 raises the first, and code that cleans up raises the second."""

    def by_pybind(config):
        raise RuntimeError("MISMATCH of exception types: ORIGINAL InvalidArgumentError REPLACED BY KeyboardInterrupt")

    def while_cleaning_up(config):
        try:
            raise KeyboardInterrupt
        finally:
            raise ZeroDivisionError("broken by the interrupt")

    for fails in (by_pybind, while_cleaning_up):
        monkeypatch.setattr(convert, "run", fails)
        code, _, err = run(capsys, "convert", "--to", "native", "a", "b")
        assert (code, err) == (130, "beambert convert: interrupted; run the same command again to resume\n")

    def fault(config):
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(convert, "run", fault)
    with pytest.raises(ZeroDivisionError):
        run(capsys, "convert", "--to", "native", "a", "b")
