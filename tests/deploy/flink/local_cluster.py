"""Run a Flink cluster on this machine, for trials and tests: `python -m tests.deploy.flink.local_cluster up`.

Flink comes from the Python package `apache-flink-libraries`, Beam's jars from Maven Central or `MAVEN_REPOSITORY_URL`.
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
import tarfile
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypedDict

from beambert.common.local_files import write_atomic
from beambert.common.process import python_command, python_environment
from beambert.common.terminal import print_error
from beambert.common.typed_json import JsonError, read
from beambert.deploy.flink.job_server import cache_directory, fetch_jar, find_java, free_port, maven_path
from beambert.deploy.flink.worker_pool import DEFAULT_PORT
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.runner.flink_rest import FlinkCluster, listens

# The newest Flink for which Beam publishes the job server in single jars.
FLINK_VERSION = "1.19.3"
_FLINK_SHA256 = "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60"
# The jars of the package that a cluster for Beam needs.
_FLINK_JARS = (
    f"flink-dist-{FLINK_VERSION}.jar",
    *(f"log4j-{name}-2.17.1.jar" for name in ("1.2-api", "api", "core", "slf4j-impl")),
)
_CONNECTIONS = 8
# Beam's job server for Flink 1.19 as its jars: Maven coordinates, each with its SHA-256. Beam also publishes one jar
# (`beam-runners-flink-1.19-job-server`), which some mirrors of Maven Central lack. With `flink-dist`, which comes with
# Flink, these are the same program. Google's jars are included because the program names their classes when it starts.
JOB_SERVER_JARS = """
args4j:args4j:2.33 91ddeaba0b24adce72291c618c00bbdce1c884755f6c4dba9c5c46e871c69ed6
com.fasterxml.jackson.core:jackson-annotations:2.15.4 f204ebbd552614a22b8531ffe350d47f8fd42c45bb60517c07974dc27a5a1dd3
com.fasterxml.jackson.core:jackson-core:2.15.4 8dc9210dd285db366f45f518dd1e6a9ccfeb0f1a8e184a899fe96d29edf1fd94
com.fasterxml.jackson.core:jackson-databind:2.15.4 0f99ff7719eef3ee85608b3dee6ecf3c698003fe9d6e34eabbfabccdc9b5ac2c
com.google.api-client:google-api-client:2.0.0 faf02f4070c4f591e7d1a591161da3bee2d08e2bb9c4578645559e8f55cf6b7b
com.google.apis:google-api-services-storage:v1-rev20240924-2.0.0 0b8a1b47042855cf1fc82cdd501f213acff0f95049c6f2d701733c7d9c170701
com.google.auth:google-auth-library-credentials:1.28.0 c4d9c243419b6a4ba4846d3ff9fa283dff14ea877e25c44ab058df6884fc248e
com.google.cloud.bigdataoss:gcsio:2.2.26 8be122b87c73cee215e339480c33e5ebf71f4c45ec82ff1259b5c3fcb810a2e0
com.google.cloud.bigdataoss:util:2.2.26 eb133bd5a945c021c0c05b25c1ed9c7b1c5e55434e4c5ad62aada6d747e876ee
com.google.code.gson:gson:2.11.0 57928d6e5a6edeb2abd3770a8f95ba44dce45f3b23b7a9dc2b309c581552a78b
com.google.flogger:flogger-system-backend:0.7.1 fd66f2615a9d8fe1b2274f1b5005a5555a0cd63cdfdab2ca9500e6eb81dc5f63
com.google.flogger:flogger:0.7.1 81b355ac0aeab008bafb30dbda8502826674fbf786a29dbbe68fab2cee5bff20
com.google.guava:failureaccess:1.0.2 8a8f81cf9b359e3f6dfa691a1e776985c061ef2f223c9b2c80753e1b458e8064
com.google.guava:guava:33.3.1-android 2c3e41d1b380f2044d257947a3aa82dabf3ae4b978622745254aa18b6cf89ab0
com.google.http-client:google-http-client:1.45.0 8340bbaf4410bd25921842e424cac3db9c916fdf47adfe73b8cba8dba7a06103
com.lmax:disruptor:3.4.2 f412ecbb235c2460b45e63584109723dea8d94b819c78c9bfc38f50cba8546c0
com.twitter:chill-java:0.7.6 f7c41a2257be11e6c9bca97095c8f4b0299626941a3508469f90622eb8f8368e
commons-cli:commons-cli:1.5.0 bc8bb01fc0fad250385706e20f927ddcff6173f6339b387dc879237752567ac6
commons-codec:commons-codec:1.17.0 f700de80ac270d0344fdea7468201d8b9c805e5c648331c3619f2ee067ccfc59
commons-io:commons-io:2.11.0 961b2f6d87dbacc5d54abf45ab7a6e2495f89b75598962d8c723cea9bc210908
io.github.classgraph:classgraph:4.8.162 ea30b2d5e29e89d52706bcecf7a6ae3b44682d4a1566a5f22b9453f9be2a970c
joda-time:joda-time:2.10.14 d65b4f127d36cf52b9b7b439552db22f3de92b892014512870cb3c98a3cf505e
net.bytebuddy:byte-buddy:1.14.12 970636134d61c183b19f8f58fa631e30d2f2abca344b37848a393cac7863dd70
org.apache.beam:beam-model-fn-execution:2.62.0 eaed6622eef605b9bfcf726ea9b2182d3c7b063b690b1a560d15f194a206fd00
org.apache.beam:beam-model-job-management:2.62.0 a1ca8460a2c1420ed86d97fc0066953ff9eac312bacef095d4729800a8f80933
org.apache.beam:beam-model-pipeline:2.62.0 c73d51aa4f2a4df614bc5e133c1778305abe59b38230f57ada10d44aad388cba
org.apache.beam:beam-runners-core-java:2.62.0 41be4d5c30c60b876f3f5d97123ddccb6a57c8822dc93b56cbda4fb54b6dd9c3
org.apache.beam:beam-runners-flink-1.19:2.62.0 1068e860e50ca258e300ac88116b6013f753383eae0e48fd5d787dbb9dcd6205
org.apache.beam:beam-runners-java-fn-execution:2.62.0 1cd66309c3fe3b0ea697f5a18df3a4f0612a7d5818dfdbc4938c863be5af6394
org.apache.beam:beam-runners-java-job-service:2.62.0 db3fe3b16d2df72e4b72358a93511074c31469005767945702bb4d791a548aab
org.apache.beam:beam-sdks-java-core:2.62.0 18dfa4039940bbada07595f630738976a77f92fc7e9309bd122fa3b1bc5b4622
org.apache.beam:beam-sdks-java-expansion-service:2.62.0 7eea07e96c822ee16a2d5e1cd6e9cecf8d92e8e5ba7b1c72ab2e78a6ab6bee1b
org.apache.beam:beam-sdks-java-extensions-google-cloud-platform-core:2.62.0 a395083305f8c6e49ea846671c4a8cccf6caa0a8ebd74356a0b68bdf4f80aff7
org.apache.beam:beam-sdks-java-harness:2.62.0 f0ddb6c1c1c4834d757ad5c47074c7742b1830e8445a5b7564711361c275dba5
org.apache.beam:beam-sdks-java-transform-service-launcher:2.62.0 778a941b5b25f2e3a2bdc8bd5cb4ed15ef5df78580913128d2c84e4b41c0388c
org.apache.beam:beam-vendor-grpc-1_60_1:0.3 d6baf615b08cf46f084163c899450780ad33a87e7bb8d1d03158e2d2ba9b12f4
org.apache.beam:beam-vendor-guava-32_1_2-jre:0.1 44669a8f43cdef8ac20e02484ead0d1cf8199d47e00c7f1828b579b7dfb0f9a2
org.apache.commons:commons-compress:1.26.2 9168a03141d8fc7eda21a2360d83cc0412bcbb1d6204d992bd48c2573cb3c6b8
org.apache.commons:commons-lang3:3.14.0 7b96bf3ee68949abb5bc465559ac270e0551596fa34523fddf890ec418dde13c
org.apache.commons:commons-text:1.10.0 770cd903fa7b604d1f7ef7ba17f84108667294b2b478be8ed1af3bffb4ae0018
org.lz4:lz4-java:1.8.0 d74a3334fb35195009b338a951f918203d6bbca3d1d359033dc33edd1cadc9ef
org.slf4j:slf4j-api:1.7.30 cdba07964d1bb40a0761485c6b1e8c2f8fd9eb1d19c53928ac0d7f9510105c57
org.snakeyaml:snakeyaml-engine:2.6 2652199af40c9aa2f1782400d2dfbbf4e5226208c4e05ddd4059c3d6d9cd1505
org.xerial.snappy:snappy-java:1.1.10.4 55b30c94e5c4cc2d4b6976916098d0678a8a6cc7427fa8c875621bd94e731ac8
org.yaml:snakeyaml:2.2 1467931448a0817696ae2805b7b8b20bfb082652bf9c4efaed528930dc49389b
"""  # noqa: E501
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
            process = subprocess.Popen(
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


def fetch_flink(cache: Path | None = None) -> Path:
    """Download the jars of Flink.

    Args:
        cache: download cache; None for `cache_directory()`.

    Returns:
        A directory of jars, the class path of Flink.

    Raises:
        SubmitError: the download fails, or a digest does not match.
    """
    folder = (cache or cache_directory()) / f"flink-{FLINK_VERSION}"
    if not folder.is_dir():
        with _atomic_folder(folder) as new_folder, tempfile.TemporaryDirectory() as temporary:
            for name, content in _flink_package(Path(temporary)):
                with (new_folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
            names = {path.name for path in new_folder.iterdir()}
            _require(names == set(_FLINK_JARS), "apache-flink-libraries does not contain all jars")
    return folder


def _flink_package(folder: Path) -> Iterator[tuple[str, IO[bytes]]]:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"apache-flink-libraries=={FLINK_VERSION} --hash=sha256:{_FLINK_SHA256}\n")
    pip = python_command("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps")
    result = subprocess.run(
        [
            *pip,
            "--no-binary=apache-flink-libraries",
            "--require-hashes",
            f"--requirement={requirements}",
            f"--dest={folder}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise SubmitError(f"pip cannot download Flink {FLINK_VERSION}: {_last_line(result.stderr)}")
    with tarfile.open(folder / f"apache-flink-libraries-{FLINK_VERSION}.tar.gz") as archive:
        for member in archive:
            name = member.name.rsplit("/", 1)[-1]
            content = archive.extractfile(member) if member.isfile() and name in _FLINK_JARS else None
            if content:
                yield name, content


def fetch_job_server(cache: Path | None = None) -> Path:
    """Download Beam's job server for Flink 1.19, with the jars of Flink.

    Args:
        cache: download cache; None for `cache_directory()`.

    Returns:
        A directory of jars, the class path of the job server.

    Raises:
        SubmitError: the download fails, or a digest does not match.
    """
    flink = fetch_flink(cache)
    folder = flink.with_name(f"job-server-{FLINK_VERSION}")
    if not folder.is_dir():
        with _atomic_folder(folder) as new_folder, ThreadPoolExecutor(_CONNECTIONS) as threads:
            jars = [line.split() for line in JOB_SERVER_JARS.split("\n") if line]
            list(threads.map(lambda jar: fetch_jar(maven_path(jar[0]), new_folder, jar[1]), jars))
            for jar in flink.iterdir():
                os.link(jar, new_folder / jar.name)
    return folder


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise SubmitError(f"{message}; the download was not used")


@contextmanager
def _atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a new directory, and rename it to its final name after the body."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    new_folder = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}")
    new_folder.mkdir()
    try:
        yield new_folder
        try:
            # Fails where another process was first; its directory has the same content.
            new_folder.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(new_folder, ignore_errors=True)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no error message"


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
