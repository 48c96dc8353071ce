"""Check the flags of Apache Beam when the command line is parsed.

Beam itself reports an invalid value with more than a hundred lines of usage. It reports a missing flag of a runner with
a traceback, after the input files are listed.
"""

import argparse
import logging
import os
from typing import NoReturn

from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
    StandardOptions,
)
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.runner import create_runner

from beambert.common.command_line.flags import WholeNumber, in_quotes
from beambert.pipelines.errors import AccessError, DatasetError
from beambert.pipelines.runner.flink_rest import FlinkCluster, listens

# Keep Beam's log off the terminal, where an error is one line; without a handler Python prints it there.
logging.getLogger("apache_beam").addHandler(logging.NullHandler())
# Runners that run in this process.
EMBEDDED_RUNNERS = ("DirectRunner", "FnApiRunner", "EmbeddedRunner")
# The address of a job server within this process.
EMBEDDED_JOB_SERVER = "embed"
# Time for a job server to answer. Beam's default of five minutes is for one that still starts.
_SECONDS_TO_ANSWER = 5
# A larger number of worker processes on this machine is a typing error.
_WORKERS = WholeNumber(0, max(64, 4 * (os.cpu_count() or 1)))
# Required flags of a runner, each with an example value.
_REQUIRED = {
    "PortableRunner": {"--job_endpoint": "HOST:PORT"},
    "FlinkRunner": {"--flink_master": "HOST:8081"},
    "SparkRunner": {"--spark_master_url": "spark://HOST:7077"},
    "DataflowRunner": {
        "--project": "ID",
        "--region": "us-central1",
        "--temp_location": "gs://BUCKET/FOLDER",
    },
}
_ALTERNATIVES = {"FlinkRunner": "use beambert submit flink", "DataflowRunner": "use beambert submit dataflow"}
LOCAL_REMEDY = "leave out --runner to run on this machine"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise DatasetError(message)


def read(flags: list[str]) -> tuple[list[str], list[str]]:
    """Check the values of Beam's flags.

    Args:
        flags: The part of the command line that the command itself does not define.

    Returns:
        The arguments that Beam does not define either, and the names of all Beam flags.

    Raises:
        DatasetError: A value is invalid, or too large for this machine.
    """
    # Some flags are declared by two option classes. The runner parses the flags again later.
    parser = _Parser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    parser.add_argument("--direct_num_workers", type=_WORKERS)
    try:
        unknown = parser.parse_known_args(flags)[1]
    except DatasetError:
        raise
    except Exception as error:
        # Beam's argparse actions raise any exception.
        raise DatasetError(f"invalid Beam flag in {in_quotes(' '.join(flags))} ({error})") from error
    return unknown, list(parser._option_string_actions)


def pipeline_options(flags: list[str]) -> PipelineOptions:
    """Return Beam's options after checking them.

    Args:
        flags: Beam's flags. Without --runner, the pipeline runs on this machine. `--direct_num_workers N` other than 1
            starts worker processes unless `--direct_running_mode` is given.

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


def _is_given(flag: str, flags: list[str]) -> bool:
    return any(word.partition("=")[0] == flag for word in flags)


def _runner_name(name: str) -> str:
    """Return a runner's name in Beam's spelling. Raise DatasetError if Beam has no such runner for a job."""
    known = {runner.lower(): runner for runner in (*StandardOptions.KNOWN_RUNNER_NAMES, *EMBEDDED_RUNNERS)}
    name = known.get(name.lower(), known.get(f"{name.lower()}runner", name))
    try:
        # InteractiveRunner serves notebooks, and would cache every collection of the job.
        valid = name in EMBEDDED_RUNNERS or (name != "InteractiveRunner" and create_runner(name) is not None)
    except Exception:
        valid = False
    if not valid:
        raise DatasetError(
            f"invalid --runner {in_quotes(name)}: not a Beam runner for a job; {LOCAL_REMEDY}, or choose from "
            "FlinkRunner, SparkRunner, DataflowRunner, PrismRunner and PortableRunner"
        )
    return name


def _require_flags(runner: str, options: PipelineOptions, flags: list[str]) -> None:
    """Raise DatasetError if a required flag of a runner is missing."""
    values = options.get_all_options()
    # Without the flag, FlinkRunner and SparkRunner would start a cluster on this machine.
    missing = " ".join(
        f"{flag} {example}"
        for flag, example in _REQUIRED.get(runner, {}).items()
        if not values[flag.removeprefix("--")] or (runner != "DataflowRunner" and not _is_given(flag, flags))
    )
    if missing and not values["job_endpoint"]:
        remedy = _ALTERNATIVES.get(runner, LOCAL_REMEDY)
        raise DatasetError(f"--runner {runner} requires {missing}; give the missing flags, or {remedy}")


def require_engine(options: PipelineOptions, flags: list[str]) -> None:
    """Check that the job server or the cluster answers, if the flags name one.

    Args:
        options: Beam's options, from `pipeline_options`.
        flags: The flags as typed. If --job_server_timeout is among them, a job server may take that long to start.

    Raises:
        AccessError, SubmitError: It does not answer.
    """
    runner, portable = options.view_as(StandardOptions).runner, options.view_as(PortableOptions)
    flink = options.view_as(FlinkRunnerOptions).flink_master
    spark = options.view_as(SparkRunnerOptions).spark_master_url
    if portable.job_endpoint == EMBEDDED_JOB_SERVER:
        return
    if portable.job_endpoint:
        waits = _is_given("--job_server_timeout", flags)
        _require_job_server(portable.job_endpoint, portable.job_server_timeout if waits else _SECONDS_TO_ANSWER)
    elif runner == "FlinkRunner" and not flink.startswith("["):
        FlinkCluster(flink).overview()
    elif runner == "SparkRunner" and spark.startswith("spark://") and not listens(spark.removeprefix("spark://")):
        raise AccessError(f"--spark_master_url {spark} cannot be reached; check host and port of the Spark master")


def _require_job_server(endpoint: str, seconds: int) -> None:
    import grpc

    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=seconds)
        except grpc.FutureTimeoutError as error:
            raise AccessError(
                f"--job_endpoint {endpoint} does not answer as a Beam job server within {seconds} s; start one, check "
                f"its address, or {LOCAL_REMEDY}"
            ) from error
