"""A stand-in for Google Cloud on this machine: Cloud Storage, and a Dataflow service that runs the staged files.

Storage is the package gcp-storage-emulator. Dataflow is an HTTP server that accepts the requests of Beam's client and
parses each strictly into Google's own message types. Like the service, it runs a job from only the staged pipeline and
the staged packages. `staged_job.py` does this in a separate process, which shares no state with this one.
"""

import base64
import datetime
import functools
import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from apache_beam.internal.gcp import auth
from gcp_storage_emulator.server import RequestHandler, create_server
from google.cloud import dataflow, storage
from google.protobuf import json_format

BUCKET = "stand-in"
PROJECT = "stand-in-project"
REGION = "us-central1"


class StandIn:
    """The running services.

    Attributes:
        endpoint: address of Dataflow.
        folder: directory of the key, and of the jobs' directories and logs.
        requests: (method, path, content) of every request to Dataflow.
        jobs: request, state, messages and metrics of each job, by ID.
        keep_waiting: whether new jobs stay pending.
        fail_with: error messages with which jobs fail instead of running.
    """

    def __init__(self, folder: Path, storage_port: int) -> None:
        self.folder = folder
        self.storage = f"http://localhost:{storage_port}"
        self.requests: list[tuple[str, str, dict]] = []
        self.jobs: dict[str, dict] = {}
        self.keep_waiting = False
        self.fail_with: list[str] = []
        self.endpoint = ""

    @property
    def flags(self) -> list[str]:
        """Return the flags with which `beambert submit dataflow` reaches the stand-in."""
        return [
            f"--project={PROJECT}",
            f"--region={REGION}",
            f"--temp_location=gs://{BUCKET}/temp",
            f"--dataflow_endpoint={self.endpoint}",
            "--no_auth",
        ]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables with which a process reaches the stand-in."""
        return {
            "STORAGE_EMULATOR_HOST": self.storage,
            "GOOGLE_APPLICATION_CREDENTIALS": str(self.folder / "key.json"),
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "NO_GCE_CHECK": "true",
        }

    def bucket(self, name: str = BUCKET) -> storage.Bucket:
        """Return a bucket, which may not exist."""
        client = storage.Client.create_anonymous_client()
        return client.bucket(name)

    def make_bucket(self, name: str) -> None:
        """Create another bucket."""
        storage.Client.create_anonymous_client().create_bucket(name, project=PROJECT)

    def upload(self, folder: Path, prefix: str) -> None:
        """Upload the files of a folder to the bucket."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.bucket().blob(f"{prefix}/{path.relative_to(folder)}").upload_from_filename(path)

    def contents(self, folder: str, bucket: str = BUCKET) -> dict[str, bytes]:
        """Return every object in a folder, or in a whole bucket, by its name relative to the folder."""
        prefix = f"{folder}/" if folder else ""
        blobs = self.bucket(bucket).list_blobs(prefix=prefix)
        return {blob.name.removeprefix(prefix): blob.download_as_bytes() for blob in blobs}

    def create(self, request: dict) -> tuple[int, dict]:
        """Create a job from a request; return the status, and the job or an error in Google's format."""
        job = json_format.ParseDict(request, dataflow.Job.pb(dataflow.Job()))
        for known in self.jobs.values():
            if known["request"]["name"] == job.name and not known["state"].endswith(("DONE", "FAILED", "CANCELLED")):
                message = f"There is already an active job named {job.name}."
                return 409, {"error": {"code": 409, "message": message, "status": "ALREADY_EXISTS"}}
        number = f"2026-01-01_00_00_0{len(self.jobs)}-{uuid.uuid4().int % 10**10}"
        self.jobs[number] = {"request": request, "state": "JOB_STATE_PENDING", "messages": [], "metrics": []}
        threading.Thread(target=self._run, args=(number,), daemon=True).start()
        return 200, self.describe(number)

    def describe(self, number: str) -> dict:
        """Return a job as the service describes it."""
        job = self.jobs[number]
        return {
            "id": number,
            "projectId": PROJECT,
            "location": REGION,
            "name": job["request"]["name"],
            "clientRequestId": job["request"]["clientRequestId"],
            "type": job["request"]["type"],
            "currentState": job["state"],
        }

    def say(self, number: str, importance: str, text: str) -> None:
        """Add a message to a job."""
        messages = self.jobs[number]["messages"]
        moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        messages.append(
            {"id": str(len(messages)), "time": moment, "messageImportance": importance, "messageText": text}
        )

    def cancel(self, number: str) -> None:
        """Cancel a job, as the service does on request."""
        job = self.jobs[number]
        job["state"] = "JOB_STATE_CANCELLED"
        if "process" in job:
            job["process"].kill()

    def _run(self, number: str) -> None:
        job = self.jobs[number]
        while self.keep_waiting:
            time.sleep(0.05)
        if job["state"] != "JOB_STATE_PENDING":
            return
        if self.fail_with:
            for text in self.fail_with:
                self.say(number, "JOB_MESSAGE_ERROR", text)
            job["state"] = "JOB_STATE_FAILED"
            return
        folder = self.folder / number
        folder.mkdir()
        (folder / "request.json").write_text(json.dumps(job["request"]))
        environment = {**os.environ, **self.environment}
        # The workers have the staged and the installed packages, but not this checkout.
        environment.pop("PYTHONPATH", None)
        command = [sys.executable, str(Path(__file__).with_name("staged_job.py")), str(folder)]
        with (folder / "log").open("w") as log:
            job["process"] = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            job["state"] = "JOB_STATE_RUNNING"
            job["process"].wait()
        if job["state"] == "JOB_STATE_CANCELLED":
            return
        result = folder / "result.json"
        told = json.loads(result.read_text()) if result.exists() else {"error": (folder / "log").read_text()}
        job["metrics"] = told.get("metrics", [])
        if told.get("error"):
            self.say(number, "JOB_MESSAGE_ERROR", told["error"])
        job["state"] = "JOB_STATE_FAILED" if told.get("error") else "JOB_STATE_DONE"


class _StorageHandler(RequestHandler):
    """The emulator's request handler, with one thread per connection.

    The emulator's own server has one thread, so that an idle connection blocks all others. Its storage is not
    thread-safe, so that requests need a lock. The content of a request is read before the lock is taken.
    """

    _lock = threading.Lock()

    def _answer(self) -> None:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.rfile = io.BytesIO(content)
        else:
            content = b""
        with self._lock:
            if self._is_other_generation(content):
                self._refuse()
            else:
                getattr(super(), f"do_{self.command}")()

    def _is_other_generation(self, content: bytes) -> bool:
        """Return whether a request is for another generation than the object's, which the emulator does not check."""
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        # The first request of a resumable upload was checked already.
        if "ifGenerationMatch" not in query or "upload_id" in query:
            return False
        bucket, _, name = address.path.partition("/b/")[2].partition("/o")
        name = unquote(name.removeprefix("/")) or query.get("name", [""])[0]
        if not name:
            # The first part of an upload's content, or all of it, is the object's description.
            name = json.loads(b'"%s"' % re.search(rb'"name": *"((?:[^"\\]|\\.)*)"', content)[1])
        there = self.storage.objects.get(bucket, {}).get(name, {})
        return str(there.get("generation", 0)) != query["ifGenerationMatch"][0]

    def _refuse(self) -> None:
        message = "At least one of the pre-conditions you specified did not hold."
        body = json.dumps({"error": {"code": 412, "message": message}}).encode()
        self.send_response(412)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _answer


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandIn

    def log_message(self, *args) -> None:
        """Suppress the log of requests."""

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        path = self.path.split("?")[0]
        here = self.stand_in
        if path == "/token":
            # The answer of Google's own token service.
            self._send(200, {"access_token": "stand-in", "expires_in": 3600, "token_type": "Bearer"})
            return
        content = json.loads(body) if body else {}
        here.requests.append((self.command, self.path, content))
        jobs = f"/v1b3/projects/{PROJECT}/locations/{REGION}/jobs"
        found = re.fullmatch(re.escape(jobs) + r"(?:/([^/]+)(?:/(messages|metrics))?)?", path)
        if not found:
            self._send(404, {"error": {"code": 404, "message": f"no {path}"}})
        elif self.command == "POST" and not found[1]:
            self._send(*here.create(content))
        elif found[1] not in here.jobs:
            self._send(404, {"error": {"code": 404, "message": f"no job {found[1]}"}})
        elif self.command == "PUT":
            assert content["requestedState"] in ("JOB_STATE_CANCELLED", 5), content
            here.cancel(found[1])
            self._send(200, here.describe(found[1]))
        elif found[2] == "messages":
            self._send(200, {"jobMessages": here.jobs[found[1]]["messages"]})
        elif found[2] == "metrics":
            self._send(200, {"metrics": here.jobs[found[1]]["metrics"]})
        else:
            self._send(200, here.describe(found[1]))

    do_GET = do_POST = do_PUT = _answer

    def _send(self, code: int, content: dict) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _write_key(path: Path, token_uri: str) -> None:
    """Write a new key of a service account, which only the stand-in accepts."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": base64.b16encode(os.urandom(8)).decode(),
        "private_key": key.decode(),
        "client_email": f"stand-in@{PROJECT}.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }
    path.write_text(json.dumps(account))


@contextmanager
def stand_in(folder: Path):
    """Run the services while the body runs; a process needs the variables in `environment` to reach them."""
    # The emulator logs a warning for every answer that it composes from strings.
    logging.getLogger("gcp_storage_emulator").setLevel(logging.ERROR)
    emulator = create_server("localhost", 0, in_memory=True, default_bucket=BUCKET)
    files = ThreadingHTTPServer(("localhost", 0), functools.partial(_StorageHandler, emulator._storage))
    files.daemon_threads = True
    threading.Thread(target=files.serve_forever, daemon=True).start()
    here = StandIn(folder, files.server_port)
    server = ThreadingHTTPServer(("localhost", 0), type("Handler", (_Handler,), {"stand_in": here}))
    server.daemon_threads = True
    here.endpoint = f"http://localhost:{server.server_port}"
    _write_key(folder / "key.json", f"{here.endpoint}/token")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # Beam caches the credentials in a process. Those of an earlier stand-in cannot be renewed after an hour.
    auth._Credentials._credentials_init = False
    try:
        yield here
    finally:
        here.keep_waiting = False
        for job in here.jobs.values():
            if "process" in job and job["process"].poll() is None:
                job["process"].kill()
        server.shutdown()
        files.shutdown()
