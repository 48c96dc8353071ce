"""The manifest and the image for TPUs in Kubernetes, linted: nothing of it has run in a cluster."""

import re

import pytest
import yaml

import beambert
from tests.conftest import ROOT

MANIFEST = ROOT / "deploy/kubernetes/tpu-jobset.yaml"
DOCKERFILE = ROOT / "deploy/images/tpu.Dockerfile"


@pytest.fixture(scope="module")
def documents():
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))}


@pytest.fixture(scope="module")
def pod(documents):
    (job,) = documents["JobSet"]["spec"]["replicatedJobs"]
    assert job["replicas"] == job["template"]["spec"]["parallelism"] == job["template"]["spec"]["completions"] == 1
    return job["template"]["spec"]["template"]["spec"]


def test_versions_and_restarts(documents):
    assert documents["JobSet"]["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert documents["JobSet"]["spec"]["failurePolicy"]["maxRestarts"] > 0


def test_images_are_named_by_digest(pod):
    for container in pod["containers"]:
        assert re.fullmatch(r"[^:@]+@sha256:(DIGEST|[0-9a-f]{64})", container["image"])


def test_nothing_runs_as_root_or_could_become_root(pod):
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    for container in pod["containers"]:
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] is True
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in rights


def test_it_asks_for_the_chips_of_the_topology_and_of_one_host(pod):
    width, height = map(int, pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x"))
    (container,) = pod["containers"]
    chips = container["resources"]["limits"]["google.com/tpu"]
    assert chips == container["resources"]["requests"]["google.com/tpu"] == width * height == 8
    assert container["resources"]["limits"]["memory"]


def test_no_secrets(documents, pod):
    text = MANIFEST.read_text(encoding="utf-8")
    assert not re.search(r"(?i)secret|password|private_key|apikey|token: (?!false)", text)
    assert all("env" not in container for container in pod["containers"])
    assert "Secret" not in documents


def test_the_command_is_one_of_beamberts_and_writes_where_it_lasts(pod, documents):
    (container,) = pod["containers"]
    name, *argv = container["args"]
    config = beambert.read_command(name, argv).configure()
    assert config.strategy == "tpu"
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    kept = {volume["name"]: volume for volume in pod["volumes"]}
    place = mounts[f"/{config.output.split('/')[1]}"]["name"]
    assert kept[place]["persistentVolumeClaim"]["claimName"] == documents["PersistentVolumeClaim"]["metadata"]["name"]
    for data in config.data:
        assert mounts[f"/{data.split('/')[1]}"]["readOnly"] is True
    assert pod["serviceAccountName"] == documents["ServiceAccount"]["metadata"]["name"]


def test_the_image_is_pinned_and_not_root():
    text = DOCKERFILE.read_text(encoding="utf-8")
    for image in re.findall(r"^ARG \w+_IMAGE=(\S+)", text, re.MULTILINE):
        assert re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+-[\w-]+", image)
    assert "--require-hashes" in text
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "10001"
    assert not re.search(r"(?i)password|secret|token=", text)


def test_the_image_sets_what_the_machine_of_a_tpu_gets():
    from deploy.tpu.worker import TPU_VARIABLES

    text = DOCKERFILE.read_text(encoding="utf-8")
    for name, value in TPU_VARIABLES.items():
        assert f"{name}={value}" in text.replace('"', "")
