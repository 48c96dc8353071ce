"""Test wrong values of every flag of every command, from the parsers: one line names the flag, without delay."""

import argparse
import contextlib
import io
import math
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert import cli
from beambert.common.command_line import flags as beambert_flags
from beambert.common.command_line.flags import Number, WholeNumber
from beambert.trainers.commands.features import parse_layers
from beambert.trainers.errors import TrainingError
from beambert.trainers.optimization.schedule import plan_stages, scheduled_lengths
from tests.test_command_line import run

# Invalid values of any numeric flag, regardless of its range. The fourth and fifth are Arabic and mathematical digits.
NO_NUMBERS = [
    "nan",
    "1e400",
    "9" * 5000,
    "\u0661\u0662",
    "\U0001d7d7",
    "1_000",
    "0x10",
    "five",
    "",
    " ",
    " 5",
    "5 ",
    "1,5",
]
NO_WHOLE_NUMBERS = [*NO_NUMBERS, "inf", "-inf", "1e3", "1.0", "-", "+"]
# Upper limits of values with which a command would fill the memory or the disk, or never end, such as typing errors.
LIMITS = {
    **dict.fromkeys(("--train_batch_size", "--eval_batch_size", "--train_batch_sizes"), 10**12),
    **dict.fromkeys(("--num_partitions", "--dupe_factor", "--max_seq_length", "--batch_size", "--top_k"), 10**9),
    **dict.fromkeys(("--vocab_size", "--vocab_multiple_of", "--num_unused", "--alphabet_limit", "--seeds"), 10**9),
    **dict.fromkeys(("--gradient_accumulation_steps", "--max_num_workers", "--parallelism"), 10**9),
    "--cpu_devices": 10**6,
}


def is_number(action: argparse.Action) -> bool:
    return isinstance(action.type, WholeNumber | Number)


def flags() -> list[tuple[str, argparse.Action]]:
    """Return (command, action) of every flag with a value; a flag that several commands share occurs once."""
    found = {}
    for name in cli.COMMANDS:
        for action in cli.make_parser(name)[0]._actions:
            if action.option_strings and action.nargs != 0:
                kind = repr(action.type) if is_number(action) else getattr(action.type, "__name__", "")
                key = (action.option_strings[-1], kind, action.metavar, tuple(action.choices or ()))
                found.setdefault(key, (name, action))
    return list(found.values())


def read(name: str, *argv: str) -> str:
    """Parse a command line and return the error that it prints, or "" if the given flags are valid."""
    err, code = io.StringIO(), None
    with contextlib.redirect_stderr(err):
        try:
            cli.read_command(name, list(argv))
        except SystemExit as stop:
            code = stop.code
    text = err.getvalue()
    assert code == (2 if text else None), argv
    assert len(text) <= 401, (len(text), text[:600])
    assert text.count("\n") == (1 if text else 0), text
    assert all(character.isprintable() for character in text.rstrip("\n")), ascii(text)
    # The given flags are valid if only required arguments are missing.
    return "" if "the following arguments are required" in text else text


NUMBERS = [pair for pair in flags() if is_number(pair[1])]


def test_no_flag_is_parsed_by_int_float_or_complex():
    kinds = {(name, action.option_strings[-1]) for name, action in flags() if action.type in (int, float, complex)}
    assert not kinds


def test_a_value_that_is_not_a_number_is_refused_with_flag_and_range():
    tried = set()
    for name, action in NUMBERS:
        flag = action.option_strings[-1]
        is_whole = isinstance(action.type, WholeNumber)
        wrong = NO_WHOLE_NUMBERS if is_whole else [*NO_NUMBERS, "inf", "-inf", "-1e999"]
        # Flags with a range in common are parsed by the same function.
        for value in wrong[:1] if repr(action.type) in tried else wrong:
            line = read(name, f"{flag}={value}")
            assert f"argument {'/'.join(action.option_strings)}: " in line, (flag, value, line)
            assert re.search(r"is not a (whole )?number( from -?[\d.e+]+| above [\d.e+]+|;)", line), (flag, value, line)
        tried.add(repr(action.type))
        if is_whole:
            for value in (action.type.least - 1, action.type.most + 1):
                assert f"from {action.type.least} to {action.type.most}" in read(name, f"{flag}={value}")
            for value in (action.type.least, action.type.most):
                assert read(name, f"{flag}={value}") == ""
            continue
        for value, included, beyond in (
            (action.type.least, action.type.least_too, -math.inf),
            (action.type.most, action.type.most_too, math.inf),
        ):
            if math.isfinite(value):
                assert (read(name, f"{flag}={value!r}") == "") == included, (flag, value)
                assert str(action.type) in read(name, f"{flag}={math.nextafter(value, beyond)!r}")


def test_a_value_that_would_fill_the_machine_is_refused():
    limited = [(name, action.option_strings[-1]) for name, action in flags() if action.option_strings[-1] in LIMITS]
    assert {flag for _, flag in limited} == LIMITS.keys()
    for name, flag in limited:
        assert re.search(rf"{flag}.* from \d+ to \d+", read(name, f"{flag}={LIMITS[flag]}")), (name, flag)


def test_a_wrong_choice_names_the_flag_and_the_choices():
    for name, action in flags():
        if action.choices:
            line = read(name, f"{action.option_strings[-1]}=nothing of the kind")
            assert f"argument {'/'.join(action.option_strings)}: invalid choice: " in line
            assert repr(next(iter(action.choices))) in line


@given(st.integers(-(10**30), 10**30))
def test_a_whole_number_is_read_as_python_reads_it(value):
    assert beambert_flags.whole_number(str(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_as_python_reads_it(value):
    assert beambert_flags.real_number(repr(value)) == value


# Numbers inside texts


@pytest.mark.parametrize(
    "schedule",
    ["128x1e999999999", "128x1e-999999999", "9" * 5000 + "x1", "128x1@" + "9" * 5000, "\u0661x1"],
)
def test_a_schedule_of_huge_numbers_is_refused_at_once(schedule):
    began = time.process_time()
    with pytest.raises(TrainingError, match=r"invalid --schedule phase .*must be LENGTHxFRACTION") as error:
        scheduled_lengths(schedule)
    assert len(str(error.value)) < 300
    assert time.process_time() - began < 1
    with pytest.raises(TrainingError):
        plan_stages(100, [128], None, 8, f"8:{'9' * 5000}")


@pytest.mark.parametrize("layers", ["9" * 5000, "\u0661", "1_0", "", "1,,2"])
def test_layers_are_plain_numbers(layers):
    with pytest.raises(TrainingError, match="invalid --layers"):
        parse_layers(layers)


@pytest.mark.parametrize("pattern", ["a{99999999999}", "(" * 5000, "[", "(?P<a>x)(?P<a>y)"])
def test_an_invalid_regular_expression_is_refused(pattern):
    assert "is not a valid regular expression" in read("pretrain", "--lr_multiplier", f"{pattern}=0.5")


# Flags of Apache Beam


def test_an_odd_value_of_a_beam_flag_is_read_or_refused_in_one_line():
    from beambert.pipelines.runner import beam_flags

    for flag in beam_flags.read([])[1]:
        for value in ("two", "9" * 5000, "{", "\udcff"):
            line = read("build", f"{flag}={value}")
            assert not line or flag in line or flag == "--gcs_custom_audit_entry", (flag, value[:20], line)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--direct_num_workers", "100000"], "--direct_num_workers: '100000' is not a whole number from 0 to "),
        (["--direct_running_mode", "foo"], "--direct_running_mode: invalid choice: 'foo' (choose from 'in_memory'"),
        (["--runner", "portablerunner"], "--runner PortableRunner requires --job_endpoint HOST:PORT"),
        (["--runner", "FlinkRunner"], "--runner FlinkRunner requires --flink_master HOST:8081"),
        (["--runner", "SparkRunner"], "--runner SparkRunner requires --spark_master_url spark://HOST:7077"),
        (["--runner", "DataflowRunner"], "--runner DataflowRunner requires --project ID --region us-central1"),
        (["--runner", "Nowhere"], "invalid --runner 'Nowhere': not a Beam runner for a job; leave out --runner"),
        (["--runner", "interactive"], "invalid --runner 'InteractiveRunner': not a Beam runner for a job"),
        (
            ["--runner", "PortableRunner", "--job_endpoint", "h:1", "--environment_type", "PROCESS"],
            "invalid Beam flags: Option process_command is required for environment type PROCESS",
        ),
        (["--type_check_additional", "foo"], "Unrecognized --type_check_additional feature: foo"),
    ],
)
def test_a_wrong_beam_flag_is_a_one_line_error_before_the_job(capsys, tmp_path, argv, says):
    output = tmp_path / "out"
    code, out, err = run(capsys, "build", "--input", f"{tmp_path}/nothing", "--output", str(output), *argv)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert says in err
    assert err.startswith("beambert build: error: ")
    assert len(err) <= 400
    assert not output.exists()


@pytest.mark.parametrize("flags", [["--environment_type", "foo"], ["--environment_type", "DOCKER"]])
def test_a_job_server_that_fails_is_one_line(capsys, tmp_path, monkeypatch, flags):
    """Run without Docker, which workers of the embedded job server need by default."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.txt").write_text("Some text. More text.\n", encoding="utf-8")
    flags = ["--runner", "PortableRunner", "--job_endpoint", "embed", *flags]
    argv = ["--input", f"{tmp_path}/a.txt", "--output", f"{tmp_path}/out", "--vocab_size", "30", *flags]
    code, _, err = run(capsys, "corpus", *argv)
    assert code == 1
    assert err.count("\n") == 1, err
    assert "error: --runner PortableRunner cannot run the pipeline (" in err
