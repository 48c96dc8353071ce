"""Check, before a pipeline is built, that the job server or cluster of Beam's flags is reachable."""

import os

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
    StandardOptions,
)

from beambert.pipelines.errors import AccessError
from beambert.pipelines.io.access_errors import run_within
from beambert.pipelines.runner.beam_flags import EMBEDDED_JOB_SERVER
from beambert.pipelines.runner.flink_rest import FlinkCluster, listens

_SECONDS = 5.0
_REMEDY = "start a Beam job server, check its address, or leave out --runner and --job_endpoint to run on this machine"
_SPARK = "spark://"


def require_engine(options: PipelineOptions, flags: list[str]) -> None:
    """Check that the job server or the cluster answers, if the flags name one.

    Args:
        options: Beam's options, already checked.
        flags: The flags as typed. If --job_server_timeout is among them, a job server may take that long to start.

    Raises:
        AccessError, SubmitError: It does not answer.
    """
    portable = options.view_as(PortableOptions)
    runner = options.view_as(StandardOptions).runner
    if portable.job_endpoint and portable.job_endpoint != EMBEDDED_JOB_SERVER:
        has_timeout = any(word.partition("=")[0].replace("-", "_") == "__job_server_timeout" for word in flags)
        # Beam waits five minutes by default; wait for a server to start only if the flag requests it.
        if not has_timeout and not listens(portable.job_endpoint):
            raise AccessError(
                f"--job_endpoint {portable.job_endpoint} refuses connections or cannot be reached; {_REMEDY}"
            )
        _require_job_server(portable.job_endpoint, float(portable.job_server_timeout) if has_timeout else _SECONDS)
        return
    if runner == "FlinkRunner":
        master = options.view_as(FlinkRunnerOptions).flink_master
        if not master.startswith("["):
            FlinkCluster(master).overview()
    if runner == "SparkRunner":
        master = options.view_as(SparkRunnerOptions).spark_master_url
        if master.startswith(_SPARK) and not listens(master.removeprefix(_SPARK)):
            raise AccessError(f"--spark_master_url {master} cannot be reached; check host and port of the Spark master")


def _require_job_server(endpoint: str, seconds: float) -> None:
    # gRPC prints a line for every failed connection.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import grpc

    with grpc.insecure_channel(endpoint) as channel:
        try:
            run_within(seconds + 1, lambda: grpc.channel_ready_future(channel).result(timeout=seconds))
        except (grpc.FutureTimeoutError, TimeoutError) as error:
            raise AccessError(
                f"--job_endpoint {endpoint} does not answer as a Beam job server within {seconds:.0f} s; {_REMEDY}"
            ) from error
