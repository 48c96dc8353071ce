"""`beambert submit flink`: run a data command on an Apache Flink cluster.

The command itself runs on this machine: it lists the input, validates the options and builds the pipelines. This module
adds Beam's job server, which submits them to the cluster, and checks for problems that would make the job hang.
"""

import argparse
import hashlib
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from msgspec import Meta

from beambert.common.command_line import options
from beambert.common.command_line.options import Flag
from beambert.common.command_line.path_flags import LOCAL_PATH
from beambert.common.formatting import counted
from beambert.common.signals import interrupted_by_signals
from beambert.deploy.flink.job_monitor import MILLISECONDS_IDLE, monitored_jobs
from beambert.deploy.flink.job_server import find_java, job_server
from beambert.pipelines.errors import EngineError, SubmitError
from beambert.pipelines.runner.flink_rest import FINAL, FlinkCluster, listens

if TYPE_CHECKING:
    from beambert.common.command_line.command import Command

DESCRIPTION = """Run build, corpus or pretraining-data on an Apache Flink cluster.

Flags of Flink precede the command; flags of the command and further Beam flags follow it. Each TaskManager needs a
Python worker pool with the same versions of Python, Beam and beambert. All machines need access to --input and
--output; see docs/guides/flink.md."""

EXAMPLE = """beambert submit flink --flink_master localhost:8081 build --input 'texts/*.txt' --output data
beambert submit flink --flink_master flink:8081 --shared_paths build --input '/mnt/texts/*.txt' --output /mnt/data"""

COMMON_FLAGS = (
    "--flink_master",
    "--parallelism",
    "--environment_type",
    "--environment_config",
    "--shared_paths",
    "--job_server_jar",
)

RUNS = ("build", "corpus", "pretraining-data")

# Port of `beambert.deploy.flink.worker_pool`, which imports Beam.
_WORKER_POOL = "localhost:50000"
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
# Beam's flags that `submit flink` sets, which are rejected after the command.
_RESERVED = ("--runner", "--job_endpoint", "--environment_type", "--environment_config", "--parallelism", "--job_name")


@dataclass(frozen=True, kw_only=True)
class FlinkOptions:
    """The options of `beambert submit flink`; None is an option without a fixed default that was not given.

    Attributes:
        flink_master: REST address of the JobManager, such as flink:8081.
        parallelism: Parallelism of the job, in task slots (default: all slots of the cluster).
        environment_type: Beam's SDK worker environment. EXTERNAL uses a worker pool; LOOPBACK runs workers in this
            process, for a cluster on this machine; DOCKER and PROCESS start them on the TaskManagers, as in Beam's
            documentation.
        environment_config: Configuration of the environment: for EXTERNAL, host:port of the worker pool as each
            TaskManager sees it (default: localhost:50000); for DOCKER, the image (default: Beam's); PROCESS requires
            it, as JSON.
        shared_paths: Allow local paths with a remote cluster: all workers mount them under the same path.
        flink_version: Flink version of the job server to download (default: the version of the cluster).
        job_server_jar: Beam's job server, as a jar or a directory of jars (default: downloaded to ~/.cache/beambert
            from Maven Central, or from MAVEN_REPOSITORY_URL).
        job_endpoint: Address of a running job server; no Java is needed then.
        java: Java executable of the job server.

    Raises:
        SubmitError: a value is out of range.
    """

    flink_master: Annotated[str, Flag("cluster", required=True, metavar="HOST:PORT")]
    parallelism: Annotated[Annotated[int, Meta(ge=1, le=32_768)] | None, Flag("cluster")] = None
    environment_type: Annotated[Literal["EXTERNAL", "DOCKER", "PROCESS", "LOOPBACK"], Flag("cluster")] = "EXTERNAL"
    environment_config: Annotated[str | None, Flag("cluster", metavar="CONFIG")] = None
    shared_paths: Annotated[bool, Flag("cluster")] = False
    flink_version: Annotated[str | None, Flag("cluster", metavar="X.Y")] = None
    job_server_jar: Annotated[str | None, Flag("cluster", type=LOCAL_PATH, metavar="PATH")] = None
    job_endpoint: Annotated[str | None, Flag("cluster", metavar="HOST:PORT")] = None
    java: Annotated[str, Flag("cluster", type=LOCAL_PATH, metavar="PATH")] = "java"

    def __post_init__(self) -> None:
        options.check(self, SubmitError)

    @property
    def worker_pool(self) -> str:
        """Return host:port of the worker pool of the environment EXTERNAL."""
        return self.environment_config or _WORKER_POOL


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    options.add_arguments(parser, FlinkOptions)


def job_name(output: str) -> str:
    """Return the job name for an output: every attempt has the same name, so that concurrent jobs are detected."""
    path = output if "://" in output else os.path.abspath(os.path.expanduser(output))  # noqa: PTH100, PTH111
    return f"beambert-{hashlib.blake2b(path.encode('utf-8'), digest_size=6).hexdigest()}"


class ClusterProperties(NamedTuple):
    """Properties of the cluster that determine the job's flags.

    Attributes:
        parallelism: number of task slots of the job.
        keeps_workers: whether idle Python workers are reused by the next stage. This requires Beam's jars in Flink's
            class path; where the jars are submitted with the job, each stage would wait for the idle timeout instead.
        version: Flink version, such as "2.2".
    """

    parallelism: int
    keeps_workers: bool
    version: str


def beam_flags(config: FlinkOptions, endpoint: str, properties: ClusterProperties, name: str) -> list[str]:
    """Return Beam's flags for the cluster.

    Args:
        config: options of `beambert submit flink`.
        endpoint: host:port of the job server.
        properties: properties of the cluster.
        name: job name.
    """
    flags = [
        "--runner=PortableRunner",
        f"--job_endpoint={endpoint}",
        f"--environment_type={config.environment_type}",
        f"--parallelism={properties.parallelism}",
        f"--job_name={name}",
    ]
    if properties.keeps_workers:
        flags.append(f"--environment_cache_millis={MILLISECONDS_IDLE}")
    if config.environment_type == "EXTERNAL":
        flags.append(f"--environment_config={config.worker_pool}")
    elif config.environment_type != "LOOPBACK" and config.environment_config:
        flags.append(f"--environment_config={config.environment_config}")
    return flags


def configure(args: argparse.Namespace) -> FlinkOptions:
    """Return the options of parsed flags."""
    return options.from_args(FlinkOptions, args)


def run(config: FlinkOptions, command: "Command") -> int:
    """Run a data command on the cluster and return its exit code.

    Args:
        config: options of `beambert submit flink`.
        command: the data command to run.

    Raises:
        SubmitError: a flag is invalid, or the cluster cannot run the job.
        SourceError, DatasetError, VocabularyError: raised by the command.
    """
    name = job_name(command.output[1])
    cluster = FlinkCluster(config.flink_master)
    for flag in command.beam_flags:
        if flag.split("=")[0] in _RESERVED:
            raise SubmitError(f"{flag.split('=')[0]} is a flag of submit flink: put it before {command.name}")
    has_options = any(flag.split("=")[0] == "--environment_options" for flag in command.beam_flags)
    if config.environment_type == "PROCESS" and not (config.environment_config or has_options):
        raise SubmitError(
            '--environment_type PROCESS requires --environment_config, such as \'{"command": "/path/to/worker"}\''
        )
    properties = _check(config, command, cluster, name)
    print(f"Flink: {cluster.url}, parallelism {properties.parallelism}", flush=True)
    with tempfile.TemporaryDirectory(prefix="beambert-flink-") as temporary, interrupted_by_signals():
        folder = Path(temporary)
        with (
            _log_files(folder),
            _job_server(config, cluster, properties.version, folder) as endpoint,
            monitored_jobs(cluster, name, keeps_workers=properties.keeps_workers),
        ):
            flags = beam_flags(config, endpoint, properties, name)
            try:
                return command.module.run(command.configure(), [*command.beam_flags, *flags])
            except RuntimeError as error:
                raise failure(str(error)) or error from error
            except EngineError as error:
                cause = error.__cause__
                raise (failure(str(cause)) if isinstance(cause, RuntimeError) else None) or error from cause


def failure(text: str) -> SubmitError | None:
    """Return the error of a failed Flink job from Beam's message; None where it contains a Python traceback."""
    message = text.partition("failed in state FAILED: ")[2]
    if not message or "Traceback (most recent call last)" in message:
        return None
    if "File upload failed" in message:
        return SubmitError(
            "the Flink job failed: the JobManager could not store the job's files (File upload failed); free space in "
            "its directory web.tmpdir, or set web.tmpdir to a disk with space"
        )
    causes = [line.removeprefix("Caused by: ") for line in message.splitlines() if line.startswith("Caused by: ")]
    reason = causes[-1] if causes else message.splitlines()[0]
    return SubmitError(f"the Flink job failed: {reason[:400]}")


def _check(config: FlinkOptions, command: "Command", cluster: FlinkCluster, name: str) -> ClusterProperties:
    """Check for problems that would fail the job late or make it hang. Raise SubmitError."""
    overview = cluster.overview()
    slots = overview["slots-total"]
    parallelism = config.parallelism or slots
    if not parallelism:
        raise SubmitError(
            f"--flink_master {cluster.url} has no TaskManager: start one, or set --parallelism if the cluster starts "
            "TaskManagers on demand"
        )
    if parallelism > slots:
        print(
            f"warning: --parallelism {parallelism} exceeds the {counted(slots, 'slot')} of the cluster; the job "
            "waits for more",
            file=sys.stderr,
        )
    version = ".".join(overview["flink-version"].split(".")[:2])
    if config.flink_version not in (None, version):
        raise SubmitError(
            f"--flink_version {config.flink_version} does not match Flink {version} at {cluster.url}: omit the flag"
        )
    local = cluster.host in _LOCAL_HOSTS
    if local and config.environment_type == "EXTERNAL" and not listens(config.worker_pool):
        raise SubmitError(
            f"--environment_config {config.worker_pool}: no Python worker pool listens at this address; start "
            "`python -m beambert.deploy.flink.worker_pool` next to each TaskManager"
        )
    if not local and not config.shared_paths:
        local_path = next((argument for argument in command.path_arguments if "://" not in argument[1]), None)
        if local_path:
            raise SubmitError(
                f"{' '.join(local_path)} is a local path, and the cluster is on {cluster.host}: use a bucket "
                "(gs://...), or --shared_paths if all machines mount it under this path"
            )
    for job in cluster.jobs(name):
        if job["state"] not in FINAL:
            raise SubmitError(
                f"--output {command.output[1]} is in use by job {job['jid']} on {cluster.url} (state {job['state']}): "
                "wait for it, or cancel it in the dashboard"
            )
    settings = cluster.settings()
    if settings.get("restart-strategy.type", settings.get("restart-strategy", "none")) == "none":
        print(
            "warning: restart-strategy.type of the cluster is not set, so the loss of a TaskManager fails the job",
            file=sys.stderr,
        )
    return ClusterProperties(parallelism, settings.get("classloader.resolve-order") == "parent-first", version)


@contextmanager
def _job_server(config: FlinkOptions, cluster: FlinkCluster, version: str, folder: Path) -> Iterator[str]:
    """Yield host:port of the job server."""
    if config.job_endpoint:
        if not listens(config.job_endpoint):
            raise SubmitError(f"--job_endpoint {config.job_endpoint}: no job server listens at this address")
        yield config.job_endpoint
        return
    java = find_java(config.java)
    if config.job_server_jar:
        jar = Path(config.job_server_jar).expanduser()
        if not jar.exists():
            raise SubmitError(f"--job_server_jar {jar} does not exist: omit the flag to download the jar")
    else:
        import apache_beam

        from beambert.deploy.flink.job_server import published_job_server

        jar = published_job_server(version, apache_beam.__version__)
    with job_server(java, jar, cluster.url, folder) as endpoint:
        yield endpoint


@contextmanager
def _log_files(folder: Path) -> Iterator[None]:
    """Write Beam's log to a file next to the job server's log, and keep both after an unexpected error."""
    handler = logging.FileHandler(folder / "beam.log", encoding="utf-8")
    root = logging.getLogger()
    root.addHandler(handler)
    # Beam's message thread raises an error when the job server ends before it.
    threading.excepthook = lambda failed: root.error("%s in %s", failed.exc_value, failed.thread)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        job_failed = isinstance(error, SubmitError) and isinstance(error.__cause__, RuntimeError)
        if job_failed or not isinstance(error, (ValueError, OSError, KeyboardInterrupt)):
            log_folder = Path(tempfile.mkdtemp(prefix="beambert-flink-logs-"))
            for log in folder.glob("*.log"):
                shutil.copy(log, log_folder)
            print(f"Logs of Beam and its job server: {log_folder}", file=sys.stderr)
        raise
    finally:
        threading.excepthook = threading.__excepthook__
        root.removeHandler(handler)
        handler.close()
