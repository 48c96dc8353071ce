"""Test with the real gcloud, where it is installed, against a local server that answers like the Cloud TPU API.

So gcloud itself checks the flags of `beambert submit tpu`, and the answers and errors that are parsed are its own.
No account is used and nothing leaves this machine.
"""

import http.server
import json
import os
import shutil
import subprocess
import threading

import pytest

from beambert.deploy.tpu.service import Tpu, require_access
from beambert.pipelines.errors import SubmitError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not installed")]
REQUEST = "projects/p/locations/us-west4-a/queuedResources/mine"
OPERATION = {"name": "projects/p/locations/us-west4-a/operations/1", "done": True, "response": {}}
QUOTA = "Quota limit 'TPUV6EPreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0 in region us-east5."


@pytest.fixture
def service(tmp_path, monkeypatch):
    """A list of (status, content) with one answer per call, and the list of calls that were made."""
    answers, calls = [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            calls.append((self.command, self.path, json.loads(content or b"{}")))
            status, answer = answers.pop(0)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = answer

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"http://localhost:{server.server_port}/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        # The user's own settings and accounts of gcloud are not used.
        "CLOUDSDK_CONFIG": str(tmp_path),
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield answers, calls
    server.shutdown()
    server.server_close()


@pytest.fixture
def tpu():
    return Tpu("p", "us-west4-a", "mine")


def error(code, status, message):
    return code, {"error": {"code": code, "status": status, "message": message}}


def test_a_request_is_made_waited_for_and_deleted(service, tpu):
    answers, calls = service
    states = ({"name": REQUEST, "state": {"state": name}} for name in ("PROVISIONING", "ACTIVE"))
    answers += [(200, {**OPERATION, "done": False}), *((200, state) for state in states), (200, OPERATION)]
    options = ["--spot", "--service-account=me@p.iam", "--network=n", "--subnetwork=s", "--internal-ips"]
    tpu.create(tpu.create_command("v5litepod-8", "v2-alpha-tpuv5-lite", options))
    assert list(tpu.wait(60, 0.01)) == ["PROVISIONING"]
    assert tpu.delete(0)
    assert not tpu.may_exist

    method, path, content = calls[0]
    assert (method, path.split("?")[0]) == ("POST", "/v2/projects/p/locations/us-west4-a/queuedResources")
    assert "queuedResourceId=mine" in path
    assert content["spot"] == {}
    (spec,) = content["tpu"]["nodeSpec"]
    assert spec["nodeId"] == "mine"
    assert spec["node"]["acceleratorType"] == "v5litepod-8"
    assert spec["node"]["runtimeVersion"] == "v2-alpha-tpuv5-lite"
    assert spec["node"]["networkConfig"] == {"enableExternalIps": False, "network": "n", "subnetwork": "s"}
    assert spec["node"]["serviceAccount"] == {"email": "me@p.iam"}
    assert calls[-1][:2] == ("DELETE", f"/v2/{REQUEST}?alt=json&force=True")


def test_several_slices_are_one_request_with_a_prefix_for_their_nodes(service):
    answers, calls = service
    tpu = Tpu("p", "us-west4-a", "mine", slices=3, hosts=4)
    addresses = [{"ipAddress": "10.0.0.7"}, {"ipAddress": "10.0.0.8"}]
    answers += [(200, OPERATION), (200, {"name": "mine-0", "state": "READY", "networkEndpoints": addresses})]
    tpu.create(tpu.create_command("v5litepod-16", "v2-alpha-tpuv5-lite", []))
    assert tpu.address() == "10.0.0.7"
    (spec,) = calls[0][2]["tpu"]["nodeSpec"]
    assert spec["multisliceParams"] == {"nodeCount": 3, "nodeIdPrefix": "mine"}
    assert "nodeId" not in spec
    assert calls[1][1].split("?")[0] == "/v2/projects/p/locations/us-west4-a/nodes/mine-0"


def test_a_step_on_all_hosts_is_a_command_of_gcloud(service, tmp_path, monkeypatch):
    """Check that gcloud accepts the flags, requests the node, and prints the command it would run on every worker."""
    tpu = Tpu("p", "us-west4-a", "mine", internal_ip=True, slices=2, hosts=2)
    node = {"name": "mine-1", "state": "READY", "health": "HEALTHY", "apiVersion": "V2"}
    node["networkEndpoints"] = [{"ipAddress": f"10.0.0.{number}"} for number in (7, 8)]
    node["metadata"] = {"ssh-keys": ""}
    answers, _ = service
    answers += [(200, node)] * 9
    server = os.environ["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"]
    monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", f"{server}compute/v1/")
    monkeypatch.setenv("HOME", str(tmp_path))
    key = tmp_path / ".ssh/google_compute_engine"
    key.parent.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(key)], check=True)
    command = [*tpu._ssh("mine-1", "status", *tpu._all_workers), "--plain", "--dry-run"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for address in ("10.0.0.7", "10.0.0.8"):
        assert any(address in line and "tpu_worker.py status" in line for line in result.stdout.splitlines())


def test_refusals_are_told_apart(service, tpu):
    answers, _ = service
    create = tpu.create_command("v6e-8", "v2-alpha-tpuv6e", ["--reserved"])
    answers.append(error(429, "RESOURCE_EXHAUSTED", QUOTA))
    with pytest.raises(
        SubmitError, match=r"TPUV6EPreemptiblePerProjectPerRegionForTPUAPI, Limit: 0 in region us-east5\)"
    ):
        tpu.create(create)
    # Unlike a name in use, an exhausted quota does not prove that nothing was created.
    assert tpu.may_exist
    answers.append(error(409, "ALREADY_EXISTS", f"Resource '{REQUEST}' already exists"))
    with pytest.raises(SubmitError, match="in use by another request"):
        tpu.create(create)
    assert not tpu.may_exist


def test_a_request_that_does_not_exist_counts_as_deleted(service, tpu):
    answers, _ = service
    tpu.may_exist = True
    answers.append(error(404, "NOT_FOUND", f"Resource '{REQUEST}' was not found"))
    assert tpu.delete(0)
    assert not tpu.may_exist


def test_access_is_checked_with_a_read_only_call(service, tpu):
    answers, calls = service
    answers.append((200, {}))
    require_access(tpu)
    (call,) = calls
    assert call[:2] == ("GET", "/v2/projects/p/locations/us-west4-a/queuedResources?alt=json")
    assert not tpu.may_exist


DISABLED = (
    "Cloud TPU API has not been used in project p before or it is disabled. Enable it by visiting https://x/ then."
)
DENIED = (
    "Permission 'tpu.queuedresources.list' denied on resource '//tpu.googleapis.com/projects/p' (or it may not exist)."
)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error(403, "PERMISSION_DENIED", DISABLED), "run gcloud services enable tpu.googleapis.com --project p"),
        (
            error(403, "PERMISSION_DENIED", DENIED),
            "--project p with --zone us-west4-a is not accessible: PERMISSION_DENIED",
        ),
        (error(401, "UNAUTHENTICATED", "Request had invalid authentication credentials."), "run gcloud auth login"),
    ],
)
def test_a_project_that_cannot_be_used_says_why(service, tpu, answer, expected):
    # gcloud sends a request a second time after status 401.
    service[0].extend([answer] * 3)
    with pytest.raises(SubmitError) as caught:
        require_access(tpu)
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_without_an_account_gcloud_is_not_logged_in(service, tpu, monkeypatch):
    monkeypatch.delenv("CLOUDSDK_AUTH_DISABLE_CREDENTIALS")
    with pytest.raises(SubmitError) as caught:
        require_access(tpu)
    expected = "gcloud is not logged in (You do not currently have an active account selected): run gcloud auth login"
    assert str(caught.value) == expected
    assert service[1] == []
