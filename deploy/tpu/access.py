"""Check, before a TPU is requested, that gcloud is installed and logged in and that project and zone are accessible."""

import subprocess
from pathlib import Path

from beambert.deploy.tpu.service import LOGGED_OUT, Tpu
from beambert.pipelines.errors import SubmitError

# Phrases in errors of gcloud and the service.
_API_DISABLED = ("SERVICE_DISABLED", "has not been used in project", "it is disabled")
_NO_ACCESS = ("PERMISSION_DENIED", "NOT_FOUND", "INVALID_ARGUMENT", "does not have permission", "not found")


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
    if any(words in reason for words in LOGGED_OUT):
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
