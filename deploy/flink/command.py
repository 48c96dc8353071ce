"""`beambert submit flink`: a data command on an Apache Flink cluster.

The command itself runs here as it always does: it finds the input, checks the options, and builds the pipelines. What
is added is Beam's job server, which hands them to the cluster, checks of what would otherwise hang without a word, the
job's state as it changes, and its end when the command is stopped.
"""

import argparse
import hashlib
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from beambert_common.command_line.flag_config import FlagConfig
from beambert_common.command_line.flags import WholeNumber
from beambert_common.command_line.path_flags import LOCAL_PATH
from beambert_common.signals import interrupted_by_signals
from deploy.flink.job_server import find_java, job_server
from pipelines.errors import EngineError, SubmitError
from pipelines.runner.flink_rest import FINAL, FlinkCluster, listens

if TYPE_CHECKING:
    from beambert_common.command_line.command import Command

DESCRIPTION = """Runs a data command on an Apache Flink cluster: beambert submit flink [flags] COMMAND [its flags].
The cluster needs a pool of Python workers beside each TaskManager (python -m deploy.flink.worker_pool, or a Beam SDK
container), the same version of Python, Beam and beambert there as here, and --input and --output on paths or buckets
that all machines see. Further flags of Beam's go behind COMMAND. docs/FLINK.md tells more."""
EXAMPLE = "beambert submit flink --flink_master localhost:8081 build --input 'texts/*.txt' --output data"
COMMON_FLAGS = ()

RUNS = ("build", "corpus", "pretraining-data")

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_TO_CANCEL = 30.0
_MILLISECONDS_IDLE = 5_000
# Flags of Beam's that are decided here.
_OURS = ("--runner", "--job_endpoint", "--environment_type", "--environment_config", "--parallelism", "--job_name")


@dataclass(frozen=True, kw_only=True)
class FlinkConfig(FlagConfig):
    """How to run a data command on Flink; the help of each flag says what it does.

    None is an option that was not given and has no fixed default.
    """

    flink_master: str
    parallelism: int | None = None
    environment_type: str = "EXTERNAL"
    environment_config: str = "localhost:50000"
    shared_paths: bool = False
    flink_version: str | None = None
    job_server_jar: str | None = None
    job_endpoint: str | None = None
    java: str = "java"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `beambert submit flink`."""
    group = parser.add_argument_group("the cluster")
    group.add_argument(
        "--flink_master",
        required=True,
        metavar="HOST:PORT",
        help="REST interface of the JobManager, such as flink:8081",
    )
    group.add_argument(
        "--parallelism",
        type=WholeNumber(1, 32_768),
        metavar="N",
        help="how many workers share the job (default: all slots there are)",
    )
    group.add_argument(
        "--environment_type",
        choices=("EXTERNAL", "DOCKER", "PROCESS", "LOOPBACK"),
        default=FlinkConfig.environment_type,
        help="how TaskManagers come to Python workers: EXTERNAL asks a pool, LOOPBACK this very process, for a cluster "
        "on this machine; DOCKER and PROCESS start them there, see Beam's documentation",
    )
    group.add_argument(
        "--environment_config",
        default=FlinkConfig.environment_config,
        metavar="CONFIG",
        help="for EXTERNAL, where each TaskManager finds its pool; for others see Beam's documentation",
    )
    group.add_argument(
        "--shared_paths",
        action="store_true",
        help="local paths of --input and --output are mounts that every worker has under the same name; "
        "needed where the cluster is not on this machine",
    )
    group = parser.add_argument_group("Beam's job server")
    group.add_argument(
        "--flink_version", metavar="X.Y", help="which job server to fetch (default: the version of the cluster)"
    )
    group.add_argument(
        "--job_server_jar",
        type=LOCAL_PATH,
        metavar="PATH",
        help="a job server that is at hand, a jar or a folder of jars (default: Beam's own from Maven Central, or from "
        "the repository in MAVEN_REPOSITORY_URL, kept in ~/.cache/beambert)",
    )
    group.add_argument(
        "--job_endpoint", metavar="HOST:PORT", help="a job server that runs already; then no Java is needed"
    )
    group.add_argument("--java", default=FlinkConfig.java, type=LOCAL_PATH, metavar="PATH", help="the Java launcher")


def job_name(output: str) -> str:
    """Return the name of the jobs of an output: the same for every attempt, so that two cannot run at once."""
    where = output if "://" in output else os.path.abspath(os.path.expanduser(output))  # noqa: PTH100, PTH111
    return f"beambert-{hashlib.blake2b(where.encode('utf-8'), digest_size=6).hexdigest()}"


class Plan(NamedTuple):
    """Properties of the cluster that the job depends on.

    Attributes:
        parallelism: number of workers.
        keeps_workers: whether Python workers may wait for the next stage. They can where Beam's jars are in Flink's own
            class path; where they come with the job, each stage would wait for the end of their patience instead.
        version: of Flink, such as "2.2".
    """

    parallelism: int
    keeps_workers: bool
    version: str


def beam_flags(config: FlinkConfig, endpoint: str, plan: Plan, name: str) -> list[str]:
    """Return the flags of Beam that send a pipeline to the cluster."""
    flags = [
        "--runner=PortableRunner",
        f"--job_endpoint={endpoint}",
        f"--environment_type={config.environment_type}",
        f"--parallelism={plan.parallelism}",
        f"--job_name={name}",
    ]
    if plan.keeps_workers:
        flags.append(f"--environment_cache_millis={_MILLISECONDS_IDLE}")
    if config.environment_type != "LOOPBACK":
        flags.append(f"--environment_config={config.environment_config}")
    return flags


def configure(args: argparse.Namespace) -> FlinkConfig:
    """Return what the flags of Flink ask for."""
    return FlinkConfig.from_args(args)


def run(config: FlinkConfig, command: "Command") -> int:
    """Run a data command on the cluster.

    Raises:
        SubmitError: an invalid flag, or a cluster that cannot run the job.
        SourceError, DatasetError, VocabularyError: see the command.
    """
    name = job_name(command.output[1])
    cluster = FlinkCluster(config.flink_master)
    for flag in command.beam_flags:
        if flag.split("=")[0] in _OURS:
            raise SubmitError(
                f"{flag.split('=')[0]} is set by beambert submit flink; give it in front of {command.name}"
            )
    plan = _check(config, command, cluster, name)
    print(f"Flink: {cluster.url}, {plan.parallelism} worker(s)", flush=True)
    with tempfile.TemporaryDirectory(prefix="beambert-flink-") as temporary, interrupted_by_signals():
        folder = Path(temporary)
        with (
            _log_files(folder),
            _job_server(config, cluster, plan.version, folder) as endpoint,
            _monitored_jobs(cluster, name, plan),
        ):
            flags = beam_flags(config, endpoint, plan, name)
            try:
                return command.module.run(command.configure(), [*command.beam_flags, *flags])
            except RuntimeError as error:
                raise failure(str(error)) or error from error
            except EngineError as error:
                cause = error.__cause__
                raise (failure(str(cause)) if isinstance(cause, RuntimeError) else None) or error from cause


def failure(text: str) -> SubmitError | None:
    """Return why Flink could not run a job, from Beam's message; None for an error with a Python traceback."""
    message = text.partition("failed in state FAILED: ")[2]
    if not message or "Traceback (most recent call last)" in message:
        return None
    causes = [line.removeprefix("Caused by: ") for line in message.splitlines() if line.startswith("Caused by: ")]
    reason = causes[-1] if causes else message.splitlines()[0]
    return SubmitError(f"the Flink job failed: {reason[:400]}")


def _check(config: FlinkConfig, command: "Command", cluster: FlinkCluster, name: str) -> Plan:
    """Check for problems that would fail late or never. Raise SubmitError."""
    overview = cluster.overview()
    slots = overview["slots-total"]
    parallelism = config.parallelism or slots
    if not parallelism:
        raise SubmitError(
            f"--flink_master {cluster.url} has no TaskManager; start one, or give --parallelism if it does so itself"
        )
    if parallelism > slots:
        print(f"warning: the cluster has {slots} slot(s), --parallelism {parallelism} waits for more", file=sys.stderr)
    version = ".".join(overview["flink-version"].split(".")[:2])
    if config.flink_version not in (None, version):
        raise SubmitError(f"--flink_version {config.flink_version}, but {cluster.url} is Flink {version}; leave it out")
    local = cluster.host in _LOCAL_HOSTS
    if local and config.environment_type == "EXTERNAL" and not listens(config.environment_config):
        raise SubmitError(
            f"--environment_config {config.environment_config}: no pool of Python workers listens there; start "
            "`python -m deploy.flink.worker_pool` beside each TaskManager"
        )
    if not local and not config.shared_paths:
        here = next((place for place in command.path_arguments if "://" not in place[1]), None)
        if here:
            raise SubmitError(
                f"{' '.join(here)} is a path of this machine, and the cluster is on {cluster.host}; give a bucket such "
                "as gs://..., or --shared_paths if it is a mount that all machines have under this name"
            )
    for job in cluster.jobs(name):
        if job["state"] not in FINAL:
            raise SubmitError(
                f"--output {command.output[1]} is being written by job {job['jid']} on {cluster.url}, state "
                f"{job['state']}; wait for it, or cancel it in the dashboard"
            )
    settings = cluster.settings()
    if settings.get("restart-strategy.type", settings.get("restart-strategy", "none")) == "none":
        print(
            "warning: the cluster's restart-strategy.type is not set, so that a lost TaskManager fails the job",
            file=sys.stderr,
        )
    return Plan(parallelism, settings.get("classloader.resolve-order") == "parent-first", version)


@contextmanager
def _job_server(config: FlinkConfig, cluster: FlinkCluster, version: str, folder: Path) -> Iterator[str]:
    """Yield the address of the job server."""
    if config.job_endpoint:
        if not listens(config.job_endpoint):
            raise SubmitError(f"--job_endpoint {config.job_endpoint}: no job server listens there; leave the flag out")
        yield config.job_endpoint
        return
    java = find_java(config.java)
    if config.job_server_jar:
        jar = Path(config.job_server_jar).expanduser()
        if not jar.exists():
            raise SubmitError(f"--job_server_jar {jar} does not exist; leave it out to have it fetched")
    else:
        import apache_beam

        from deploy.flink.downloads import published_job_server

        jar = published_job_server(version, apache_beam.__version__)
    with job_server(java, jar, cluster.url, folder) as endpoint:
        yield endpoint


@contextmanager
def _log_files(folder: Path) -> Iterator[None]:
    """Write Beam's log to a file beside the job server's log, and keep both where the error is unclear."""
    handler = logging.FileHandler(folder / "beam.log", encoding="utf-8")
    root = logging.getLogger()
    root.addHandler(handler)
    # A thread of Beam's waits for messages, and complains when the job server goes before it.
    threading.excepthook = lambda failed: root.error("%s in %s", failed.exc_value, failed.thread)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        of_the_job = isinstance(error, SubmitError) and isinstance(error.__cause__, RuntimeError)
        if of_the_job or not isinstance(error, (ValueError, OSError, KeyboardInterrupt)):
            kept = Path(tempfile.mkdtemp(prefix="beambert-flink-logs-"))
            for log in folder.glob("*.log"):
                shutil.copy(log, kept)
            print(f"Logs of Beam and its job server: {kept}", file=sys.stderr)
        raise
    finally:
        threading.excepthook = threading.__excepthook__
        root.removeHandler(handler)
        handler.close()


@contextmanager
def _monitored_jobs(cluster: FlinkCluster, name: str, plan: Plan) -> Iterator[None]:
    """Print each change of state of the jobs while the body runs, and cancel them if it is interrupted."""
    before = {job["jid"] for job in cluster.jobs(name)}
    over = threading.Event()
    thread = threading.Thread(target=_print_states, args=(cluster, name, before, over), daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        over.set()
        if _cancel(cluster, name) and plan.keeps_workers:
            # They finish what they are at, until they are ended for being idle.
            time.sleep(_MILLISECONDS_IDLE / 1000 + 1)
        raise
    finally:
        over.set()
        thread.join(_SECONDS_TO_CANCEL)


def _print_states(cluster: FlinkCluster, name: str, before: set[str], over: threading.Event) -> None:
    states: dict[str, str] = {}
    while not over.wait(_SECONDS_BETWEEN_LOOKS):
        # The JobManager may be away for a moment.
        with suppress(SubmitError):
            for job in cluster.jobs(name):
                jid, state = job["jid"], job["state"]
                if jid in before or states.get(jid) == state:
                    continue
                states[jid] = state
                reason = cluster.reason(jid) if state in ("RESTARTING", "FAILING", "FAILED") else ""
                dashboard = "" if state in FINAL else f", {cluster.url}/#/job/running/{jid}"
                print(f"Flink: {state}{f' ({reason[:200]})' if reason else ''}{dashboard}", file=sys.stderr, flush=True)


def _cancel(cluster: FlinkCluster, name: str) -> bool:
    """Cancel the jobs that still run, wait until they end, and return whether there were any."""
    deadline = time.monotonic() + _SECONDS_TO_CANCEL
    canceled: set[str] = set()
    try:
        while running := [job["jid"] for job in cluster.jobs(name) if job["state"] not in FINAL]:
            for jid in running:
                if jid not in canceled:
                    canceled.add(jid)
                    cluster.cancel(jid)
                    print(f"Flink: cancelling {jid}", file=sys.stderr, flush=True)
            if time.monotonic() > deadline:
                print(f"Flink: {running[0]} does not end; look at {cluster.url}", file=sys.stderr)
                break
            time.sleep(0.3)
    except SubmitError as error:
        print(f"Flink: the job could not be cancelled: {error}", file=sys.stderr)
    return bool(canceled)
