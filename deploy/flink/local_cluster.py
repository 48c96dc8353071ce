"""Run a Flink cluster on this machine, for trials and tests: `python -m beambert.deploy.flink.local_cluster up`.

The cluster has one JobManager, TaskManagers with one slot each, and one shared Python worker pool. All processes run as
this user and listen on localhost only. The JVMs do not use Flink's scripts, so that each can be killed and restarted.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TypedDict

from beambert.common.local_files import write_atomic
from beambert.common.process import python_command, python_environment
from beambert.common.terminal import print_error
from beambert.common.typed_json import JsonError, read
from beambert.deploy.flink.downloads import cache_directory, fetch_job_server
from beambert.deploy.flink.job_server import find_java, free_port
from beambert.deploy.flink.worker_pool import DEFAULT_PORT
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.runner.flink_rest import FlinkCluster, listens

_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_SECONDS_TO_START = 180.0
_SECONDS_TO_END = 15.0
_STATE = "cluster.json"
# The directories of a cluster, which the next `up` removes.
_FOLDERS = ("conf", "log", "tmp")
# Packages that Flink accesses by reflection on Java 17; Flink's scripts open the same ones.
_OPEN = (
    *(f"java.base/java.{name}" for name in ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util")),
    *(f"java.base/java.util.concurrent{name}" for name in ("", ".atomic", ".locks")),
    "java.base/sun.nio.ch",
)
_LOGGING = """
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5p %c %m%n
"""
_TASK_MANAGER_HEAP_MB = 512
# Memory for tens of MB of data; Flink's scripts derive such sizes. A shuffle to disk needs 16 MB of network memory.
_MEMORY = {
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.task.heap.size": f"{_TASK_MANAGER_HEAP_MB - 128}m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.task.off-heap.size": "64m",
    "taskmanager.memory.network.min": "192m",
    "taskmanager.memory.network.max": "192m",
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
}


def settings(folder: Path, task_managers: int, rest_port: int, rpc_port: int) -> dict[str, Any]:
    """Return the content of config.yaml.

    Args:
        folder: directory of Flink's temporary files.
        task_managers: number of TaskManagers.
        rest_port, rpc_port: ports of the JobManager.
    """
    hosts = {f"{name}.{kind}": "localhost" for name in ("jobmanager", "taskmanager") for kind in ("bind-host",)}
    return {
        **hosts,
        "jobmanager.rpc.address": "localhost",
        "jobmanager.rpc.port": rpc_port,
        "rest.address": "localhost",
        "rest.bind-address": "localhost",
        "rest.port": rest_port,
        "taskmanager.host": "localhost",
        "taskmanager.cpu.cores": 1.0,
        "taskmanager.numberOfTaskSlots": 1,
        "parallelism.default": task_managers,
        **_MEMORY,
        # Without a restart strategy the loss of a TaskManager fails the job. Flink's default heartbeat timeout is 50 s.
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 5,
        "restart-strategy.fixed-delay.delay": "2 s",
        "heartbeat.interval": 2000,
        "heartbeat.timeout": 12000,
        # Beam's jars are in the class path. Loaded per job, they would restart the Python workers between stages.
        "classloader.resolve-order": "parent-first",
        "io.tmp.dirs": str(folder / "tmp"),
        "web.tmpdir": str(folder / "tmp"),
        "cluster.io-pool.size": 4,
    }


class ClusterState(TypedDict):
    """Content of cluster.json.

    Attributes:
        java: Java executable.
        jars: directory of the job server's jars.
        rest_port, pool_port: ports of the JobManager and of the worker pool.
        processes: process id and start time by name; the time is None where a process ended at once.
    """

    java: str
    jars: str
    rest_port: int
    pool_port: int
    processes: dict[str, tuple[int, str | None]]


class LocalCluster:
    """The processes of a cluster, by name: jobmanager, pool, taskmanager-1, taskmanager-2, ...

    Args:
        folder: directory of the configuration, logs and process ids.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def state(self) -> ClusterState:
        """Return ports and process ids.

        Raises:
            SubmitError: there is no cluster, or its file is invalid.
        """
        try:
            return read(self.folder / _STATE, ClusterState)
        except FileNotFoundError as error:
            raise SubmitError(f"no cluster in {self.folder}: run `up` first") from error
        except JsonError as error:
            raise SubmitError(
                f"{self.folder / _STATE}: {error}; end the processes of the cluster and remove it"
            ) from error

    @property
    def master(self) -> str:
        """Return host:port for --flink_master."""
        return f"localhost:{self.state['rest_port']}"

    @property
    def worker_pool(self) -> str:
        """Return host:port for --environment_config."""
        return f"localhost:{self.state['pool_port']}"

    def up(self, task_managers: int = 2, rest_port: int = 8081, pool_port: int = DEFAULT_PORT) -> None:
        """Start all processes and wait until the cluster has all its slots.

        Raises:
            SubmitError: the directory contains files of others, a port is taken, Java is missing, or the cluster does
                not start.
        """
        self._require_own_folder()
        running = [name for name in self._names() if self._runs(name)]
        if running:
            raise SubmitError(f"a cluster runs already in {self.folder} ({', '.join(running)}); take it down first")
        java = find_java("java")
        for flag, port in (("--rest_port", rest_port), ("--pool_port", pool_port)):
            if listens(f"localhost:{port}"):
                raise SubmitError(f"{flag} {port} is taken; choose another")
        jars = fetch_job_server()
        self.folder.mkdir(parents=True, exist_ok=True)
        # First, so that the directory is recognized after a kill.
        self._save({"java": java, "jars": str(jars), "rest_port": rest_port, "pool_port": pool_port, "processes": {}})
        for name in _FOLDERS:
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        lines = [
            f"{key}: {value}" for key, value in settings(self.folder, task_managers, rest_port, free_port()).items()
        ]
        (self.folder / "conf/config.yaml").write_text("\n".join(lines) + "\n")
        (self.folder / "conf/log4j.properties").write_text(_LOGGING)
        try:
            pool = python_command("-m", "beambert.deploy.flink.worker_pool", f"--port={pool_port}")
            self._start("pool", pool)
            self._start("jobmanager", self._jvm(_JOB_MANAGER, "-Xmx512m"))
            # A TaskManager that does not reach the JobManager retries after 10 s.
            self._await("the JobManager", lambda: listens(self.master))
            for number in range(1, task_managers + 1):
                self._start(f"taskmanager-{number}", self._task_manager())
            self.await_slots(task_managers)
            self._await("the worker pool", lambda: listens(self.worker_pool))
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Stop all processes."""
        names = self._names()
        for name in names:
            self._signal(name, signal.SIGTERM)
        deadline = time.monotonic() + _SECONDS_TO_END
        while any(map(self._runs, names)) and time.monotonic() < deadline:
            time.sleep(0.1)
        for name in names:
            self._signal(name, signal.SIGKILL)
        if names:
            self._save({**self.state, "processes": {}})

    def kill_task_manager(self, number: int) -> None:
        """Kill a TaskManager with SIGKILL; its Python workers detect the lost connection and end."""
        name = f"taskmanager-{number}"
        if not self._runs(name):
            raise SubmitError(f"{name} is not running in {self.folder}")
        self._signal(name, signal.SIGKILL)

    def start_task_manager(self, number: int) -> None:
        """Start a TaskManager that was killed, or an additional one."""
        name = f"taskmanager-{number}"
        if self._runs(name):
            raise SubmitError(f"{name} is already running in {self.folder}")
        self._start(name, self._task_manager())

    def await_slots(self, number: int) -> None:
        """Wait until N TaskManagers have registered."""
        self._await(f"{number} slot(s)", lambda: FlinkCluster(self.master).overview()["slots-total"] >= number)

    def _require_own_folder(self) -> None:
        """Raise SubmitError unless the directory is new, empty, or that of a local cluster."""
        if (self.folder / _STATE).exists() or not self.folder.exists():
            return
        if not self.folder.is_dir() or any(self.folder.iterdir()):
            raise SubmitError(
                f"--directory {self.folder} is neither empty nor the directory of a local cluster ({_STATE} is "
                "missing): give a new or empty directory"
            )

    def _names(self) -> list[str]:
        """Return the names of the processes; none where there is no cluster."""
        return list(self.state["processes"]) if (self.folder / _STATE).exists() else []

    def _task_manager(self) -> list[str]:
        return self._jvm(_TASK_MANAGER, f"-Xmx{_TASK_MANAGER_HEAP_MB}m", "-XX:MaxMetaspaceSize=256m")

    def _jvm(self, main: str, *memory: str) -> list[str]:
        state, conf = self.state, self.folder / "conf"
        open_packages = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPEN]
        # Limited JIT compilation saves CPU: these JVMs mostly wait for Python.
        flags = [*open_packages, *memory, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        logging = f"-Dlog4j.configurationFile={conf}/log4j.properties"
        return [state["java"], *flags, logging, "-cp", f"{state['jars']}/*", main, "--configDir", str(conf)]

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603
                command,
                env=python_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        state = self.state
        state["processes"][name] = (process.pid, _start_time(process.pid))
        self._save(state)

    def _save(self, state: ClusterState) -> None:
        write_atomic(self.folder / _STATE, json.dumps(state, indent=1).encode())

    def _runs(self, name: str) -> bool:
        pid, started = self.state["processes"].get(name, (0, None))
        return bool(pid) and _start_time(pid) == started is not None

    def _signal(self, name: str, number: int) -> None:
        if self._runs(name):
            os.kill(self.state["processes"][name][0], number)

    def _await(self, what: str, is_ready: Any) -> None:
        deadline = time.monotonic() + _SECONDS_TO_START
        while True:
            try:
                if is_ready():
                    return
            except SubmitError:
                pass
            dead = [name for name in self.state["processes"] if not self._runs(name)]
            if dead or time.monotonic() > deadline:
                reason = f"{dead[0]} has ended" if dead else f"no answer within {_SECONDS_TO_START:g} s"
                raise SubmitError(f"waiting for {what} failed: {reason}; see the logs in {self.folder / 'log'}")
            time.sleep(0.2)


def _start_time(pid: int) -> str | None:
    """Return the start time of a process in kernel ticks; None if it has ended. Process ids are reused."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A killed child process stays in the process table as a zombie until it is reaped.
    return None if fields[0] == "Z" else fields[19]


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("up", "down", "kill-taskmanager", "start-taskmanager"))
    parser.add_argument("number", type=int, nargs="?", default=1, help="Number of the TaskManager (default: 1)")
    parser.add_argument(
        "--directory",
        type=Path,
        default=cache_directory() / "cluster",
        help="Logs and configuration; new, empty, or of an earlier cluster (default: %(default)s)",
    )
    parser.add_argument("--taskmanagers", type=int, default=2, help="Number of TaskManagers (default: %(default)s)")
    parser.add_argument(
        "--rest_port", type=int, default=8081, help="REST port of the JobManager (default: %(default)s)"
    )
    parser.add_argument(
        "--pool_port", type=int, default=DEFAULT_PORT, help="Port of the worker pool (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    cluster = LocalCluster(args.directory.expanduser())
    try:
        if args.action == "up":
            cluster.up(args.taskmanagers, args.rest_port, args.pool_port)
            jars = cluster.state["jars"]
            print(f"Flink is running: dashboard http://{cluster.master}, logs {cluster.folder / 'log'}. To use it:\n")
            print(f"  beambert submit flink --flink_master {cluster.master} --job_server_jar {jars} \\")
            print(f"    --environment_config {cluster.worker_pool} build --input ... --output ...")
        elif args.action == "down":
            cluster.down()
        elif args.action == "kill-taskmanager":
            cluster.kill_task_manager(args.number)
        else:
            cluster.start_task_manager(args.number)
    except SubmitError as error:
        print_error(f"flink_cluster: error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
