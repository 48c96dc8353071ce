"""Test `beambert submit tpu` without access: checks before the request, and no false alarm after a rejection."""

import shutil
import subprocess

import pytest

from beambert.deploy.tpu.service import require_ssh_key
from tests.deploy.tpu.tpu_cloud import NAME, PRETRAIN, Cloud, until

LOGGED_OUT = """You do not currently have an active account selected.
Please run:

  $ gcloud auth login

to obtain new credentials."""
EXPIRED = "There was a problem refreshing your current auth tokens: Reauthentication failed. cannot prompt during"
DISABLED = "PERMISSION_DENIED: Cloud TPU API has not been used in project p before or it is disabled. Enable it by"
DENIED = "PERMISSION_DENIED: Permission 'tpu.queuedresources.list' denied on resource '//tpu/projects/p'"
UNAVAILABLE = "UNAVAILABLE: The service is currently unavailable."


@pytest.fixture
def cloud(tmp_path):
    # The wheel is never installed, because no test of this file gets a machine.
    wheel = tmp_path / "beambert-0.1.0-py3-none-any.whl"
    wheel.touch()
    return Cloud(tmp_path, wheel)


def refused(cloud: Cloud, *flags: str) -> tuple[str, str]:
    """Return the standard output of a submission that fails, and its one-line error."""
    result = cloud.submit(*flags, command=PRETRAIN)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("beambert submit tpu: error: ")
    return result.stdout, line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            LOGGED_OUT,
            "gcloud is not logged in (You do not currently have an active account selected): run gcloud auth l",
        ),
        (EXPIRED, "gcloud is not logged in (There was a problem refreshing"),
        (DISABLED, "not enabled in --project p: run gcloud services enable tpu.googleapis.com --project p"),
        (DENIED, "--project p with --zone us-west4-a is not accessible: PERMISSION_DENIED: Permission 'tpu.queued"),
        (
            "NOT_FOUND: Location us-west4-z is not found.",
            "check both, and the roles of the account (docs/reference/cloud-permissions.md)",
        ),
        (UNAVAILABLE, "the Cloud TPU service cannot be reached: UNAVAILABLE: The service is currently unavailable"),
    ],
)
def test_without_access_nothing_is_requested(cloud, words, expected):
    # gcloud would fail with the same message for the other commands.
    cloud.plan(refuse_list=words, refuse=words, refuse_delete=words)
    out, line = refused(cloud)
    assert expected in line
    assert out == ""
    assert cloud.calls("create") == cloud.calls("delete") == []


@pytest.mark.parametrize(
    ("break_gcloud", "message"),
    [
        (lambda gcloud: gcloud.unlink(), "gcloud is not installed: install the Google Cloud CLI"),
        (lambda gcloud: gcloud.chmod(0o644), "gcloud cannot be started (Permission denied)"),
    ],
    ids=["missing", "not executable"],
)
def test_without_gcloud_nothing_is_said_to_be_requested(cloud, monkeypatch, break_gcloud, message):
    break_gcloud(cloud.tools / "gcloud")
    monkeypatch.setenv("PATH", "")
    out, line = refused(cloud)
    assert message in line
    assert out == ""


@pytest.mark.skipif(not shutil.which("ssh-agent"), reason="ssh-agent is not installed")
def test_an_agent_without_gclouds_key_is_found_before_anything_is_requested(cloud, tmp_path, monkeypatch):
    key = tmp_path / "home/.ssh/google_compute_engine"
    key.parent.mkdir(parents=True)
    for path in (key, key.with_name("another")):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    # Without an agent, gcloud uses the key file.
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    require_ssh_key()
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    try:
        until(socket.exists, 30)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", "-q", str(key.with_name("another"))], check=True)
        out, line = refused(cloud, "--accelerator_type=v5p-16")
        assert f"run ssh-add {key}" in line
        assert out == ""
        assert cloud.calls("create") == []
        subprocess.run(["ssh-add", "-q", str(key)], check=True)
        require_ssh_key()
    finally:
        agent.terminate()
        agent.wait()


def test_a_dry_run_needs_no_login(cloud):
    cloud.plan(refuse_list=LOGGED_OUT)
    assert cloud.submit("--dry_run", command=PRETRAIN).returncode == 0
    assert cloud.calls("list") == []


@pytest.mark.parametrize("words", [LOGGED_OUT, "PERMISSION_DENIED: Permission 'tpu.nodes.create' denied"])
def test_a_request_that_certainly_made_nothing_is_not_deleted(cloud, words):
    cloud.plan(refuse=words, refuse_delete=words)
    out, line = refused(cloud)
    assert "the request for a TPU was rejected" in line
    assert "delet" not in out.split("queued-resources delete")[1]
    assert cloud.calls("delete") == []


@pytest.mark.parametrize("flags", [(), ("--keep",)])
def test_a_request_that_may_have_been_made_is_not_reported_as_billed(cloud, flags):
    cloud.plan(refuse=UNAVAILABLE, refuse_delete=UNAVAILABLE)
    out, line = refused(cloud, *flags)
    assert "the request for a TPU was rejected: UNAVAILABLE" in line
    assert "COULD NOT BE DELETED" not in out
    assert "is kept" not in out
    assert f"It is unknown whether {NAME} was created" in out
    assert f"gcloud compute tpus queued-resources describe {NAME} " in out
    assert len(cloud.calls("delete")) > 1
