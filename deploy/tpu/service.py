"""The Cloud TPU service through `gcloud`: queued resources and their states, files and commands on the TPU VMs.

A request has one node per slice, and each node one or several hosts, the TPU VMs, which gcloud calls workers.

`gcloud` is used rather than the client library google-cloud-tpu because it sets up ssh and has its own Python and
credentials. The shell of the TPU VMs reads only fixed words and numbers (`tpu_worker.py`).
"""

import contextlib
import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from beambert.deploy.tpu.gcloud import Lines, Result, call, print_line, reason_of, run_together
from beambert.deploy.tpu.worker import DONE, SCRIPT
from beambert.pipelines.errors import SubmitError

# Directory on the TPU VMs, in the home directory of the ssh user.
FOLDER = "beambert-job"
# Time limit for a state that cannot be read.
SILENCE_SECONDS = 3600.0
_TRIES = 5
# A running request is not cut off: the TPU might be created without this process noticing.
_PATIENCE_SECONDS = 120.0
_DELETE_TRIES = 4
# A preempted VM does not close the connection.
_KEEP_ALIVE = {
    tool: [f"--{tool}-flag=-oServerAliveInterval=30", f"--{tool}-flag=-oServerAliveCountMax=4"]
    for tool in ("ssh", "scp")
}
_WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "STATE_UNSPECIFIED")
# States of a node that was preempted while its request is active.
_TAKEN = ("PREEMPTED", "TERMINATED", "STOPPED", "STOPPING", "DELETING")
# Error messages of the service.
_QUOTA = (
    re.compile(r"Quota limit '(?P<quota>[^']+)' has been exceeded\.? *(?P<limit>Limit: [^.\n\"]*)?"),
    re.compile(r"Quota '(?P<quota>[^']+)' exhausted\.?\s*(?P<limit>Limit [^.\n\"]*)?"),
)
# Phrases in error messages of gcloud.
_LOGGED_OUT = (
    "do not currently have an active account",
    "refreshing your current auth tokens",
    "Reauthentication",
    "UNAUTHENTICATED",
    "invalid authentication credentials",
)
# Errors after which certainly no TPU was created.
_NOTHING_MADE = ("PERMISSION_DENIED", "INVALID_ARGUMENT", *_LOGGED_OUT)
# Phrases in errors of gcloud and the service.
_API_DISABLED = ("SERVICE_DISABLED", "has not been used in project", "it is disabled")
_NO_ACCESS = ("PERMISSION_DENIED", "NOT_FOUND", "INVALID_ARGUMENT", "does not have permission", "not found")
_CAPACITY = ("no more capacity", "Insufficient capacity", "Insufficient reserved capacity")


class Preempted(Exception):
    """The service preempted the TPU."""


class Tpu:
    """A queued resource and its TPU VMs.

    Args:
        project: Google Cloud project ID.
        zone: zone, such as us-west4-a.
        name: name of the queued resource; of the node too where there is one slice.
        internal_ip: whether ssh uses the internal IP addresses of the VMs.
        slices: number of slices.
        hosts: number of hosts in each slice.

    Attributes:
        may_exist: whether the request was or may have been made, and was not deleted.
        created: whether the service has confirmed the request.
    """

    def __init__(
        self, project: str, zone: str, name: str, internal_ip: bool = False, slices: int = 1, hosts: int = 1
    ) -> None:
        self.project, self.zone, self.name, self.hosts = project, zone, name, hosts
        # The service adds the number of the slice to the prefix of the nodes.
        self.nodes = [name] if slices == 1 else [f"{name}-{number}" for number in range(slices)]
        self.may_exist = self.created = False
        self._all_workers = ["--worker=all"] if hosts > 1 else []
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
            *([f"--node-id={self.name}"] if len(self.nodes) == 1 else self._node_flags),
            f"--accelerator-type={accelerator_type}",
            f"--runtime-version={runtime_version}",
            "--labels=made-by=beambert",
            "--async",
            *options,
        )

    @property
    def _node_flags(self) -> list[str]:
        return [f"--node-count={len(self.nodes)}", f"--node-prefix={self.name}"]

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
        """Wait until the TPU VMs are ready, and yield each new state of the request.

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
        """Check that all TPU VMs are ready.

        Raises:
            Preempted: the TPU, or one of several slices, was preempted.
            SubmitError: the TPU was deleted by another process, or the service does not respond.
        """
        state = self._state()
        if state != "ACTIVE":
            raise Preempted(f"the TPU was preempted (the request is {state})")
        for node in self.nodes:
            node_state = self._describe("tpu-vm", node)["state"]
            if node_state in _TAKEN:
                raise Preempted(f"the TPU was preempted (the TPU VM {node} is {node_state})")

    def address(self) -> str:
        """Return the internal IP address of the first host of the first slice.

        Raises:
            Preempted: the TPU was preempted.
            SubmitError: the service does not respond, or states no address.
        """
        endpoints = self._describe("tpu-vm", self.nodes[0]).get("networkEndpoints") or [{}]
        if "ipAddress" not in endpoints[0]:
            raise SubmitError(f"the TPU VM {self.nodes[0]} has no IP address: run the same command again")
        return endpoints[0]["ipAddress"]

    def copy(self, folders: Sequence[Path]) -> None:
        """Copy directories to the TPU VMs, as `FOLDER` in the home directory.

        Args:
            folders: a directory for all hosts of each slice.

        Raises:
            Preempted, SubmitError: a TPU VM does not exist or is unreachable.
        """
        assert all(folder.name == FOLDER for folder in folders)
        commands = {
            node: self.command(
                "tpu-vm",
                "scp",
                str(folder),
                f"{node}:",
                "--recurse",
                *_KEEP_ALIVE["scp"],
                *self._all_workers,
                *self._ssh_flags,
            )
            for node, folder in zip(self.nodes, folders, strict=True)
        }
        self._on_all_nodes(commands, "copying files to the TPU VM")

    def remote(self, what: str) -> None:
        """Run a step of `tpu_worker.py` on all hosts of all slices at the same time, and print its output.

        Raises:
            Preempted, SubmitError: a TPU VM does not exist or is unreachable, or the step failed.
        """
        commands = {node: self._ssh(node, what, *self._all_workers) for node in self.nodes}
        self._on_all_nodes(commands, f"step `{what}` on the TPU VM")

    def status(self) -> dict[str, list[dict[str, Any]]]:
        """Return what the step `status` prints on each host that answers, by node."""
        commands = {node: self._ssh(node, "status", *self._all_workers) for node in self.nodes}
        results = run_together(commands, show=False)
        return {
            node: [json.loads(line) for line in result.lines if line.startswith("{")]
            for node, result in results.items()
        }

    @contextlib.contextmanager
    def connection(self, what: str, poll_seconds: float | None = None) -> Iterator[Lines]:
        """Run `tpu_worker.py` on the chief, yield its output lines, and close the connection after the body."""
        lines = Lines(self._ssh(self.nodes[0], what), poll_seconds)
        try:
            yield lines
        finally:
            lines.close()

    def _ssh(self, node: str, what: str, *flags: str) -> list[str]:
        """Return the command that runs a step of `tpu_worker.py` on hosts of a node."""
        return self.command(
            "tpu-vm",
            "ssh",
            node,
            f"--command=python3 {FOLDER}/{SCRIPT} {what}",
            *_KEEP_ALIVE["ssh"],
            *flags,
            *self._ssh_flags,
        )

    def delete(self, pause_seconds: float) -> bool:
        """Delete the queued resource and the TPU VMs, with retries; return whether they are deleted."""
        for left in reversed(range(_DELETE_TRIES)):
            try:
                code, _, errors = call(self.delete_command)
            except SubmitError as error:
                code, errors = 1, str(error)
            if code == 0 or "NOT_FOUND" in errors:
                self.may_exist = self.created = False
                return True
            print_line(f"Deleting {self.name} failed: {reason_of(errors)}")
            if left:
                time.sleep(pause_seconds)
        return False

    def _on_all_nodes(self, commands: dict[str, list[str]], what: str) -> None:
        """Run a command for each node at the same time, with retries of those that fail while the TPU VMs exist.

        A new VM may reject connections at first.
        """
        for left in reversed(range(_TRIES)):
            results = run_together(commands, show=True)
            failed = {node: result for node, result in results.items() if result.code}
            if not failed:
                return
            self.check()
            node, result = next(iter(failed.items()))
            # Exit codes 1 and 255 are failures of ssh and scp; a failed step would fail again.
            if result.code not in (1, 255) or not left:
                raise SubmitError(
                    f"{what} {self._hosts_without_answer(node, result)}failed with exit code {result.code}: "
                    f"{reason_of(result.errors)}"
                )
            commands = {node: commands[node] for node in failed}
            time.sleep(min(5.0, 0.2 * 2 ** (_TRIES - left)))

    def _hosts_without_answer(self, node: str, result: Result) -> str:
        """Return the node, and the hosts that did not print that the step succeeded."""
        answered = {line.partition("\t")[2] for line in result.lines if line.startswith(DONE)}
        silent = [str(number) for number in range(self.hosts) if str(number) not in answered]
        # After a failed copy it is unknown which hosts have the files.
        if self.hosts == 1 or len(silent) in (0, self.hosts):
            return f"{node} " if len(self.nodes) > 1 or self.hosts > 1 else ""
        return f"{node}, worker {', '.join(silent)}, "

    def _state(self) -> str:
        """Return the state of the request.

        Raises:
            SubmitError: the request failed or was deleted, or the service does not respond.
        """
        state = self._describe("queued-resources", self.name)["state"]
        name = state.get("state", "STATE_UNSPECIFIED")
        if name == "FAILED":
            error = state.get("failedData", {}).get("error", {})
            raise self._rejection("the request for a TPU failed", error.get("message", "no error message"))
        if name == "DELETING" or (name in ("SUSPENDING", "SUSPENDED") and state.get("stateInitiator") == "USER"):
            raise SubmitError(f"{self.name} is being deleted by another process ({name}); no new TPU is requested")
        return name

    def _describe(self, group: str, name: str) -> dict[str, Any]:
        """Return the service's description of the request or of a node."""
        end, pause = time.monotonic() + SILENCE_SECONDS, 1.0
        what = "the request" if group == "queued-resources" else "the TPU VM"
        while True:
            code, answer, errors = call(self.command(group, "describe", name, "--format=json"))
            if code == 0:
                self.created = True
                return json.loads(answer)
            if "NOT_FOUND" in errors:
                if group == "tpu-vm":
                    raise Preempted(f"the TPU was preempted (the TPU VM {name} does not exist)")
                self.may_exist = self.created = False
                raise SubmitError(f"{name} was deleted by another process; no new TPU is requested")
            if time.monotonic() >= end:
                raise SubmitError(f"the state of {what} {name} cannot be read: {reason_of(errors)}")
            print_line(f"The state of {what} {name} cannot be read; retrying: {reason_of(errors)}")
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


def require_access(tpu: Tpu) -> None:
    """Check access with a read-only request.

    Args:
        tpu: the TPU with its project and zone.

    Raises:
        SubmitError: gcloud is missing or not logged in, or the service rejects the project or the zone.
    """
    code, reason = tpu.ask("queued-resources", "list", "--limit=1", "--format=json")
    if code == 0:
        return
    sentence = reason.split(". ")[0].rstrip(".")
    if any(words in reason for words in _LOGGED_OUT):
        raise SubmitError(f"gcloud is not logged in ({sentence}): run gcloud auth login")
    if any(words in reason for words in _API_DISABLED):
        raise SubmitError(
            f"the Cloud TPU API is not enabled in --project {tpu.project}: run gcloud services enable "
            f"tpu.googleapis.com --project {tpu.project}"
        )
    if any(words in reason for words in _NO_ACCESS):
        raise SubmitError(
            f"--project {tpu.project} with --zone {tpu.zone} is not accessible: {sentence}; check both, and the roles "
            "of the account (docs/reference/cloud-permissions.md)"
        )
    raise SubmitError(f"the Cloud TPU service cannot be reached: {reason}; nothing was requested")


def require_ssh_key() -> None:
    """Check that a running ssh agent has gcloud's key, without which gcloud connects to one host only.

    gcloud makes the same comparison, but only after the TPU exists and is billed.

    Raises:
        SubmitError: the key exists and the agent does not have it.
    """
    key = Path.home() / ".ssh" / "google_compute_engine"
    fingerprint = _output(["ssh-keygen", "-lf", str(key)]).split()
    keys = _output(["ssh-add", "-l"])
    if len(fingerprint) > 1 and keys and fingerprint[1] not in keys:
        raise SubmitError(f"the ssh agent does not have gcloud's key, which several hosts need: run ssh-add {key}")


def _output(command: list[str]) -> str:
    """Return the output of a command; "" where it fails or does not exist."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
    except OSError:
        return ""
    return result.stdout if result.returncode == 0 else ""
