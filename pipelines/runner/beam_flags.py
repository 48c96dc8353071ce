"""Check the values and combinations of Apache Beam's own flags when the command line is parsed.

Beam itself reports an invalid value with more than a hundred lines of usage. It reports a missing flag of a runner with
a traceback, after the input files are listed.
"""

import argparse
import functools
import itertools
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from typing import Any, NoReturn

from apache_beam.options.pipeline_options import DebugOptions, DirectOptions, PipelineOptions, StandardOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.runner import create_runner

from beambert.common.command_line.flags import WholeNumber, fraction, shortened
from beambert.pipelines.errors import DatasetError, EngineError

# Keep Beam's log off the terminal, where an error is one line; without a handler Python prints it there.
logging.getLogger("apache_beam").addHandler(logging.NullHandler())
# Runners that run in this process.
EMBEDDED_RUNNERS = ("DirectRunner", "FnApiRunner", "EmbeddedRunner")
# Limits of worker processes on this machine; a larger number is a typing error.
_MAX_WORKERS_PER_CORE = 4
_MAX_WORKERS_OF_SMALL_MACHINES = 64
_PORT = WholeNumber(0, 65_535)
_RANGES = {
    "--direct_num_workers": WholeNumber(
        0, max(_MAX_WORKERS_OF_SMALL_MACHINES, _MAX_WORKERS_PER_CORE * (os.cpu_count() or 1))
    ),
    "--direct_runner_bundle_repeat": WholeNumber(0, 100),
    "--num_workers": WholeNumber(1, 10_000),
    "--max_num_workers": WholeNumber(1, 10_000),
    "--disk_size_gb": WholeNumber(1, 65_536),
    "--number_of_worker_harness_threads": WholeNumber(1, 10_000),
    "--job_server_timeout": WholeNumber(1),
    # -1 means the number of slots of the cluster.
    "--parallelism": WholeNumber(-1, 32_768),
    "--max_parallelism": WholeNumber(-1, 32_768),
    "--sdk_worker_parallelism": WholeNumber(0, 10_000),
    "--environment_cache_millis": WholeNumber(0),
    "--hdfs_port": _PORT,
    "--job_port": _PORT,
    "--artifact_port": _PORT,
    "--expansion_port": _PORT,
    "--profile_sample_rate": fraction,
}
_ENVIRONMENTS = ("DOCKER", "PROCESS", "EXTERNAL", "LOOPBACK")
# The address of a job server within this process.
EMBEDDED_JOB_SERVER = "embed"
# Required flags of a runner, each with an example value.
_REQUIRED = {
    "FlinkRunner": {"--flink_master": "HOST:8081"},
    "SparkRunner": {"--spark_master_url": "spark://HOST:7077"},
    "DataflowRunner": {
        "--project": "ID",
        "--region": "us-central1",
        "--temp_location": "gs://BUCKET/FOLDER",
    },
}
_ALTERNATIVES = {"FlinkRunner": "beambert submit flink", "DataflowRunner": "beambert submit dataflow"}
_MAX_REASON_CHARACTERS = 200
_ADDRESS = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.%]+\]):(\d{1,5})")


class _InvalidFlag(Exception):
    """The message of argparse about an invalid value."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _InvalidFlag(message)


def _parser() -> _Parser:
    """Return a parser of all Beam flags, with the ranges of their values."""
    parser = _Parser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    # Some flags are declared by two option classes. The runner parses the flags again later.
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    for action in parser._actions:
        action.type = _type_of(action)
    return parser


def _type_of(action: argparse.Action) -> Any:
    """Return the argparse type of a Beam flag, with its range."""
    checks = [_RANGES[flag] for flag in action.option_strings if flag in _RANGES]
    if checks:
        return checks[0]
    if action.type is int:
        return WholeNumber(0)
    if "--environment_type" in action.option_strings:
        return _environment_type
    if "--job_endpoint" in action.option_strings:
        return _job_endpoint
    return None if action.type is None else _guarded(action.type)  # type: ignore[arg-type]


def _guarded(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return an argparse type that reports every exception as an invalid value, such as JSON nested too deep."""

    @functools.wraps(parse)
    def guarded(text: str) -> Any:
        try:
            return parse(text)
        except Exception as error:
            raise argparse.ArgumentTypeError(f"{shortened(text)} cannot be read ({error})") from error

    return guarded


def _environment_type(text: str) -> str:
    if text.upper() not in _ENVIRONMENTS and not text.startswith("beam:env:"):
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not one of {', '.join(_ENVIRONMENTS)}")
    return text


def _job_endpoint(text: str) -> str:
    address = _ADDRESS.fullmatch(text)
    if text != EMBEDDED_JOB_SERVER and not (address and 0 < int(address[1]) <= 65_535):
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not HOST:PORT of a Beam job server")
    return text


def read(flags: list[str]) -> tuple[list[str], list[str]]:
    """Check the values of Beam's flags.

    Args:
        flags: The part of the command line that the command itself does not define.

    Returns:
        The arguments that Beam does not define either, and the names of all Beam flags.

    Raises:
        DatasetError: A value is invalid, or too large for this machine.
    """
    parser = _parser()
    try:
        unknown = parser.parse_known_args(flags)[1]
    except Exception as error:
        # Beam's argparse actions raise any exception, without the name of the flag.
        text = str(error)
        raise DatasetError(
            text if text.startswith("argument -") else f"{_invalid_flag(parser, flags)}: {text}"
        ) from error
    return unknown, list(parser._option_string_actions)


def _invalid_flag(parser: _Parser, flags: list[str]) -> str:
    """Return the first flag with an invalid value, as argparse names it."""
    starts = [index for index, word in enumerate(flags) if word.startswith("--")]
    for start, end in itertools.pairwise([*starts, len(flags)]):
        try:
            parser.parse_known_args(flags[start:end])
        except Exception:
            return f"argument {flags[start].partition('=')[0]}"
    return "a Beam flag"


def options_of(flags: list[str]) -> PipelineOptions:
    """Return Beam's options after checking them.

    Raises:
        DatasetError: A value is invalid, Beam has no such runner, or a required flag of the runner is missing.
    """
    read(flags)
    options = PipelineOptions(flags)
    # Beam would start pip in the current directory, which may have another `pip`, and send the output of `pip freeze`,
    # which may contain URLs of private indexes with passwords.
    options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")
    standard = options.view_as(StandardOptions)
    if standard.runner:
        standard.runner = _runner_name(standard.runner)
        _require_flags(standard.runner, options, flags)
    if standard.runner != "DataflowRunner":
        # For DataflowRunner the validator would call the cloud service.
        errors = PipelineOptionsValidator(options, None).validate()
        if errors:
            raise DatasetError(f"invalid Beam flags: {errors[0]}")
    direct = options.view_as(DirectOptions)
    if direct.direct_num_workers != 1 and not _is_given("--direct_running_mode", flags):
        direct.direct_running_mode = "multi_processing"
    return options


def failure(error: Exception, options: PipelineOptions) -> EngineError | None:
    """Return the error of a runner that fails outside the pipeline: at a download, at its server, at its flags.

    Args:
        error: The exception of Beam.
        options: Beam's options.

    Returns:
        The error with a remedy. None for an error of beambert's own code: one of a worker, whose text contains a
        traceback, or one of this process.
    """
    text = str(error)
    trace, innermost = error.__traceback__, ""
    while trace is not None:
        innermost = trace.tb_frame.f_globals.get("__name__") or ""
        trace = trace.tb_next
    if "Traceback (most recent call last)" in text or innermost.startswith("beambert."):
        return None
    runner = options.view_as(StandardOptions).runner
    details = getattr(error, "details", None)
    # The text of a gRPC error is a page long; its details contain the message.
    reason = " ".join(str(details() if callable(details) else text or type(error).__name__).split())
    if len(reason) > _MAX_REASON_CHARACTERS:
        reason = f"{reason[: _MAX_REASON_CHARACTERS - 3]}..."
    return EngineError(
        f"--runner {runner} cannot run the pipeline ({reason}); check the flags of the runner, or leave out --runner "
        "to run on this machine"
    )


def _is_given(flag: str, flags: list[str]) -> bool:
    return any(word.partition("=")[0] == flag for word in flags)


def _runner_name(name: str) -> str:
    """Return a runner's name in Beam's spelling. Raise DatasetError if Beam has no such runner for a job."""
    known = {runner.lower(): runner for runner in (*StandardOptions.KNOWN_RUNNER_NAMES, *EMBEDDED_RUNNERS)}
    name = known.get(name.lower(), known.get(f"{name.lower()}runner", name))
    # Whether Beam can create it depends on pandas being installed; it would cache every collection of the job.
    if name == "InteractiveRunner":
        raise DatasetError("invalid --runner InteractiveRunner: it serves notebooks; leave it out")
    try:
        if name not in EMBEDDED_RUNNERS:
            create_runner(name)
    except Exception as error:
        reason = "" if "." not in name else f" ({error})"
        raise DatasetError(
            f"invalid --runner {shortened(name)}: not a Beam runner{reason}; leave it out to run on this machine, or "
            "choose from FlinkRunner, SparkRunner, DataflowRunner, PrismRunner and PortableRunner"
        ) from error
    return name


def _require_flags(runner: str, options: PipelineOptions, flags: list[str]) -> None:
    """Raise DatasetError if a required flag of a runner is missing."""
    everything = options.get_all_options()
    endpoint = everything["job_endpoint"]
    if runner == "PortableRunner" and not endpoint:
        raise DatasetError(
            "--runner PortableRunner requires --job_endpoint HOST:PORT, the address of a Beam job server; start a "
            "server and give its address, or leave out --runner to run on this machine"
        )
    missing = {
        flag: value
        for flag, value in _REQUIRED.get(runner, {}).items()
        # Without the flag, FlinkRunner and SparkRunner would start a cluster on this machine.
        if not everything[flag.removeprefix("--")] or (runner != "DataflowRunner" and not _is_given(flag, flags))
    }
    if missing and not endpoint:
        alternative = f", or use {_ALTERNATIVES[runner]}" if runner in _ALTERNATIVES else ""
        required = " ".join(f"{flag} {value}" for flag, value in missing.items())
        flags_to_add = "the flag" if len(missing) == 1 else "the flags"
        raise DatasetError(f"--runner {runner} requires {required}; add {flags_to_add}{alternative}")
    java = everything["job_server_java_launcher"]
    starts_java = runner in ("FlinkRunner", "SparkRunner") and not endpoint
    if starts_java and not everything.get(f"{runner[:5].lower()}_submit_uber_jar") and not shutil.which(java):
        raise DatasetError(
            f"--runner {runner} starts Beam's job server, which requires Java, but {java} is not found; install Java "
            "17, give its path with --job_server_java_launcher, or give --job_endpoint of a running job server"
        )
    kind = (everything["environment_type"] or "DOCKER").upper()
    if endpoint == EMBEDDED_JOB_SERVER and kind == "DOCKER" and not shutil.which("docker"):
        raise DatasetError(
            f"--job_endpoint {EMBEDDED_JOB_SERVER} starts workers with --environment_type DOCKER, but docker is not "
            "installed; install it, or use --environment_type LOOPBACK"
        )
    if kind in ("PROCESS", "EXTERNAL") and not (everything["environment_config"] or everything["environment_options"]):
        example = "HOST:50000" if kind == "EXTERNAL" else """'{"command": "/path/to/worker"}'"""
        raise DatasetError(f"--environment_type {kind} requires --environment_config, such as {example}")
    if kind == "PROCESS" and everything["environment_config"]:
        _check_process_config(everything["environment_config"])


def _check_process_config(text: str) -> None:
    """Raise DatasetError if --environment_config of PROCESS is not what Beam reads: a JSON object with the command."""
    try:
        config = json.loads(text)
    except ValueError:
        config = None
    if not (isinstance(config, dict) and isinstance(config.get("command"), str) and config["command"]):
        raise DatasetError(
            f"invalid --environment_config {shortened(text)}: not a JSON object with a command, such as "
            """'{"command": "/path/to/worker"}'"""
        )
