"""Test the Kubernetes manifests for Flink for faults that a cluster rejects, or that make it insecure or hang."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from beambert import cli
from beambert.common.command_line.command import Command
from beambert.deploy.flink import command as flink
from beambert.deploy.flink.worker_pool import DEFAULT_PORT
from tests.conftest import ROOT
from tests.deploy.flink.local_cluster import FLINK_VERSION

FOLDER = ROOT / "deploy/kubernetes/flink"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
# Each kind with its required fields.
KINDS = {
    ("flink.apache.org/v1beta1", "FlinkDeployment"): {"image", "flinkVersion", "serviceAccount", "jobManager"},
    ("batch/v1", "Job"): {"template"},
    ("v1", "PersistentVolumeClaim"): {"accessModes", "resources"},
    ("networking.k8s.io/v1", "NetworkPolicy"): {"podSelector", "policyTypes", "ingress"},
}
SECRET = re.compile(r"password|passwd|secret|token|api_?key|private_key|BEGIN [A-Z ]*KEY", re.IGNORECASE)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def walk(value: Any) -> list[dict[str, Any]]:
    """Return all mappings inside a value."""
    if isinstance(value, list):
        return [found for each in value for found in walk(each)]
    if not isinstance(value, dict):
        return []
    return [value, *(found for each in value.values() for found in walk(each))]


def faults(document: dict[str, Any]) -> list[str]:
    """Return the faults of a manifest."""
    kind = document.get("apiVersion"), document.get("kind")
    if kind not in KINDS:
        return [f"kind {kind} is not known"]
    found = [f"spec lacks {field}" for field in sorted(KINDS[kind] - document["spec"].keys())]
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", document["metadata"]["name"]):
        found.append("metadata.name is no DNS label")
    mappings = walk(document["spec"])
    for mapping in mappings:
        image = mapping.get("image")
        # A version or a digest, so that the same image runs later.
        if image and not re.fullmatch(r"[^:@]+(:\d+\.[\w.-]+|@sha256:[0-9a-f]{64})", image):
            found.append(f"image {image} is not pinned")
    pods = [mapping for mapping in mappings if "containers" in mapping]
    containers = [container for pod in pods for container in pod["containers"]]
    if pods and not any(pod.get("securityContext", {}).get("runAsNonRoot") for pod in pods):
        found.append("no pod says runAsNonRoot")
    volumes = {volume["name"] for pod in pods for volume in pod.get("volumes", [])}
    for container in containers:
        name = container["name"]
        if container.get("securityContext", {}).get("allowPrivilegeEscalation") is not False:
            found.append(f"{name} may gain privileges")
        # The operator sets the resources of Flink's own container.
        if name != "flink-main-container":
            resources = container.get("resources", {})
            found += [
                f"{name} has no {each}"
                for each in ("requests", "limits")
                if set(resources.get(each, {})) != {"cpu", "memory"}
            ]
        mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", [])}
        if mounts.get("data") != "/data":
            found.append(f"{name} does not mount the data")
        found += [f"{name} mounts {mount}, which is no volume" for mount in mounts if mount not in volumes]
    texts = [
        f"{key}: {value}"
        for mapping in mappings
        for key, value in mapping.items()
        if not isinstance(value, (dict, list))
    ]
    found += [
        f"looks like a secret: {text}"
        for text in texts
        if SECRET.search(text) and text != "automountServiceAccountToken: False"
    ]
    return found


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_sound(path):
    for document in documents(path):
        assert not faults(document)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("beambert-flink:0.1.0", "beambert-flink:latest", "not pinned"),
        ("beambert-flink:0.1.0", "beambert-flink", "not pinned"),
        ("runAsNonRoot: true\n        runAsUser", "runAsUser", "runAsNonRoot"),
        ("memory: 2Gi", "storage: 2Gi", "worker-pool has no limits"),
        ("mountPath: /data", "mountPath: /mnt", "does not mount the data"),
        ("allowPrivilegeEscalation: false", "privileged: true", "may gain privileges"),
        ("serviceAccount: flink", "podName: flink", "lacks serviceAccount"),
        ("rest: none", "s3.secret-key: AKIA", "looks like a secret"),
    ],
)
def test_the_lint_finds_faults(old, new, fault):
    text = (FOLDER / "cluster.yaml").read_text(encoding="utf-8")
    text = text.replace('taskmanager.numberOfTaskSlots: "1"', 'taskmanager.numberOfTaskSlots: "1"\n    rest: none')
    assert old in text
    found = [found for document in yaml.safe_load_all(text.replace(old, new)) for found in faults(document)]
    assert any(fault in each for each in found), found


def deployment() -> dict[str, Any]:
    return documents(FOLDER / "cluster.yaml")[0]


def submission() -> tuple[str, Command, flink.FlinkOptions]:
    """Return the image of the submission's pod, the command it runs, and its configuration of Flink."""
    pod = documents(FOLDER / "submit.yaml")[0]["spec"]["template"]["spec"]
    words = pod["containers"][0]["command"]
    assert words[:3] == ["beambert", "submit", "flink"]
    split = next(number for number, word in enumerate(words) if word in flink.RUNS)
    config = cli.read_command("submit flink", words[3:split]).configure()
    return pod["containers"][0]["image"], cli.read_command(words[split], words[split + 1 :]), config


def test_the_parts_fit_together():
    cluster = deployment()["spec"]
    image, command, config = submission()
    worker = cluster["taskManager"]["podTemplate"]["spec"]["containers"][0]
    # The bytes of shards depend on package versions, so both pods have the same image.
    assert worker["image"] == image
    port = worker["ports"][0]["containerPort"]
    assert config.environment_type == "EXTERNAL"
    assert config.environment_config == f"localhost:{port}" == f"localhost:{DEFAULT_PORT}"
    assert f"--port={port}" in worker["command"]
    assert worker["command"][:4] == ["python", "-P", "-m", "beambert.deploy.flink.worker_pool"]
    # The service that the operator creates for the REST API.
    assert config.flink_master == f"{deployment()['metadata']['name']}-rest:8081"
    slots = int(cluster["flinkConfiguration"]["taskmanager.numberOfTaskSlots"])
    assert config.parallelism == cluster["taskManager"]["replicas"] * slots
    # A second slot would share the one Python process of its TaskManager.
    assert slots == 1
    assert config.shared_paths
    assert all(path.startswith("/data/") for _, path in command.path_arguments)
    claim = documents(FOLDER / "volume.yaml")[0]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    claims = [m["claimName"] for path in MANIFESTS for d in documents(path) for m in walk(d) if "claimName" in m]
    assert set(claims) == {claim["metadata"]["name"]}
    assert len(claims) == 2
    assert cluster["flinkConfiguration"]["restart-strategy.type"] == "fixed-delay"


def test_the_version_of_flink_is_the_one_that_was_tried():
    cluster = deployment()["spec"]
    assert cluster["image"].startswith(f"flink:{FLINK_VERSION}-")
    assert cluster["flinkVersion"] == f"v{FLINK_VERSION.rsplit('.', 1)[0].replace('.', '_')}"


def test_the_network_policy_admits_the_submission_but_not_every_pod():
    policy = documents(FOLDER / "network-policy.yaml")[0]["spec"]
    assert policy["podSelector"]["matchLabels"]["app"] == deployment()["metadata"]["name"]
    submit = documents(FOLDER / "submit.yaml")[0]["spec"]["template"]["metadata"]["labels"]
    allowed = [
        source.get("podSelector", {}).get("matchLabels") for rule in policy["ingress"] for source in rule["from"]
    ]
    assert submit in allowed
    assert None not in allowed
