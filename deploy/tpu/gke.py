"""Write the JobSet manifest that runs a training command on TPU nodes of Google Kubernetes Engine.

The JobSet has one Job per slice and one pod per host. Each pod runs `beambert.deploy.tpu.worker`, as TPU VMs do: it
copies the inputs from the bucket, and the first host of the first slice copies the output to it. When a pod fails,
JobSet restarts all pods, and the run resumes from the last checkpoint in the bucket.

GKE sets TPU_WORKER_ID and TPU_WORKER_HOSTNAMES in the pods of such a Job, and the MEGASCALE variables where there are
several slices. Source: "Deploy TPU Multislices in GKE" of cloud.google.com/kubernetes-engine/docs (2025-09).
"""

import json
import secrets
import shlex
from typing import Any

from beambert.common.formatting import counted
from beambert.deploy.tpu.accelerators import TpuType
from beambert.deploy.tpu.job import Job, job_content
from beambert.deploy.tpu.manifest_yaml import to_yaml
from beambert.deploy.tpu.options import TpuOptions
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.io.output_file import OutputFile, check_output_file

_SERVICE_ACCOUNT = "beambert-train"
_LABELS = {"app.kubernetes.io/name": "beambert"}
_JOB, _JOB_FILE = "/job", "/job-config/job.json"
# User of the image.
_USER = 10001
# Time after SIGTERM until a pod is killed, and until the command is, which leaves time for the last upload.
_GRACE_SECONDS, _STOP_SECONDS = 120, 90.0
# Ports between the hosts of a slice, of JAX's coordinator, and between slices.
_PORTS = (8471, 8482, 8081)
# Maximum number of characters of a pod's name.
_POD_NAME = 63
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
    """Return the objects of the manifest: a service account unless one is given, the job's ConfigMap, the JobSet.

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
    content = job_content(job, hosts=accelerator.hosts, slices=config.num_slices, sync_seconds=config.sync_seconds)
    content["stop_seconds"] = _STOP_SECONDS
    account = config.kubernetes_service_account or _SERVICE_ACCOUNT
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(config, f"{name}-job"),
        "data": {"job.json": json.dumps(content, indent=2) + "\n"},
    }
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
                                "spec": _pod(config, accelerator, account, f"{name}-job"),
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
        return [config_map, job_set]
    service_account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(config, account),
        "automountServiceAccountToken": False,
    }
    return [service_account, config_map, job_set]


def _metadata(config: TpuOptions, name: str) -> dict[str, Any]:
    namespace = {"namespace": config.namespace} if config.namespace else {}
    return {"name": name, **namespace, "labels": _LABELS}


def _pod(config: TpuOptions, accelerator: TpuType, account: str, config_map: str) -> dict[str, Any]:
    """Return the specification of the pods."""
    selector = {
        "cloud.google.com/gke-tpu-accelerator": accelerator.generation.gke_accelerator,
        "cloud.google.com/gke-tpu-topology": accelerator.topology,
    }
    pod: dict[str, Any] = {
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        # On SIGTERM the run saves a checkpoint and copies it to the bucket.
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "nodeSelector": selector,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(config, accelerator)],
        "volumes": [
            {"name": "job-config", "configMap": {"name": config_map}},
            {"name": "job", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    if config.spot:
        selector["cloud.google.com/gke-spot"] = "true"
        pod["tolerations"] = [
            {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
        ]
    return pod


def _container(config: TpuOptions, accelerator: TpuType) -> dict[str, Any]:
    return {
        "name": "beambert",
        "image": config.image,
        "command": ["python", "-P", "-m", "beambert.deploy.tpu.worker", "pod", _JOB_FILE],
        "workingDir": _JOB,
        # The root file system is read-only.
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108
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
            {"name": "job-config", "mountPath": "/job-config", "readOnly": True},
            {"name": "job", "mountPath": _JOB},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
    }
