"""Test buckets without credentials or network, or with servers that refuse, deny or do not answer.

The error is one line within seconds. The servers are sockets of this machine.
"""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from beambert import cli
from beambert.pipelines.errors import AccessError, SubmitError
from beambert.pipelines.io import access
from beambert.pipelines.io.access import require_access
from beambert.pipelines.runner import beam_flags
from tests.conftest import ROOT
from tests.deploy.dataflow.gcp_stand_in import _write_key

OUTPUT = ("--output", "gs://bucket/out")
INPUT = ("--input", "gs://bucket/texts/a.txt")
LOGIN = "gcloud auth application-default login"


class Cloud:
    """Responses of Cloud Storage, of a token service and of a metadata server, and the requests to them.

    Attributes:
        status: status of every response of Cloud Storage.
        message: message of an error response.
        token: status and body of the response of the token service.
        requests: (path, value of the header Authorization) of every request.
    """

    def __init__(self) -> None:
        self.status, self.message = 200, ""
        self.token: tuple[int, dict] = (200, {"access_token": "it", "expires_in": 3600, "token_type": "Bearer"})
        self.requests: list[tuple[str, str]] = []
        self.url = ""

    @property
    def storage_requests(self) -> list[tuple[str, str]]:
        return [each for each in self.requests if each[0].startswith("/storage/")]


@pytest.fixture
def cloud(monkeypatch) -> Iterator[Cloud]:
    """A server of these responses, which is Cloud Storage in the environment."""
    here = Cloud()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            here.requests.append((self.path, self.headers.get("Authorization", "")))
            code, content = 200, {}
            if self.path.startswith("/storage/") and not (
                "/o?" in self.path and here.message.startswith("No such object")
            ):
                error = {"error": {"code": here.status, "message": here.message}}
                code, content = here.status, {} if here.status == 200 else error
            elif self.path == "/token" or "/service-accounts/default/token" in self.path:
                code, content = here.token
            elif "/service-accounts/default" in self.path:
                content = {"email": "me@example.com", "scopes": ["a"], "aliases": []}
            body = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    server.daemon_threads = True
    here.url = f"http://localhost:{server.server_port}"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", here.url)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield here
    server.shutdown()


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("localhost", 0), backlog=50) as server:
        yield f"http://localhost:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address where no server listens."""
    with socket.create_server(("localhost", 0)) as server:
        return f"http://localhost:{server.getsockname()[1]}"


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path) -> None:
    """A machine outside Google Cloud without credentials, before Beam has searched for any."""
    from apache_beam.internal.gcp import auth
    from google.auth.compute_engine import _metadata

    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(_metadata, "_NO_GCE_CHECK", True)
    monkeypatch.setattr(auth._Credentials, "_credentials_init", False)
    monkeypatch.setattr(auth._Credentials, "_credentials", None)


@pytest.fixture
def key(monkeypatch, tmp_path, cloud) -> str:
    """A key file with the token service of `cloud`."""
    path = tmp_path / "key.json"
    _write_key(path, f"{cloud.url}/token")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    return str(path)


def refused(*places: tuple[str, str], **options) -> str:
    """Return the error line of a check."""
    with pytest.raises(AccessError) as error:
        require_access(places, **options)
    line = str(error.value)
    assert len(line) <= 370, line
    assert line.isprintable()
    return line


# Successful access


def test_local_paths_cost_nothing(monkeypatch):
    monkeypatch.setattr(access, "_check_google", None)
    require_access([("--input", "a.txt"), ("--output", "/b/c")])


@pytest.mark.parametrize(
    ("places", "asks"),
    [
        ([OUTPUT], [r"/storage/v1/b/bucket/o\?.*maxResults=1.*prefix=out"]),
        ([("--input", "gs://bucket/texts/*.txt")], [r"/storage/v1/b/bucket/o\?.*prefix=texts%2F"]),
        ([INPUT], [r"/storage/v1/b/bucket/o/texts%2Fa.txt\?"]),
        ([INPUT, OUTPUT], [r"/storage/v1/b/bucket/o\?.*prefix=out"]),
        ([INPUT, ("--output", "gs://other/x")], ["/storage/v1/b/bucket/o/", r"/storage/v1/b/other/o\?"]),
    ],
)
def test_a_bucket_is_requested_with_the_users_credentials(cloud, key, places, asks):
    require_access(places)
    # The client library may also request the metadata of the bucket.
    asked = [path for path, _ in cloud.storage_requests if re.search(r"/o[/?]", path)]
    assert len(asked) == len(asks)
    assert all(re.match(pattern, path) for path, pattern in zip(asked, asks, strict=True)), asked
    assert {authorization for _, authorization in cloud.storage_requests} == {"Bearer it"}


def test_a_public_bucket_needs_no_credentials_and_beam_looks_for_none(monkeypatch, cloud):
    from apache_beam.internal.gcp import auth

    require_access([INPUT])
    assert {authorization for _, authorization in cloud.storage_requests} == {""}
    monkeypatch.setattr(auth._Credentials, "_get_service_credentials", None)
    assert auth.get_service_credentials(None) is None


def test_an_object_that_is_not_there_is_left_to_the_command(cloud, key):
    cloud.status, cloud.message = 404, "No such object: bucket/texts/a.txt"
    require_access([INPUT])


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_left_to_beam_which_asks_again(cloud, key, status):
    cloud.status = status
    require_access([OUTPUT])


# Errors


def test_no_credentials_and_a_bucket_that_is_not_public(cloud):
    for cloud.status in (401, 403):
        line = refused(INPUT)
        assert line.startswith("--input gs://bucket/texts/a.txt: Google credentials are missing, and the bucket cannot")
        assert LOGIN in line
        assert "GOOGLE_APPLICATION_CREDENTIALS" in line


def test_credentials_are_needed_to_submit():
    line = refused(INPUT, credentials=True)
    assert line.startswith("--input gs://bucket/texts/a.txt: Google credentials are missing; ")
    assert LOGIN in line


def test_an_impersonated_account_is_left_to_beam(cloud):
    cloud.status = 403
    require_access([INPUT], ["--impersonate_service_account=a@b"])
    assert not cloud.requests


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "The specified bucket does not exist."),
        (403, "me@p.iam does not have storage.objects.list access to the Google Cloud Storage bucket. " * 9),
        (400, "Invalid bucket name: 'bucket'"),
    ],
)
def test_a_rejected_request_shows_the_message_of_the_service(cloud, key, status, message):
    cloud.status, cloud.message = status, message
    for place in (INPUT, OUTPUT):
        line = refused(place)
        assert line.startswith(f"{' '.join(place)}: the bucket cannot be used ({message[:70]}")
        assert "docs/reference/cloud-permissions.md" in line


def test_credentials_that_are_refused(cloud, key):
    cloud.token = (400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."})
    line = refused(INPUT)
    assert "cannot be used (invalid_grant: Token has been expired or revoked.)" in line
    assert LOGIN in line
    assert not cloud.storage_requests


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "was not found"),
        ("no JSON", "is not a valid json file"),
        ('{"type": "service_account"}', "failed to load service account credentials"),
        ("[" * 100_000, "maximum recursion"),
    ],
)
def test_missing_or_invalid_key_file_is_an_error(monkeypatch, tmp_path, content, says):
    # A relative path, since the line is shortened where a path is long.
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "key.json").write_text(content, encoding="latin-1")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "key.json")
    line = refused(INPUT)
    assert "invalid Google credentials (" in line
    assert says in line.lower()
    assert LOGIN in line


@pytest.mark.parametrize("with_credentials", [True, False])
@pytest.mark.parametrize("kind", ["closed", "silent", "unknown"])
def test_a_server_that_cannot_be_reached(monkeypatch, request, cloud, kind, with_credentials):
    if with_credentials:
        request.getfixturevalue("key")
    address = "http://no-such-host.invalid" if kind == "unknown" else request.getfixturevalue(kind)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
    monkeypatch.setattr(access, "_SECONDS", 0.5)
    began = time.monotonic()
    line = refused(INPUT)
    assert time.monotonic() - began < 6
    assert ("the network" in line) is with_credentials
    assert ("Google credentials are missing" in line) is not with_credentials
    reasons = {"closed": "refused", "silent": "no answer|timed out", "unknown": "known|resolution|address"}
    assert re.search(reasons[kind], line), line


@pytest.mark.parametrize("kind", ["closed", "silent"])
def test_a_token_service_that_cannot_be_reached(monkeypatch, request, tmp_path, kind):
    _write_key(tmp_path / "key.json", f"{request.getfixturevalue(kind)}/token")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    monkeypatch.setattr(access, "_SECONDS", 0.5)
    began = time.monotonic()
    line = refused(OUTPUT)
    assert time.monotonic() - began < 6
    assert re.search(r"the bucket cannot be used \((Connection refused|no answer within .*|timed out)\)", line), line


def test_a_search_for_credentials_that_does_not_end_is_given_up(monkeypatch, cloud):
    """Simulate a network that drops the requests to Google's metadata server."""
    monkeypatch.setattr(access, "_SECONDS", 0.5)
    monkeypatch.setattr("google.auth.default", lambda: time.sleep(60))
    require_access([INPUT])
    cloud.status = 401
    assert "Google credentials are missing" in refused(INPUT)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("gs://", "is not a Cloud Storage path; give gs://BUCKET/NAME"),
        ("gs://B", "is not a Cloud Storage path"),
        ("gs://" + "b" * 5000, "is not a Cloud Storage path"),
        ("s3://b/x", "requires package boto3; run pip install 'apache-beam[aws]'"),
        ("ftp://" + "x" * 5000, "unknown URL scheme; give a local path, or "),
        ("file:///tmp/a.txt", "unknown URL scheme"),
        ("://", "unknown URL scheme"),
    ],
)
def test_other_kinds_of_paths(monkeypatch, path, says):
    monkeypatch.setattr(access, "is_installed", lambda name: name != "boto3")
    line = refused(("--output", path))
    assert line.startswith(f"--output {path[:30]}")
    assert says in line


def test_a_file_system_that_fails_or_hangs_is_a_line(monkeypatch):
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems

    monkeypatch.setitem(access._PACKAGES, "s3", ("json", "aws"))
    monkeypatch.setattr(access, "_SECONDS", 0.5)

    def fails(paths, limits):
        raise BeamIOError("Match operation failed", {paths[0]: OSError("Unable to locate credentials")})

    monkeypatch.setattr(FileSystems, "match", fails)
    assert "s3://b/x cannot be reached (" in refused(("--input", "s3://b/x"))
    monkeypatch.setattr(FileSystems, "match", lambda paths, limits: time.sleep(60))
    assert "no answer within" in refused(("--input", "s3://b/x"))


# The commands themselves

COMMANDS = {
    "build": ["build", "--input", "gs://bucket/*.txt", "--output", "{}/out"],
    "corpus": ["corpus", "--input", "{}/a.txt", "--output", "gs://bucket/out"],
    "vocab": ["vocab", "--input", "gs://bucket/a.txt", "--output", "{}/v.txt"],
    "pretraining-data": [
        "pretraining-data",
        "--input",
        "{}/data",
        "--output",
        "{}/out",
        "--vocab_file",
        "gs://bucket/v",
    ],
    "inspect": ["inspect", "gs://bucket/data"],
    "plan": ["plan", "--input", "gs://bucket/*.txt"],
    "submit flink": [
        *("submit", "flink", "--flink_master", "localhost:1", "build"),
        *("--input", "gs://bucket/*.txt", "--output", "gs://bucket/out"),
    ],
    "submit dataflow": [
        *("submit", "dataflow", "--project", "my-project", "--region", "us-central1"),
        *("--temp_location", "gs://bucket/tmp", "build"),
        *("--input", "gs://bucket/*.txt", "--output", "gs://bucket/out"),
    ],
}
COMMANDS["submit dataflow --dry_run"] = ["submit", "dataflow", "--dry_run", *COMMANDS["submit dataflow"][2:]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_fails_with_one_line(name, tmp_path, silent, monkeypatch, capsys):
    (tmp_path / "a.txt").write_text("Some text.\n", encoding="utf-8")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", silent)
    monkeypatch.setattr(access, "_SECONDS", 0.2)
    assert cli.main([word.format(tmp_path) for word in COMMANDS[name]]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "gs://bucket/" in printed.err
    assert "Google credentials are missing" in printed.err
    assert LOGIN in printed.err
    assert len(printed.err) <= 401
    assert not (tmp_path / "out").exists()


def test_credentials_of_a_google_cloud_machine_are_used(cloud):
    """Test with a metadata server that answers as Google's does; the process reads its address when it starts."""
    host = cloud.url.removeprefix("http://")
    addresses = {"STORAGE_EMULATOR_HOST": cloud.url, "GCE_METADATA_IP": host, "GCE_METADATA_HOST": host}
    cloud.status, cloud.message = 403, "denied"
    argv = [sys.executable, "-m", "beambert", "inspect", "gs://bucket/a"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **addresses}
    result = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "the bucket cannot be used (denied)" in result.stderr
    assert cloud.storage_requests
    assert {authorization for _, authorization in cloud.storage_requests} == {"Bearer it"}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ["--runner=PortableRunner", "--job_endpoint={closed}"],
            "--job_endpoint {closed} does not answer as a Beam job server within 0.2 s",
        ),
        (
            ["--runner=PortableRunner", "--job_endpoint={silent}"],
            "--job_endpoint {silent} does not answer as a Beam job server within 0.2 s",
        ),
        (
            ["--runner=PortableRunner", "--job_endpoint={closed}", "--job_server_timeout=1"],
            "--job_endpoint {closed} does not answer as a Beam job server within 1 s",
        ),
        (["--runner=FlinkRunner", "--flink_master={closed}"], "--flink_master http://{closed} cannot be reached"),
        (["--runner=SparkRunner", "--spark_master_url=spark://{closed}"], "--spark_master_url spark://{closed} cannot"),
    ],
)
def test_an_engine_that_cannot_be_reached_is_one_line(closed, silent, monkeypatch, flags, says):
    monkeypatch.setattr(beam_flags, "_SECONDS_TO_ANSWER", 0.2)
    places = {"closed": closed.removeprefix("http://"), "silent": silent.removeprefix("http://")}
    flags = [flag.format(**places) for flag in flags]
    with pytest.raises((AccessError, SubmitError)) as error:
        beam_flags.require_engine(beam_flags.pipeline_options(flags), flags)
    assert says.format(**places) in str(error.value)
    assert len(str(error.value)) <= 370
    assert str(error.value).isprintable()


def test_a_command_names_the_engine_that_fails(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("Some text. More text.\n", encoding="utf-8")
    argv = ["corpus", "--input", f"{tmp_path}/a.txt", "--output", f"{tmp_path}/out", "--vocab_size", "30"]
    assert cli.main([*argv, "--runner", "PrismRunner", "--prism_location", "/nowhere"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--runner PrismRunner cannot run the pipeline (" in error
