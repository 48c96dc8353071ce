"""Apache Beam's own flags: their values and combinations, checked when the command line is read.

Beam itself reports a wrong value with more than a hundred lines of usage, and a flag that a runner needs and does not
have with a traceback, after the input was looked up.
"""

import argparse
import functools
import logging
import os
import re
import shutil
from collections.abc import Callable
from typing import Any, NoReturn

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.runner import create_runner

from beambert_common.command_line.argument_parser import parse_words
from beambert_common.command_line.flags import WholeNumber, fraction, shortened
from pipelines.errors import DatasetError, EngineError

# With a handler Beam's log goes where handlers are added, and no more to the terminal, where errors are one line.
logging.getLogger("apache_beam").addHandler(logging.NullHandler())
# Runners that run inside this process.
EMBEDDED_RUNNERS = ("DirectRunner", "FnApiRunner", "EmbeddedRunner")
# Of worker processes on this machine: more than this for a core is a typing error.
_WORKERS_A_CORE = 4
_LEAST_MAXIMUM_OF_WORKERS = 64
_PORT = WholeNumber(0, 65_535)
_RANGES = {
    "--direct_num_workers": WholeNumber(0, max(_LEAST_MAXIMUM_OF_WORKERS, _WORKERS_A_CORE * (os.cpu_count() or 1))),
    "--direct_runner_bundle_repeat": WholeNumber(0, 100),
    "--num_workers": WholeNumber(1, 10_000),
    "--max_num_workers": WholeNumber(1, 10_000),
    "--disk_size_gb": WholeNumber(1, 65_536),
    "--number_of_worker_harness_threads": WholeNumber(1, 10_000),
    "--job_server_timeout": WholeNumber(1),
    # -1 is the number of slots of the cluster.
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
# The address of a job server that is a part of this process.
EMBEDDED_JOB_SERVER = "embed"
# What a runner cannot do without, with an example of each value.
_REQUIRED = {
    "FlinkRunner": {"--flink_master": "HOST:8081"},
    "SparkRunner": {"--spark_master_url": "spark://HOST:7077"},
    "DataflowRunner": {
        "--project": "ID",
        "--region": "us-central1",
        "--temp_location": "gs://BUCKET/FOLDER",
    },
}
_INSTEAD = {"FlinkRunner": "beambert submit flink", "DataflowRunner": "beambert submit dataflow"}
_LONGEST_REASON = 200
_ADDRESS = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.%]+\]):(\d{1,5})")


class _Mistake(Exception):
    """What argparse says of a wrong value."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Mistake(message)


def _parser() -> _Parser:
    """Return a parser of all flags of Beam's, with the ranges of their values."""
    parser = _Parser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    # A flag of Beam's that is declared twice is one flag; the engine itself reads these later.
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    for action in parser._actions:
        action.type = _type_of(action)
    return parser


def _type_of(action: argparse.Action) -> Any:
    """Return the type of a flag of Beam's with its range."""
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
    """Return a type whose every failure is one of the value; JSON may nest too deep, for example."""

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
        flags: what the command itself does not know of its command line.

    Returns:
        What Beam does not know either, and the names of Beam's flags.

    Raises:
        DatasetError: a value that Beam, or this machine, cannot take.
    """
    parser = _parser()
    try:
        unknown = parser.parse_known_args(flags)[1]
    except Exception as error:
        # Actions of Beam's raise what they like, and do not name their flag.
        text = str(error)
        raise DatasetError(text if text.startswith("argument -") else f"{_wrong(parser, flags)}: {text}") from error
    return unknown, list(parser._option_string_actions)


def _wrong(parser: _Parser, flags: list[str]) -> str:
    """Return the name of the first flag with a wrong value."""
    for word in parse_words(parser, flags):
        try:
            parser.parse_known_args(flags[word.start : word.start + 1 + len(word.values)])
        except Exception:
            return f"argument {word.flag}"
    return "a flag of Beam's"


def options_of(flags: list[str]) -> PipelineOptions:
    """Return Beam's options, checked.

    Raises:
        DatasetError: a wrong value, a runner that Beam does not have, or a flag that the runner needs is missing.
    """
    read(flags)
    options = PipelineOptions(flags)
    standard = options.view_as(StandardOptions)
    if standard.runner:
        standard.runner = _runner_name(standard.runner)
        _require_flags(standard.runner, options, flags)
    if standard.runner != "DataflowRunner":
        # Of DataflowRunner the validator asks the cloud.
        errors = PipelineOptionsValidator(options, None).validate()
        if errors:
            raise DatasetError(f"Beam refuses its flags: {errors[0]}")
    direct = options.view_as(DirectOptions)
    if direct.direct_num_workers != 1 and not _is_given("--direct_running_mode", flags):
        direct.direct_running_mode = "multi_processing"
    return options


def failure(error: Exception, options: PipelineOptions) -> EngineError | None:
    """Return the line for a runner that fails before or beside the pipeline: its download, its server, its flags.

    Args:
        error: what Beam raised.
        options: Beam's.

    Returns:
        None for an error of beambert's own code: one that a worker raised, which has a traceback in its text, and one
        that was raised here.
    """
    text = str(error)
    trace, innermost = error.__traceback__, ""
    while trace is not None:
        innermost = trace.tb_frame.f_globals.get("__name__") or ""
        trace = trace.tb_next
    is_own = innermost.split(".")[0] in ("pipelines", "deploy", "tokenizer")
    if "Traceback (most recent call last)" in text or is_own:
        return None
    runner = options.view_as(StandardOptions).runner
    details = getattr(error, "details", None)
    # gRPC's errors are a page long, and say what happened in their details.
    reason = " ".join(str(details() if callable(details) else text or type(error).__name__).split())
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[: _LONGEST_REASON - 3]}..."
    return EngineError(
        f"--runner {runner} cannot run the pipeline ({reason}); check the flags of the runner, or leave --runner out "
        "to run on this machine"
    )


def _is_given(flag: str, flags: list[str]) -> bool:
    return any(word.partition("=")[0] == flag for word in flags)


def _runner_name(name: str) -> str:
    """Return a runner's name in Beam's own spelling. Raises DatasetError where Beam does not have it."""
    known = {runner.lower(): runner for runner in (*StandardOptions.KNOWN_RUNNER_NAMES, *EMBEDDED_RUNNERS)}
    name = known.get(name.lower(), known.get(f"{name.lower()}runner", name))
    try:
        if name not in EMBEDDED_RUNNERS:
            create_runner(name)
    except Exception as error:
        reason = "" if "." not in name else f" ({error})"
        raise DatasetError(
            f"--runner {shortened(name)} is not a runner of Beam's{reason}; leave it out to run on this machine, or "
            "choose from FlinkRunner, SparkRunner, DataflowRunner, PrismRunner and PortableRunner"
        ) from error
    return name


def _require_flags(runner: str, options: PipelineOptions, flags: list[str]) -> None:
    """Raise DatasetError where a flag that a runner needs is missing."""
    everything = options.get_all_options()
    endpoint = everything["job_endpoint"]
    if runner == "PortableRunner" and not endpoint:
        raise DatasetError(
            "--runner PortableRunner needs --job_endpoint HOST:PORT, the address of a Beam job server; start one and "
            "name it, or leave --runner out to run on this machine"
        )
    missing = {
        flag: value
        for flag, value in _REQUIRED.get(runner, {}).items()
        # FlinkRunner and SparkRunner would start a cluster of their own here.
        if not everything[flag.removeprefix("--")] or (runner != "DataflowRunner" and not _is_given(flag, flags))
    }
    if missing and not endpoint:
        instead = f", or use {_INSTEAD[runner]}" if runner in _INSTEAD else ""
        required = " ".join(f"{flag} {value}" for flag, value in missing.items())
        raise DatasetError(f"--runner {runner} needs {required}; add {'it' if len(missing) == 1 else 'them'}{instead}")
    java = everything["job_server_java_launcher"]
    starts_java = runner in ("FlinkRunner", "SparkRunner") and not endpoint
    if starts_java and not everything.get(f"{runner[:5].lower()}_submit_uber_jar") and not shutil.which(java):
        raise DatasetError(
            f"--runner {runner} starts Beam's job server, and there is no Java at {java}; install Java 17, name it "
            "with --job_server_java_launcher, or give --job_endpoint of a job server that runs elsewhere"
        )
    kind = (everything["environment_type"] or "DOCKER").upper()
    if endpoint == EMBEDDED_JOB_SERVER and kind == "DOCKER" and not shutil.which("docker"):
        raise DatasetError(
            f"--job_endpoint {EMBEDDED_JOB_SERVER} starts workers with --environment_type DOCKER, and docker is not "
            "installed; install it, or give --environment_type LOOPBACK"
        )
    if kind in ("PROCESS", "EXTERNAL") and not (everything["environment_config"] or everything["environment_options"]):
        example = "HOST:50000" if kind == "EXTERNAL" else """'{"command": "/path/to/worker"}'"""
        raise DatasetError(f"--environment_type {kind} needs --environment_config, such as {example}")
