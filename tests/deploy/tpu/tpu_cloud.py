"""The cloud that tests of `beambert submit tpu` run against: `tpu_stand_in.py` as the `gcloud` on PATH."""

import contextlib
import http.server
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beambert import cli

STAND_IN = Path(__file__).with_name("tpu_stand_in.py")
NAME = "mine"
# Start of programs that run in place of beambert: the directory of their output in the bucket.
OUTPUT = """
import json, os, pathlib, re, signal, sys, time
url = sys.argv[sys.argv.index("--output") + 1]
output = pathlib.Path(os.environ["TPU_STAND_IN"]) / "buckets" / url.removeprefix("gs://")
output.mkdir(parents=True, exist_ok=True)
"""
PRETRAIN = ("pretrain", "--data", "gs://bucket/data", "--output", "gs://bucket/run", "--num_train_steps", "5")


class Metadata(http.server.BaseHTTPRequestHandler):
    """A metadata server for TPU machines; the path of a request starts with the number of the worker."""

    def do_GET(self) -> None:
        worker, _, path = self.path.lstrip("/").partition("/")
        found = (
            path == "computeMetadata/v1/instance/attributes/agent-worker-number"
            and self.headers["Metadata-Flavor"] == "Google"
        )
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(worker.encode() if found else b"")

    def log_message(self, *_: object) -> None:
        pass


class Cloud:
    """A separate cloud for a test.

    Args:
        folder: directory without an earlier cloud.
        wheel: wheel of beambert.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.state = folder / "cloud"
        self._wheel = wheel
        for name in ("requests", "machines", "nodes", "buckets"):
            (self.state / name).mkdir(parents=True)
        self.tools = folder / "tools"
        self.tools.mkdir()
        gcloud = self.tools / "gcloud"
        gcloud.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {STAND_IN} "$@"\n')
        gcloud.chmod(0o755)
        self._metadata = http.server.ThreadingHTTPServer(("localhost", 0), Metadata)
        threading.Thread(target=self._metadata.serve_forever, daemon=True).start()
        self.plan()

    def plan(self, **what: Any) -> None:
        """Set failures, delays and states by name.

        refuse, refuse_list, refuse_delete, describe_error: error messages, as gcloud words them.
            refuse_delete and others may be lists, with one answer per call.
        create_seconds, delete_seconds, start_seconds: durations.
        states: for each request in turn, the states it goes through.
        ssh_fails: whether ssh fails.
        cut_follow_after: number of lines after which the connection that shows the log breaks.
        unreachable: names NODE/WORKER, separated by spaces, that ssh cannot reach.
        """
        (self.state / "script.json").write_text(json.dumps(what))

    def command(self, code: str) -> None:
        """Set the Python code that runs in place of beambert on the machine."""
        (self.state / "command.py").write_text(code)

    def bucket(self, place: str) -> Path:
        """Return the local path of a gs:// path."""
        return self.state / "buckets" / place.removeprefix("gs://")

    @property
    def environment(self) -> dict[str, str]:
        """Return environment variables with the stand-in as gcloud."""
        return {
            **os.environ,
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "TPU_STAND_IN": str(self.state),
            "TPU_METADATA": f"localhost:{self._metadata.server_port}",
            "PYTHONUNBUFFERED": "1",
        }

    def argv(self, *flags: str, command: tuple[str, ...]) -> list[str]:
        """Return the command line of `beambert submit tpu`, with short polling intervals."""
        own = ["--project=p", "--zone=us-west4-a", "--accelerator_type=v5litepod-8", f"--name={NAME}"]
        own += ["--poll_seconds=0.2", f"--wheel={self._wheel}", *flags]
        return [sys.executable, "-m", "beambert", "submit", "tpu", *own, *command]

    def submit(self, *flags: str, command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        """Run the command in this process until it ends."""
        argv = self.argv(*flags, command=command)
        output, errors = io.StringIO(), io.StringIO()
        with (
            unittest.mock.patch.dict(os.environ, self.environment),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            code = cli.main(argv[3:])
        return subprocess.CompletedProcess(argv, code, output.getvalue(), errors.getvalue())

    def begin(
        self, *flags: str, command: tuple[str, ...], stdout: int = subprocess.PIPE, stderr: int = subprocess.STDOUT
    ) -> subprocess.Popen[str]:
        """Start the command in a separate process."""
        return subprocess.Popen(
            self.argv(*flags, command=command),
            env=self.environment,
            stdout=stdout,
            stderr=stderr,
            text=True,
            # The tests may run under nohup or in the background, where these signals are ignored.
            preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)],
        )

    def preempt(self) -> None:
        """Preempt the machines of the request, as the service does."""
        request = self.state / "requests" / f"{NAME}.json"
        content = json.loads(request.read_text())
        request.write_text(json.dumps({**content, "states": ["SUSPENDING", "SUSPENDED"]}))
        for node in content["nodes"]:
            self._stand_in(f"t.take_away('{node}')")

    def preempt_worker(self, node: str, worker: int) -> None:
        """Preempt a node by removing one of its workers; the other workers continue to run."""
        self.lose_worker(node, worker)
        (self.state / "nodes" / node).write_text("PREEMPTED")

    def lose_worker(self, node: str, worker: int) -> None:
        """Remove one worker of a node before the service reports it."""
        self._stand_in(f"t.take_away('{node}', {worker})")

    def stop_worker(self, node: str, worker: int) -> None:
        """Send SIGTERM to the job on a worker, as a machine does that shuts down."""
        home = self.state / "machines" / node / f"w-{worker}" / "beambert-job"
        os.kill(int((home / "work.pid").read_text()), signal.SIGTERM)

    def _stand_in(self, code: str) -> None:
        code = f"import sys; sys.path.insert(0, {str(STAND_IN.parent)!r}); import tpu_stand_in as t; {code}"
        subprocess.run([sys.executable, "-c", code], env=self.environment, check=True)

    def calls(self, verb: str) -> list[list[str]]:
        """Return the calls of `gcloud compute tpus queued-resources VERB`, or of tpu-vm, so far."""
        path = self.state / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [call for call in map(json.loads, lines) if call[3:4] == [verb]]

    @property
    def left(self) -> list[str]:
        """Return the requests and machines that still exist."""
        return sorted(path.stem for name in ("requests", "machines") for path in (self.state / name).iterdir())


def until(condition: Callable[[], Any], seconds: float = 300.0) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)
