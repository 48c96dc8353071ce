"""The Cloud TPU service through `gcloud`: queued resources and their states, files and commands on the TPU VM.

`gcloud` is used rather than the client library google-cloud-tpu because it sets up ssh and has its own Python and
credentials. The shell of the TPU VM reads only fixed words and numbers (`tpu_worker.py`).
"""

import contextlib
import json
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deploy.tpu.gcloud import Lines, call, reason_of
from pipelines.errors import SubmitError

# Directory on the TPU VM, in the home directory of the ssh user.
FOLDER = "beambert-job"
# Time limit for a state that cannot be read.
SILENCE_SECONDS = 3600.0
_TRIES = 5
# A running request is not cut off: the TPU might be created without this process noticing.
_PATIENCE_SECONDS = 120.0
_DELETE_TRIES = 4
_WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "STATE_UNSPECIFIED")
# States of a node that was preempted while its request is active.
_TAKEN = ("PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "DELETING")
# Error messages of the service.
_QUOTA = (
    re.compile(r"Quota limit '(?P<quota>[^']+)' has been exceeded\.? *(?P<limit>Limit: [^.\n\"]*)?"),
    re.compile(r"Quota '(?P<quota>[^']+)' exhausted\.?\s*(?P<limit>Limit [^.\n\"]*)?"),
)
# Phrases in error messages of gcloud.
LOGGED_OUT = (
    "do not currently have an active account",
    "refreshing your current auth tokens",
    "Reauthentication",
    "UNAUTHENTICATED",
    "invalid authentication credentials",
)
# Errors after which certainly no TPU was created.
_NOTHING_MADE = ("PERMISSION_DENIED", "INVALID_ARGUMENT", *LOGGED_OUT)
_CAPACITY = ("no more capacity", "Insufficient capacity", "Insufficient reserved capacity")


class Preempted(Exception):
    """The service preempted the TPU."""


class Tpu:
    """A queued resource and its TPU VM.

    Args:
        project: Google Cloud project ID.
        zone: zone, such as us-west4-a.
        name: name of the queued resource and of the TPU VM.
        internal_ip: whether ssh uses the internal IP address of the VM.

    Attributes:
        may_exist: whether the request was or may have been made, and was not deleted.
        created: whether the service has confirmed the request.
    """

    def __init__(self, project: str, zone: str, name: str, internal_ip: bool = False) -> None:
        self.project, self.zone, self.name = project, zone, name
        self.may_exist = self.created = False
        self._ssh_flags = ["--internal-ip"] if internal_ip else []

    def command(self, *words: str) -> list[str]:
        """Return a `gcloud compute tpus` command for this project and zone."""
        return ["gcloud", "compute", "tpus", *words, f"--project={self.project}", f"--zone={self.zone}", "--quiet"]

    @property
    def delete_command(self) -> list[str]:
        """Return the command that deletes the queued resource and the TPU VM."""
        return self.command("queued-resources", "delete", self.name, "--force")

    @property
    def describe_command(self) -> list[str]:
        """Return the command that describes the queued resource."""
        return self.command("queued-resources", "describe", self.name)

    def ask(self, *words: str) -> tuple[int, str]:
        """Run a read-only `gcloud compute tpus` command.

        Returns:
            The exit code, and the error as one line.

        Raises:
            SubmitError: gcloud cannot be started.
        """
        code, _, errors = call(self.command(*words))
        return code, reason_of(errors)

    def create_command(self, accelerator_type: str, runtime_version: str, options: Sequence[str]) -> list[str]:
        """Return the command that creates the queued resource."""
        return self.command(
            "queued-resources",
            "create",
            self.name,
            f"--node-id={self.name}",
            f"--accelerator-type={accelerator_type}",
            f"--runtime-version={runtime_version}",
            "--labels=made-by=beambert",
            "--async",
            *options,
        )

    def create(self, command: list[str]) -> None:
        """Create the queued resource.

        Raises:
            SubmitError: the request was rejected.
        """
        self.may_exist, self.created = True, False
        try:
            code, _, errors = call(command, patience=_PATIENCE_SECONDS)
        except SubmitError:
            # gcloud did not start.
            self.may_exist = False
            raise
        if code == 0:
            self.created = True
            return
        if any(words in errors for words in _NOTHING_MADE):
            self.may_exist = False
        if "ALREADY_EXISTS" in errors:
            self.may_exist = False
            raise SubmitError(
                f"--name {self.name} is in use by another request: choose another name, or delete the request with "
                f"{shlex.join(self.delete_command)}"
            )
        raise self._rejection("the request for a TPU was rejected", errors)

    def wait(self, timeout_seconds: float, poll_seconds: float) -> Iterator[str]:
        """Wait until the TPU VM is ready, and yield each new state of the request.

        Raises:
            Preempted: the TPU was preempted before it was ready.
            SubmitError: the request failed, or the time limit has passed.
        """
        end, before = time.monotonic() + timeout_seconds, ""
        while True:
            state = self._state()
            if state == "ACTIVE":
                return
            if state not in _WAITING:
                # A spot TPU may be preempted between two polls.
                raise Preempted(f"the TPU was preempted before it was ready ({state})")
            if state != before:
                yield state
                before = state
            if time.monotonic() >= end:
                raise SubmitError(
                    f"no TPU was available within --timeout {timeout_seconds / 60:g} minutes (the request is {state}): "
                    "raise --timeout, or try another --zone or --accelerator_type, or --spot"
                )
            time.sleep(poll_seconds)

    def check(self) -> None:
        """Check that the TPU VM is ready.

        Raises:
            Preempted: the TPU was preempted.
            SubmitError: the TPU was deleted by another process, or the service does not respond.
        """
        state = self._state()
        if state != "ACTIVE":
            raise Preempted(f"the TPU was preempted (the request is {state})")
        node = self._describe("tpu-vm", "the TPU VM")["state"]
        if node in _TAKEN:
            raise Preempted(f"the TPU was preempted (the TPU VM is {node})")

    def copy(self, folder: Path) -> None:
        """Copy a directory to the TPU VM, as `FOLDER` in the home directory.

        Raises:
            Preempted, SubmitError: the TPU VM does not exist or is unreachable.
        """
        assert folder.name == FOLDER
        words = ["scp", str(folder), f"{self.name}:", "--recurse", *self._ssh_flags]
        self._retry(lambda: call(self.command("tpu-vm", *words)), "copying files to the TPU VM")

    def remote(self, what: str) -> None:
        """Run a step of `tpu_worker.py` on the TPU VM and print its output.

        Raises:
            Preempted, SubmitError: the TPU VM does not exist or is unreachable, or the step failed.
        """

        def attempt() -> tuple[int, str, str]:
            with self.connection(what) as lines:
                for line in lines:
                    if line is not None:
                        print(line, flush=True)
            return lines.code, "", lines.errors

        self._retry(attempt, f"step `{what}` on the TPU VM")

    @contextlib.contextmanager
    def connection(self, what: str, poll_seconds: float | None = None) -> Iterator[Lines]:
        """Run `tpu_worker.py` on the TPU VM, yield its output lines, and close the connection after the body."""
        ssh = [
            "ssh",
            self.name,
            f"--command=python3 {FOLDER}/tpu_worker.py {what}",
            # A preempted VM does not close the connection.
            "--ssh-flag=-oServerAliveInterval=30",
            "--ssh-flag=-oServerAliveCountMax=4",
            *self._ssh_flags,
        ]
        lines = Lines(self.command("tpu-vm", *ssh), poll_seconds)
        try:
            yield lines
        finally:
            lines.close()

    def delete(self, pause_seconds: float) -> bool:
        """Delete the queued resource and the TPU VM, with retries; return whether they are deleted."""
        for left in reversed(range(_DELETE_TRIES)):
            code, _, errors = call(self.delete_command)
            if code == 0 or "NOT_FOUND" in errors:
                self.may_exist = self.created = False
                return True
            print(f"Deleting {self.name} failed: {reason_of(errors)}", flush=True)
            if left:
                time.sleep(pause_seconds)
        return False

    def _retry(self, attempt: Any, what: str) -> None:
        """Retry while the TPU VM exists, since a new VM may reject connections at first."""
        for left in reversed(range(_TRIES)):
            code, _, errors = attempt()
            if code == 0:
                return
            self.check()
            # Exit codes 1 and 255 are failures of ssh and scp; a failed step would fail again.
            if code not in (1, 255) or not left:
                raise SubmitError(f"{what} failed with exit code {code}: {reason_of(errors)}")
            time.sleep(min(5.0, 0.2 * 2 ** (_TRIES - left)))

    def _state(self) -> str:
        """Return the state of the request.

        Raises:
            SubmitError: the request failed or was deleted, or the service does not respond.
        """
        state = self._describe("queued-resources", "the request")["state"]
        name = state.get("state", "STATE_UNSPECIFIED")
        if name == "FAILED":
            error = state.get("failedData", {}).get("error", {})
            raise self._rejection("the request for a TPU failed", error.get("message", "no error message"))
        if name == "DELETING" or (name in ("SUSPENDING", "SUSPENDED") and state.get("stateInitiator") == "USER"):
            raise SubmitError(f"{self.name} is being deleted by another process ({name}); no new TPU is requested")
        return name

    def _describe(self, group: str, what: str) -> dict[str, Any]:
        """Return the service's description of the request or the TPU VM."""
        end, pause = time.monotonic() + SILENCE_SECONDS, 1.0
        while True:
            code, answer, errors = call(self.command(group, "describe", self.name, "--format=json"))
            if code == 0:
                self.created = True
                return json.loads(answer)
            if "NOT_FOUND" in errors:
                if group == "tpu-vm":
                    raise Preempted("the TPU was preempted (the TPU VM does not exist)")
                self.may_exist = self.created = False
                raise SubmitError(f"{self.name} was deleted by another process; no new TPU is requested")
            if time.monotonic() >= end:
                raise SubmitError(f"the state of {what} {self.name} cannot be read: {reason_of(errors)}")
            print(f"The state of {what} {self.name} cannot be read; retrying: {reason_of(errors)}", flush=True)
            # The network of this machine may be down, while the run on the TPU continues.
            time.sleep(pause)
            pause = min(60.0, 2 * pause)

    def _rejection(self, what: str, errors: str) -> SubmitError:
        """Return the error for a rejected or failed request, with a remedy where the reason is known."""
        reason = reason_of(errors)
        for pattern in _QUOTA:
            if match := pattern.search(errors):
                limit = f", {' '.join(match['limit'].split())}" if match["limit"] else ""
                listing = shlex.join(self.command("queued-resources", "list")[:-1])
                return SubmitError(
                    f"the quota is exhausted ({match['quota']}{limit}): request more at "
                    f"https://console.cloud.google.com/iam-admin/quotas?project={self.project}, change --zone or "
                    f"--accelerator_type, or delete old requests: {listing}"
                )
        if any(words in errors for words in _CAPACITY):
            return SubmitError(f"{what}: {reason}; try another --zone, or try again later")
        return SubmitError(f"{what}: {reason}")
