"""Check, before a pipeline is built, that the engine that Beam's flags name can be reached."""

import os

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    PipelineOptions,
    PortableOptions,
    SparkRunnerOptions,
    StandardOptions,
)

from pipelines.errors import AccessError
from pipelines.io.access_errors import run_within
from pipelines.runner.beam_flags import EMBEDDED_JOB_SERVER
from pipelines.runner.flink_rest import FlinkCluster, listens

_SECONDS = 5.0
_REMEDY = (
    "start a Beam job server, give the address of one, or leave --runner and --job_endpoint out to run on this machine"
)
_SPARK = "spark://"


def require_engine(options: PipelineOptions, flags: list[str]) -> None:
    """Check that the job server or the cluster answers, where the flags name one.

    Args:
        options: Beam's, checked.
        flags: as they were typed. --job_server_timeout among them is how long a job server may take.

    Raises:
        AccessError, SubmitError: it does not answer.
    """
    portable = options.view_as(PortableOptions)
    runner = options.view_as(StandardOptions).runner
    if portable.job_endpoint and portable.job_endpoint != EMBEDDED_JOB_SERVER:
        has_timeout = any(word.partition("=")[0].replace("-", "_") == "__job_server_timeout" for word in flags)
        # Beam's own patience is five minutes; a server that is yet to start is waited for where that was asked for.
        if not has_timeout and not listens(portable.job_endpoint):
            raise AccessError(
                f"--job_endpoint {portable.job_endpoint} refuses connections, or cannot be reached; {_REMEDY}"
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
            raise AccessError(f"--spark_master_url {master} cannot be reached; name host and port of the Spark master")


def _require_job_server(endpoint: str, seconds: float) -> None:
    # gRPC prints of every connection that fails.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import grpc

    with grpc.insecure_channel(endpoint) as channel:
        try:
            run_within(seconds + 1, lambda: grpc.channel_ready_future(channel).result(timeout=seconds))
        except (grpc.FutureTimeoutError, TimeoutError) as error:
            raise AccessError(
                f"--job_endpoint {endpoint} does not answer as a Beam job server within {seconds:.0f} s; {_REMEDY}"
            ) from error
