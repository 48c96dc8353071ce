"""What a Flink cluster says of itself and of its jobs, over its REST interface."""

import json
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

from pipelines.errors import SubmitError

# States after which nothing more comes.
FINAL = ("FINISHED", "FAILED", "CANCELED")
_SECONDS_TO_ANSWER = 10


def listens(address: str) -> bool:
    """Return whether anything accepts connections at host:port."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError, OverflowError), socket.create_connection((host, int(port)), timeout=5):
        return True
    return False


class FlinkCluster:
    """A Flink cluster.

    Args:
        master: "host:port" or a URL, of the JobManager's REST interface.
    """

    def __init__(self, master: str) -> None:
        self.url = (master if "://" in master else f"http://{master}").rstrip("/")

    @property
    def host(self) -> str:
        """Return the host of the JobManager."""
        return self.url.split("://", 1)[1].split("/")[0].rsplit(":", 1)[0]

    def overview(self) -> dict[str, Any]:
        """Return TaskManagers, slots, jobs and version. Raise SubmitError if the response is not Flink's."""
        return self._get("/overview")

    def settings(self) -> dict[str, str]:
        """Return the cluster's configuration."""
        return {entry["key"]: entry["value"] for entry in self._get("/jobmanager/config")}

    def jobs(self, name: str) -> list[dict[str, Any]]:
        """Return the jobs of a name: jid, state, start-time and tasks of each; the oldest first."""
        jobs = [job for job in self._get("/jobs/overview")["jobs"] if job["name"] == name]
        return sorted(jobs, key=lambda job: job["start-time"])

    def reason(self, job: str) -> str:
        """Return the latest error of a job in one line; "" if there was none."""
        history = self._get(f"/jobs/{job}/exceptions").get("exceptionHistory", {}).get("entries", [])
        return history[0]["stacktrace"].split("\n")[0] if history else ""

    def cancel(self, job: str) -> None:
        """Request the cancellation of a job."""
        self._ask(f"/jobs/{job}?mode=cancel", "PATCH")

    def _get(self, path: str) -> Any:
        answer = self._ask(path, "GET")
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise SubmitError(f"--flink_master {self.url} answers, but not as Flink's REST interface does") from error

    def _ask(self, path: str, method: str) -> bytes:
        request = urllib.request.Request(self.url + path, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS_TO_ANSWER) as answer:  # noqa: S310
                return answer.read()
        except urllib.error.HTTPError as error:
            raise SubmitError(f"--flink_master {self.url} answers {error.code} to {path}: not Flink?") from error
        except (urllib.error.URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise SubmitError(
                f"--flink_master {self.url} cannot be reached ({reason}); name host and REST port of the JobManager"
            ) from error
