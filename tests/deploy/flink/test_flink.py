"""Test `beambert submit flink` before and after the job itself, against a stand-in for Flink's REST API."""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from beambert import cli
from beambert.deploy.flink import command as flink
from beambert.deploy.flink.job_monitor import monitored_jobs, print_states
from beambert.deploy.flink.job_server import command_line, fetch_jar, job_server, maven_path, published_job_server
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.runner.flink_rest import FlinkCluster, error_line
from tests.deploy.flink.local_cluster import JOB_SERVER_JARS


class StandIn:
    """A server that answers like a Flink cluster, and keeps the requests to cancel a job."""

    def __init__(self) -> None:
        self.answers = {
            "/overview": {"taskmanagers": 2, "slots-total": 2, "flink-version": "1.19.3"},
            "/jobmanager/config": [{"key": "restart-strategy.type", "value": "fixed-delay"}],
            "/jobs/overview": {"jobs": []},
        }
        self.cancelled: list[str] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self, found: object) -> None:
                body = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(404 if found is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self.answer(stand_in.answers.get(self.path))

            def do_PATCH(self) -> None:
                stand_in.cancelled.append(self.path)
                for job in stand_in.answers["/jobs/overview"]["jobs"]:
                    job["state"] = "CANCELED"
                self.answer({})

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("localhost", 0), Handler)
        self.address = f"localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def job(self, name: str, state: str) -> None:
        job = {"jid": "0123", "name": name, "state": state, "start-time": 1}
        self.answers["/jobs/overview"]["jobs"].append(job)


@pytest.fixture
def cluster() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.server.shutdown()
    stand_in.server.server_close()


@pytest.fixture
def submit(cluster, tmp_path, capsys):
    """A function that submits a build with more flags and returns the one-line error with which it fails."""

    def run(*flags: str, master: str = cluster.address, build: tuple[str, ...] = ()) -> str:
        argv = ["submit", "flink", "--flink_master", master, *flags]
        argv += ["build", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--vocab_size", "200"]
        assert cli.main([*argv, *build]) == 1
        err = capsys.readouterr().err
        assert err.count("\n") == 1, err
        assert err.startswith("beambert submit flink: error: ")
        return err

    return run


# Any port with a listener passes for a pool of workers.
def pool(cluster: StandIn) -> str:
    return f"--environment_config={cluster.address}"


def test_nothing_listens_at_the_master(submit):
    assert "localhost:1 cannot be reached" in submit(master="localhost:1")


def test_the_master_is_no_flink(cluster, submit):
    cluster.answers["/overview"] = b"<html>"
    assert "is not the REST API of Flink" in submit()
    cluster.answers["/overview"] = None
    assert "returns status 404 for /overview" in submit()


def test_a_cluster_without_task_managers(cluster, submit):
    cluster.answers["/overview"]["slots-total"] = 0
    assert "has no TaskManager" in submit()


def test_another_version_than_the_cluster_has(submit):
    assert "--flink_version 2.2 does not match Flink 1.19" in submit("--flink_version=2.2")


def test_no_worker_pool(submit):
    assert "no Python worker pool listens at this address" in submit("--environment_config=localhost:1")


def test_a_local_path_and_a_cluster_elsewhere(cluster, submit, tmp_path):
    # The same machine under a name that is not recognized as local.
    master = cluster.address.replace("localhost", "localhost.localdomain")
    cluster_there = FlinkCluster(master)
    assert cluster_there.host == "localhost.localdomain"
    config = _config("--flink_master", master)
    cluster_there.overview = FlinkCluster(cluster.address).overview
    with pytest.raises(SubmitError, match="is a local path, and the cluster is on localhost"):
        flink._check(config, cli.read_command("build", ["--input", "a", "--output", "gs://b"]), cluster_there, "n")
    flags = ["--input", "gs://a", "--output", "gs://b", "--vocab_file", "here.txt"]
    with pytest.raises(SubmitError, match=r"--vocab_file here\.txt is a local path"):
        flink._check(config, cli.read_command("build", flags), cluster_there, "n")


def _config(*flags: str):
    return cli.read_command("submit flink", list(flags)).configure()


def test_a_job_server_that_is_not_there(cluster, submit):
    assert "--job_server_jar nowhere.jar does not exist" in submit(
        pool(cluster), "--java=sh", "--job_server_jar=nowhere.jar"
    )
    assert "no job server listens at this address" in submit(pool(cluster), "--job_endpoint=localhost:1")


def test_a_job_server_that_ends_at_once(cluster, submit, tmp_path):
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"not a jar")
    java = tmp_path / "java"
    java.write_text(
        "#!/bin/sh\necho started\necho 'Exception in thread main: UnsupportedClassVersionError'\necho end\n"
    )
    java.chmod(0o755)
    error = submit(pool(cluster), f"--java={java}", f"--job_server_jar={jar}")
    assert "job server did not start (exit code 0): Exception in thread main" in error


def test_a_job_that_still_writes_the_same_output(cluster, submit, tmp_path):
    cluster.job(flink.job_name(str(tmp_path / "out")), "RUNNING")
    assert "out is in use by job 0123" in submit(pool(cluster))
    cluster.answers["/jobs/overview"]["jobs"].clear()
    cluster.job(flink.job_name(str(tmp_path / "other")), "RUNNING")
    assert "--java no-such-java is not in PATH" in submit(pool(cluster), "--java=no-such-java")


def test_beam_flags_that_submit_sets_are_refused_after_the_command(submit):
    assert "--runner is a flag of submit flink: put it before build" in submit(build=("--runner=FlinkRunner",))


def test_a_cluster_without_restarts_is_a_warning(cluster, capsys, tmp_path):
    cluster.answers["/jobmanager/config"] = []
    config = _config("--flink_master", cluster.address, pool(cluster))
    command = cli.read_command("build", ["--input", "a", "--output", str(tmp_path)])
    assert flink._check(config, command, FlinkCluster(cluster.address), "n") == (2, False, "1.19")
    assert "the loss of a TaskManager fails the job" in capsys.readouterr().err


def test_the_name_of_a_job_is_that_of_its_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert flink.job_name("out") == flink.job_name(str(tmp_path / "out"))
    assert flink.job_name("out") != flink.job_name("gs://bucket/out")
    # Flink and Beam accept such names.
    assert flink.job_name("gs://bucket/out").replace("-", "").isalnum()


def test_the_flags_that_beam_is_given():
    config = _config("--flink_master=a:8081", "--environment_config=b:1")
    flags = flink.beam_flags(config, "localhost:7", flink.ClusterProperties(3, False, "2.0"), "beambert-1")
    assert {"--runner=PortableRunner", "--job_endpoint=localhost:7", "--parallelism=3"} <= set(flags)
    assert {"--environment_type=EXTERNAL", "--environment_config=b:1", "--job_name=beambert-1"} <= set(flags)
    assert not any("cache" in flag for flag in flags)
    config = _config("--flink_master=a:8081", "--environment_type=LOOPBACK")
    flags = flink.beam_flags(config, "localhost:7", flink.ClusterProperties(3, True, "2.0"), "beambert-1")
    assert not any("config" in flag for flag in flags)
    assert any("--environment_cache_millis=" in flag for flag in flags)


@pytest.mark.parametrize(
    ("flags", "config"),
    [
        ((), ["--environment_config=localhost:50000"]),
        (("--environment_type=DOCKER",), []),
        (("--environment_type=DOCKER", "--environment_config=image:1"), ["--environment_config=image:1"]),
        (("--environment_type=PROCESS", '--environment_config={"command": "x"}'),) * 2,
        (("--environment_type=LOOPBACK",), []),
    ],
)
def test_only_a_worker_pool_has_a_default_configuration(flags, config):
    properties = flink.ClusterProperties(3, False, "2.0")
    passed = flink.beam_flags(_config("--flink_master=a:8081", *flags), "localhost:7", properties, "beambert-1")
    assert [flag for flag in passed if flag.startswith("--environment_config")] == list(config)[-1:]


def test_the_process_environment_requires_a_configuration(submit):
    assert "--environment_type PROCESS requires --environment_config" in submit("--environment_type=PROCESS")


@pytest.mark.parametrize("raised", [KeyboardInterrupt, RuntimeError])
def test_a_command_that_is_stopped_cancels_its_jobs_alone(cluster, raised):
    cluster.job("ours", "FINISHED")
    cluster.job("another", "RUNNING")

    def command() -> None:
        with monitored_jobs(FlinkCluster(cluster.address), "ours", keeps_workers=False):
            cluster.job("ours", "RUNNING")
            cluster.answers["/jobs/overview"]["jobs"][-1]["jid"] = "4567"
            raise raised

    with pytest.raises(raised):
        command()
    assert cluster.cancelled == ["/jobs/4567?mode=cancel"]


def test_changes_of_state_are_told_once_with_their_reason(cluster, capsys):
    cluster.answers["/jobs/0123/exceptions"] = {
        "exceptionHistory": {"entries": [{"stacktrace": "TaskManager lost\n\tat x"}]}
    }
    over = threading.Event()
    looks = iter(["RUNNING", "RUNNING", "RESTARTING", "RUNNING", "FINISHED"])
    cluster.job("ours", "CREATED")

    def wait(_: float) -> bool:
        state = next(looks, None)
        cluster.answers["/jobs/overview"]["jobs"][0]["state"] = state
        return state is None

    over.wait = wait
    print_states(FlinkCluster(cluster.address), "ours", set(), over)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1].strip(",") for line in lines] == ["RUNNING", "RESTARTING", "RUNNING", "FINISHED"]
    assert "(TaskManager lost)" in lines[1]
    assert f"http://{cluster.address}/#/job/running/0123" in lines[0]


def test_why_a_job_failed():
    text = "Pipeline beambert-1_2 failed in state FAILED: java.io.IOException: Insufficient number of network buffers"
    assert (
        str(flink.failure(text)) == "the Flink job failed: java.io.IOException: Insufficient number of network buffers"
    )
    text = "Pipeline x failed in state FAILED: Job execution failed.\n\tat a\nCaused by: b\n\tat c\nCaused by: d: e\n"
    assert str(flink.failure(text)) == "the Flink job failed: d: e"
    assert (
        flink.failure("Pipeline x failed in state FAILED: Error:\nTraceback (most recent call last):\n  File") is None
    )
    assert flink.failure("something else") is None
    text = "Pipeline x failed in state FAILED: java.util.concurrent.CompletionException: [File upload failed.]"
    assert "(File upload failed); free space in its directory web.tmpdir" in str(flink.failure(text))


def test_the_line_that_names_an_error():
    assert error_line("java.io.IOException: Insufficient buffers\n\tat a.b\nCaused by: c") == (
        "java.io.IOException: Insufficient buffers"
    )
    text = """java.lang.RuntimeException: Error received from SDK harness: Traceback (most recent call last):
  File "a.py", line 3, in process
    read()
ValueError: x.txt is not UTF-8

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 4, in run
beambert.pipelines.errors.SourceError: x.txt is not UTF-8; convert it [while running 'Read']

\tat org.apache.beam.runners.Harness.run(Harness.java:1)
Caused by: java.lang.Error: y"""
    assert (
        error_line(text)
        == "beambert.pipelines.errors.SourceError: x.txt is not UTF-8; convert it [while running 'Read']"
    )


def test_the_command_line_of_a_job_server(tmp_path):
    folder = command_line("java", tmp_path, "http://a:8081", (1, 2), Path("staged"))
    assert folder[folder.index("-cp") + 1] == f"{tmp_path}/*"
    assert folder[folder.index("--flink-master") + 1] == "http://a:8081"
    jar = command_line("java", tmp_path / "one.jar", "http://a:8081", (1, 2), Path("staged"))
    assert jar[jar.index("-jar") + 1] == f"{tmp_path}/one.jar"


def test_a_job_server_is_ended_with_the_body(tmp_path):
    java = tmp_path / "java"
    # A program that listens on the given port, as a job server does.
    java.write_text(
        "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ $1 = --job-port ] && port=$2; shift; done\n"
        f"echo $$ > {tmp_path}/pid\nexec python3 -m http.server --bind localhost $port\n"
    )
    java.chmod(0o755)
    with job_server(str(java), tmp_path / "x.jar", "http://a", tmp_path):
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


JAR = "org.example:a-b:1.0"


@pytest.fixture
def maven(cluster, monkeypatch):
    monkeypatch.setenv("MAVEN_REPOSITORY_URL", f"http://{cluster.address}/")
    cluster.answers[f"/{maven_path(JAR)}"] = b"jar"
    return cluster


def test_a_jar_with_the_right_digest(maven, tmp_path):
    fetch_jar(maven_path(JAR), tmp_path, hashlib.sha256(b"jar").hexdigest())
    assert (tmp_path / "a-b-1.0.jar").read_bytes() == b"jar"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "message"), [(JAR, "the download was not used"), ("org.example:no:1", "cannot be downloaded")]
)
def test_a_jar_with_another_digest_or_none_at_all_leaves_nothing(maven, tmp_path, name, message):
    with pytest.raises(SubmitError, match=message):
        fetch_jar(maven_path(name), tmp_path, "0" * 64)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("user", ["user:secret@", "secret@", "user:se@cret@", ":secret@"])
@pytest.mark.parametrize("port", ["", ":9"])
def test_no_message_has_the_password_of_a_url(monkeypatch, tmp_path, user, port):
    url = f"http://{user}localhost{port}/maven"
    monkeypatch.setenv("MAVEN_REPOSITORY_URL", url)
    calls = {
        "MAVEN_REPOSITORY_URL": [
            lambda: fetch_jar(maven_path(JAR), tmp_path, "0" * 64),
            lambda: published_job_server("2.2", "2.77.0", tmp_path),
        ],
        "--flink_master": [lambda: FlinkCluster(url).overview(), lambda: FlinkCluster(url[7:]).overview()],
    }
    for name, functions in calls.items():
        for function in functions:
            with pytest.raises(SubmitError, match=f"{name} has a user name or password") as error:
                function()
            assert "secret" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_the_published_job_server(maven, tmp_path):
    path = "/" + maven_path("org.apache.beam:beam-runners-flink-2.2-job-server:2.77.0")
    with pytest.raises(SubmitError, match="give a local copy with --job_server_jar"):
        published_job_server("2.2", "2.77.0", tmp_path)
    maven.answers |= {path: b"server", f"{path}.sha1": hashlib.sha1(b"server").hexdigest().encode()}
    jar = published_job_server("2.2", "2.77.0", tmp_path)
    assert jar.read_bytes() == b"server"
    # A file that is there is not downloaded again.
    maven.answers.clear()
    assert published_job_server("2.2", "2.77.0", tmp_path) == jar


def test_the_pinned_jars_are_of_one_version_of_beam():
    pinned = dict(line.split() for line in JOB_SERVER_JARS.split("\n") if line)
    assert all(len(name.split(":")) == 3 and len(digest) == 64 for name, digest in pinned.items())
    beams = {name.split(":")[2] for name in pinned if ":beam-runners-" in name or ":beam-sdks-" in name}
    assert len(beams) == 1
