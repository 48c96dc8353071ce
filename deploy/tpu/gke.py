"""Write the JobSet manifest that runs a training command on TPU nodes of Google Kubernetes Engine.

The JobSet has one Job per slice and one pod per host. Each pod runs the command, which reads its inputs from the
bucket. The first host of the first slice writes the output to it. When a pod fails, JobSet restarts all pods, and the
run resumes from the last checkpoint in the bucket.

GKE sets TPU_WORKER_ID and TPU_WORKER_HOSTNAMES in the pods of such a Job, and the MEGASCALE variables where there are
several slices. Source: "Deploy TPU Multislices in GKE" of cloud.google.com/kubernetes-engine/docs (2025-09).
"""

import json
import re
import secrets
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beambert.common.formatting import counted
from beambert.deploy.tpu.accelerators import TpuType
from beambert.deploy.tpu.job import Job
from beambert.deploy.tpu.options import TpuOptions
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.io.output_file import OutputFile, check_output_file

_SERVICE_ACCOUNT = "beambert-train"
_LABELS = {"app.kubernetes.io/name": "beambert"}
# Directory for copies of the data and the output, on the disk of the node.
_CACHE = "/cache"
# User of the image.
_USER = 10001
# Time after SIGTERM to save a checkpoint and upload it, until the pod is killed.
_GRACE_SECONDS = 120
# Ports between the hosts of a slice, of JAX's coordinator, and between slices.
_PORTS = (8471, 8482, 8081)
# Maximum number of characters of a pod's name.
_POD_NAME = 63
# Strings that YAML 1.1 and 1.2 read as strings without quotes.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@-]*")
_NOT_STRINGS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
_HEADER = """# Written by `beambert submit tpu --engine gke`: {hosts}, {chips} of {type}.
# docs/guides/gke-tpu.md lists the prerequisites. This manifest was never applied to a cluster by the project.
"""


def write_manifest(config: TpuOptions, accelerator: TpuType, job: Job) -> int:
    """Write or print the manifest and print the commands that apply it; return 0.

    Raises:
        SubmitError: the number of slices or the name is invalid.
        OutputFileError: the file exists or cannot be written.
    """
    name = config.name or f"beambert-{secrets.token_hex(4)}"
    text = manifest_text(config, accelerator, job, name)
    if config.dry_run:
        print(text, end="", flush=True)
        return 0
    path = str(config.manifest)
    check_output_file("--manifest", path, overwrite=None)
    with OutputFile("--manifest", path) as file, file.path.open("a", encoding="utf-8") as stream:
        stream.write(text)
    namespace = f" --namespace {config.namespace}" if config.namespace else ""
    print(f"{path} is written. Start the training, follow the log of the chief, and delete the JobSet:")
    print(f"  kubectl apply -f {shlex.quote(str(path))}")
    print(f"  kubectl logs -f{namespace} job/{name}-slice-0")
    print(f"  kubectl delete -f {shlex.quote(str(path))}", flush=True)
    return 0


def manifest_text(config: TpuOptions, accelerator: TpuType, job: Job, name: str) -> str:
    """Return the manifest as YAML."""
    header = _HEADER.format(
        hosts=counted(config.num_slices * accelerator.hosts, "host"),
        chips=counted(config.num_slices * accelerator.chips, "chip"),
        type=accelerator.name,
    )
    return header + to_yaml(objects(config, accelerator, job, name))


def objects(config: TpuOptions, accelerator: TpuType, job: Job, name: str) -> list[dict[str, Any]]:
    """Return the objects of the manifest: a service account unless one is given, and the JobSet.

    Raises:
        SubmitError: the number of slices or the name is invalid.
    """
    if config.num_slices > 1 and accelerator.hosts == 1:
        raise SubmitError(
            f"--num_slices {config.num_slices} with --accelerator_type {accelerator.name}: GKE connects only slices of "
            "several hosts; use a larger type"
        )
    pod_name = f"{name}-slice-{config.num_slices - 1}-{accelerator.hosts - 1}-xxxxx"
    if len(pod_name) > _POD_NAME:
        raise SubmitError(
            f"--name {name} is too long for the names of the pods: use at most {len(name) - len(pod_name) + _POD_NAME} "
            "characters"
        )
    account = config.kubernetes_service_account or _SERVICE_ACCOUNT
    job_set: dict[str, Any] = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(config, name),
        "spec": {
            # A headless service, by which the hosts find the coordinator, also before they are ready.
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": config.max_restarts},
            "replicatedJobs": [
                {
                    "name": "slice",
                    "replicas": config.num_slices,
                    "template": {
                        "spec": {
                            "parallelism": accelerator.hosts,
                            "completions": accelerator.hosts,
                            "completionMode": "Indexed",
                            "backoffLimit": 0,
                            "template": {
                                "metadata": {"labels": _LABELS},
                                "spec": _pod(config, accelerator, account, job),
                            },
                        }
                    },
                }
            ],
        },
    }
    if accelerator.hosts > 1:
        # All hosts of a slice are in one node pool.
        job_set["metadata"]["annotations"] = {
            "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"
        }
    if config.kubernetes_service_account:
        return [job_set]
    service_account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(config, account),
        "automountServiceAccountToken": False,
    }
    return [service_account, job_set]


def _metadata(config: TpuOptions, name: str) -> dict[str, Any]:
    namespace = {"namespace": config.namespace} if config.namespace else {}
    return {"name": name, **namespace, "labels": _LABELS}


def _pod(config: TpuOptions, accelerator: TpuType, account: str, job: Job) -> dict[str, Any]:
    """Return the specification of the pods."""
    selector = {
        "cloud.google.com/gke-tpu-accelerator": accelerator.generation.gke_accelerator,
        "cloud.google.com/gke-tpu-topology": accelerator.topology,
    }
    pod: dict[str, Any] = {
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "nodeSelector": selector,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(config, accelerator, job)],
        "volumes": [
            {"name": "cache", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    if config.spot:
        selector["cloud.google.com/gke-spot"] = "true"
        pod["tolerations"] = [
            {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
        ]
    return pod


def _container(config: TpuOptions, accelerator: TpuType, job: Job) -> dict[str, Any]:
    return {
        "name": "beambert",
        "image": config.image,
        # Kubernetes replaces $(NAME) in a command, and $$ by $.
        "command": ["beambert", *(word.replace("$", "$$") for word in job.argv)],
        "workingDir": _CACHE,
        # The root file system is read-only.
        "env": [{"name": "BEAMBERT_CACHE", "value": _CACHE}, {"name": "HOME", "value": "/tmp"}],  # noqa: S108
        "ports": [{"containerPort": port} for port in _PORTS],
        "resources": {
            "requests": {"google.com/tpu": accelerator.chips_per_host, "cpu": "8", "memory": "32Gi"},
            "limits": {"google.com/tpu": accelerator.chips_per_host, "memory": "128Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "cache", "mountPath": _CACHE},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }


def to_yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return objects as the documents of a YAML stream."""
    return "---\n".join("".join(f"{line}\n" for line in _block(document)) for document in documents)


def _block(value: Any) -> Iterator[str]:
    """Yield the lines of a mapping or a list that is not empty."""
    if isinstance(value, Mapping):
        for key, content in value.items():
            yield from _entry(f"{_scalar(key)}:", content)
    else:
        for content in value:
            yield from _item(content)


def _entry(key: str, content: Any) -> Iterator[str]:
    if isinstance(content, Mapping | list) and content:
        yield key
        yield from (f"  {line}" for line in _block(content))
    else:
        yield f"{key} {_scalar(content)}"


def _item(content: Any) -> Iterator[str]:
    if isinstance(content, Mapping | list) and content:
        first, *rest = _block(content)
        yield f"- {first}"
        yield from (f"  {line}" for line in rest)
    else:
        yield f"- {_scalar(content)}"


def _scalar(value: Any) -> str:
    """Return a scalar or an empty collection."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_STRINGS:
        return value
    return f'"{"".join(map(_quoted, value))}"'


def _quoted(character: str) -> str:
    """Return a character of a string in double quotes; unlike JSON, YAML does not join surrogates."""
    code = ord(character)
    if character in '"\\':
        return f"\\{character}"
    if 0x20 <= code < 0x7F:
        return character
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
