"""The Cloud TPU service as `gcloud` reaches it: requests for a machine, their states, files and commands on it.

`gcloud` rather than the client library google-cloud-tpu, since the machine is entered by ssh, which only `gcloud` sets
up, and since it brings its own Python and credentials. What the machine's shell reads are fixed words and numbers
(`tpu_worker.py`).
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

# The folder on the machine, in the home directory of whoever enters.
FOLDER = "beambert-job"
# How long the service may leave a question unanswered.
SILENCE_SECONDS = 3600.0
_TRIES = 5
# A request for a machine that is under way is not cut off: it might be granted and nobody know.
_PATIENCE_SECONDS = 120.0
_DELETE_TRIES = 4
_WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "STATE_UNSPECIFIED")
# Of a node whose request is active: taken away, with what was on its disk or without.
_TAKEN = ("PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "DELETING")
# As the service words them.
_QUOTA = (
    re.compile(r"Quota limit '(?P<quota>[^']+)' has been exceeded\.? *(?P<limit>Limit: [^.\n\"]*)?"),
    re.compile(r"Quota '(?P<quota>[^']+)' exhausted\.?\s*(?P<limit>Limit [^.\n\"]*)?"),
)
# As gcloud words them.
LOGGED_OUT = (
    "do not currently have an active account",
    "refreshing your current auth tokens",
    "Reauthentication",
    "UNAUTHENTICATED",
    "invalid authentication credentials",
)
# Responses to a request for a TPU after which certainly none was created.
_NOTHING_MADE = ("PERMISSION_DENIED", "INVALID_ARGUMENT", *LOGGED_OUT)
_CAPACITY = ("no more capacity", "Insufficient capacity", "Insufficient reserved capacity")


class Preempted(Exception):
    """The service took the machine away."""


class Tpu:
    """One request for a machine with a TPU, and the machine.

    Args:
        project: of the user.
        zone: such as us-west4-a.
        name: of the request and of the machine.
        internal_ip: whether the machine is entered by its address within the network.

    Attributes:
        may_exist: whether the request was made, or may have been, and was not deleted.
        created: whether the service has confirmed the request.
    """

    def __init__(self, project: str, zone: str, name: str, internal_ip: bool = False) -> None:
        self.project, self.zone, self.name = project, zone, name
        self.may_exist = self.created = False
        self._ssh_flags = ["--internal-ip"] if internal_ip else []

    def command(self, *words: str) -> list[str]:
        """Return a `gcloud compute tpus` command on this project and zone."""
        return ["gcloud", "compute", "tpus", *words, f"--project={self.project}", f"--zone={self.zone}", "--quiet"]

    @property
    def delete_command(self) -> list[str]:
        """Return the command that deletes the request and the machine."""
        return self.command("queued-resources", "delete", self.name, "--force")

    @property
    def describe_command(self) -> list[str]:
        """Return the command that shows whether the request exists."""
        return self.command("queued-resources", "describe", self.name)

    def ask(self, *words: str) -> tuple[int, str]:
        """Run a `gcloud compute tpus` command that changes nothing.

        Returns:
            The exit code, and why it failed in one line.

        Raises:
            SubmitError: gcloud does not start.
        """
        code, _, errors = call(self.command(*words))
        return code, reason_of(errors)

    def create_command(self, accelerator_type: str, runtime_version: str, options: Sequence[str]) -> list[str]:
        """Return the command that makes the request."""
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
        """Make the request.

        Raises:
            SubmitError: it was rejected.
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
                f"a request named {self.name} is there already and was left alone; choose another --name, or delete "
                f"it: {shlex.join(self.delete_command)}"
            )
        raise self._refused("the request for a TPU was refused", errors)

    def wait(self, timeout_seconds: float, poll_seconds: float) -> Iterator[str]:
        """Wait until the machine is ready; yield every state on the way once.

        Raises:
            SubmitError: the request failed, or the time limit has passed.
        """
        end, before = time.monotonic() + timeout_seconds, ""
        while True:
            state = self._state()
            if state == "ACTIVE":
                return
            if state not in _WAITING:
                # A spot machine may be gone before anybody saw it.
                raise Preempted(f"the TPU was taken away before it was ready ({state})")
            if state != before:
                yield state
                before = state
            if time.monotonic() >= end:
                raise SubmitError(
                    f"no TPU was given within {timeout_seconds / 60:g} minutes (the request is {state}); wait longer "
                    "with --timeout, or take another --zone or --accelerator_type, or --spot"
                )
            time.sleep(poll_seconds)

    def check(self) -> None:
        """Return if the machine is ready.

        Raises:
            Preempted: the service took it away.
            SubmitError: it was deleted elsewhere, or the service does not respond.
        """
        state = self._state()
        if state != "ACTIVE":
            raise Preempted(f"the TPU was taken away (its request is {state})")
        node = self._describe("tpu-vm", "the machine")["state"]
        if node in _TAKEN:
            raise Preempted(f"the TPU was taken away (its machine is {node})")

    def copy(self, folder: Path) -> None:
        """Copy a folder to the machine, as `FOLDER` in its home directory.

        Raises:
            Preempted, SubmitError: the machine is gone or unreachable.
        """
        assert folder.name == FOLDER
        words = ["scp", str(folder), f"{self.name}:", "--recurse", *self._ssh_flags]
        self._retry(lambda: call(self.command("tpu-vm", *words)), "copying files to the machine")

    def remote(self, what: str) -> None:
        """Run a step of `tpu_worker.py` on the machine and print its output.

        Raises:
            Preempted, SubmitError: the machine is gone or unreachable, or the step failed there.
        """

        def attempt() -> tuple[int, str, str]:
            with self.connection(what) as lines:
                for line in lines:
                    if line is not None:
                        print(line, flush=True)
            return lines.code, "", lines.errors

        self._retry(attempt, f"the step `{what}` on the machine")

    @contextlib.contextmanager
    def connection(self, what: str, poll_seconds: float | None = None) -> Iterator[Lines]:
        """Start `tpu_worker.py` on the machine, yield its output as it comes, and end the connection."""
        ssh = [
            "ssh",
            self.name,
            f"--command=python3 {FOLDER}/tpu_worker.py {what}",
            # A machine that vanishes says no goodbye.
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
        """Delete the request and the machine, with several attempts; return whether they are gone."""
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
        """Try until it succeeds while the machine exists, as a new one may reject connections at first."""
        for left in reversed(range(_TRIES)):
            code, _, errors = attempt()
            if code == 0:
                return
            self.check()
            # ssh itself failed, or scp; else the step did, which would fail again.
            if code not in (1, 255) or not left:
                raise SubmitError(f"{what} failed with exit code {code}: {reason_of(errors)}")
            time.sleep(min(5.0, 0.2 * 2 ** (_TRIES - left)))

    def _state(self) -> str:
        """Return the state of the request.

        Raises:
            SubmitError: it failed, or was deleted, or the service does not respond.
        """
        state = self._describe("queued-resources", "the request")["state"]
        name = state.get("state", "STATE_UNSPECIFIED")
        if name == "FAILED":
            error = state.get("failedData", {}).get("error", {})
            raise self._refused("the request for a TPU failed", error.get("message", "no reason given"))
        if name == "DELETING" or (name in ("SUSPENDING", "SUSPENDED") and state.get("stateInitiator") == "USER"):
            raise SubmitError(f"{self.name} is being deleted by somebody else ({name}); nothing is created again")
        return name

    def _describe(self, group: str, what: str) -> dict[str, Any]:
        """Return the service's description of the request or the machine."""
        end, pause = time.monotonic() + SILENCE_SECONDS, 1.0
        while True:
            code, answer, errors = call(self.command(group, "describe", self.name, "--format=json"))
            if code == 0:
                self.created = True
                return json.loads(answer)
            if "NOT_FOUND" in errors:
                if group == "tpu-vm":
                    raise Preempted("the TPU was taken away (its machine is gone)")
                self.may_exist = self.created = False
                raise SubmitError(f"{self.name} was deleted by somebody else; nothing is created again")
            if time.monotonic() >= end:
                raise SubmitError(f"the state of {what} {self.name} cannot be read: {reason_of(errors)}")
            print(f"The state of {what} {self.name} cannot be read, trying on: {reason_of(errors)}", flush=True)
            # The network of this machine may be down: the work on the TPU continues.
            time.sleep(pause)
            pause = min(60.0, 2 * pause)

    def _refused(self, what: str, errors: str) -> SubmitError:
        reason = reason_of(errors)
        for pattern in _QUOTA:
            if match := pattern.search(errors):
                limit = f", {' '.join(match['limit'].split())}" if match["limit"] else ""
                listing = shlex.join(self.command("queued-resources", "list")[:-1])
                return SubmitError(
                    f"no quota is left ({match['quota']}{limit}); get more at "
                    f"https://console.cloud.google.com/iam-admin/quotas?project={self.project}, change --zone or "
                    f"--accelerator_type, or delete old requests: {listing}"
                )
        if any(words in errors for words in _CAPACITY):
            return SubmitError(f"{what}: {reason}; take another --zone, or try again later")
        return SubmitError(f"{what}: {reason}")
