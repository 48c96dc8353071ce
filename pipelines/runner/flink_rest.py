"""Read the state of a Flink cluster and its jobs, and cancel jobs, over its REST API."""

import itertools
import json
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

from beambert.pipelines.errors import SubmitError

# States in which a job has ended.
FINAL = ("FINISHED", "FAILED", "CANCELED")
_SECONDS_TO_ANSWER = 10


def listens(address: str) -> bool:
    """Return whether a server accepts connections at host:port."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError, OverflowError), socket.create_connection((host, int(port)), timeout=5):
        return True
    return False


def require_no_user(name: str, url: str) -> None:
    """Check that a URL has no user name and password, which requests would not send and messages would print.

    Args:
        name: the flag or variable of the URL, for the message.
        url: the URL.

    Raises:
        SubmitError: it has.
    """
    if "@" in url.split("://", 1)[-1].split("/", 1)[0]:
        raise SubmitError(f"{name} has a user name or password, which is not supported; give a URL without")


def error_line(stacktrace: str) -> str:
    """Return the line that names the error: the exception of a Python worker, or the first line of another error.

    Args:
        stacktrace: a Java stack trace; that of an error in a worker begins with the worker's traceback.
    """
    first, *further = stacktrace.split("\n")
    if "Traceback (most recent call last)" not in first:
        return first
    traceback = itertools.takewhile(lambda line: not line.startswith("\tat "), further)
    unindented = [line for line in traceback if line.strip() and not line[0].isspace()]
    return unindented[-1] if unindented else first


class FlinkCluster:
    """A Flink cluster.

    Args:
        master: "host:port" or URL of the JobManager's REST API.

    Raises:
        SubmitError: the URL has a user name.
    """

    def __init__(self, master: str) -> None:
        require_no_user("--flink_master", master)
        self.url = (master if "://" in master else f"http://{master}").rstrip("/")

    @property
    def host(self) -> str:
        """Return the host of the JobManager."""
        return self.url.split("://", 1)[1].split("/")[0].rsplit(":", 1)[0]

    def overview(self) -> dict[str, Any]:
        """Return TaskManagers, slots, jobs and version. Raise SubmitError if the server is not a Flink cluster."""
        return self._get("/overview")

    def settings(self) -> dict[str, str]:
        """Return the cluster's configuration."""
        return {entry["key"]: entry["value"] for entry in self._get("/jobmanager/config")}

    def jobs(self, name: str) -> list[dict[str, Any]]:
        """Return the jobs of a name, oldest first, each with jid, state, start-time and tasks."""
        jobs = [job for job in self._get("/jobs/overview")["jobs"] if job["name"] == name]
        return sorted(jobs, key=lambda job: job["start-time"])

    def reason(self, job: str) -> str:
        """Return the line that names a job's latest error, or ""."""
        history = self._get(f"/jobs/{job}/exceptions").get("exceptionHistory", {}).get("entries", [])
        return error_line(history[0]["stacktrace"]) if history else ""

    def cancel(self, job: str) -> None:
        """Request the cancellation of a job."""
        self._request(f"/jobs/{job}?mode=cancel", "PATCH")

    def _get(self, path: str) -> Any:
        response = self._request(path, "GET")
        try:
            return json.loads(response)
        except (ValueError, RecursionError) as error:
            raise SubmitError(
                f"--flink_master {self.url} is not the REST API of Flink; check host and port of the JobManager"
            ) from error

    def _request(self, path: str, method: str) -> bytes:
        request = urllib.request.Request(self.url + path, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS_TO_ANSWER) as response:  # noqa: S310
                return response.read()
        except urllib.error.HTTPError as error:
            raise SubmitError(
                f"--flink_master {self.url} returns status {error.code} for {path}; check that it is the REST API of a "
                "Flink JobManager"
            ) from error
        except (urllib.error.URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise SubmitError(
                f"--flink_master {self.url} cannot be reached ({reason}); check host and REST port of the JobManager"
            ) from error
