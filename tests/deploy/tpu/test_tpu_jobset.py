"""Test the manifests and the image for TPUs in Kubernetes against the schema of JobSet.

None of them has run in a cluster.
"""

import json
import re
import shlex

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert import cli
from beambert.deploy.tpu.accelerators import GKE, tpu_type
from beambert.deploy.tpu.gke import manifest_text, to_yaml
from beambert.deploy.tpu.job import job_of
from beambert.deploy.tpu.options import TpuOptions
from beambert.pipelines.errors import SubmitError
from tests.conftest import ROOT

MANIFEST = ROOT / "deploy/kubernetes/tpu-jobset.yaml"
DOCKERFILE = ROOT / "deploy/images/tpu.Dockerfile"
IMAGE = "REGION-docker.pkg.dev/PROJECT/beambert/tpu@sha256:DIGEST"
SCHEMA = json.loads((ROOT / "tests/deploy/tpu/jobset_schema.json").read_text(encoding="utf-8"))["schema"]
PRETRAIN = ("pretrain", "--data=gs://b/d", "--output=gs://b/r", "--do_train")


def write(name="run", accelerator="v6e-16", command=PRETRAIN, **flags):
    """Return the documents of a manifest by kind, as a YAML library parses them."""
    config = TpuOptions(accelerator_type=accelerator, engine=GKE, image=IMAGE, dry_run=True, **flags)
    job = job_of(cli.read_command(command[0], [*command[1:]]))
    text = manifest_text(config, tpu_type(accelerator, GKE), job, name)
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def errors_of(value, schema, path="$"):
    """Yield the errors of a value by a schema of Kubernetes, including fields that the schema does not have."""
    if schema.get("x-kubernetes-int-or-string") and isinstance(value, int | str):
        return
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "number": float}
    if not isinstance(value, types[schema["type"]]) or (schema["type"] == "integer" and isinstance(value, bool)):
        yield f"{path}: {value!r} is not of type {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not one of {schema['enum']}"
    if isinstance(value, dict):
        yield from (f"{path}: {name} is missing" for name in schema.get("required", []) if name not in value)
        for name, content in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            # Kubernetes checks the metadata of every object separately.
            if inner is None and not (schema == {"type": "object"} and path.endswith(".metadata")):
                yield f"{path}: {name} does not exist"
            elif inner is not None:
                yield from errors_of(content, inner, f"{path}.{name}")
    if isinstance(value, list):
        for number, content in enumerate(value):
            yield from errors_of(content, schema["items"], f"{path}[{number}]")


def pod_of(documents):
    (job,) = documents["JobSet"]["spec"]["replicatedJobs"]
    return job["template"]["spec"]["template"]["spec"]


# Node label, topology, chips per host and hosts per slice, from the tables of GKE's page "Plan TPUs in GKE";
# test_tpu_accelerators.py tests more types.
@pytest.mark.parametrize(
    ("accelerator", "label", "topology", "chips", "hosts"),
    [
        ("v5litepod-4", "tpu-v5-lite-podslice", "2x2", 4, 1),
        ("v5p-16", "tpu-v5p-slice", "2x2x2", 4, 2),
        ("v6e-8", "tpu-v6e-slice", "2x4", 8, 1),
        ("tpu7x-128", "tpu7x", "4x4x4", 4, 16),
    ],
)
@pytest.mark.parametrize("slices", [1, 3])
def test_a_slice_is_a_job_and_a_host_a_pod(accelerator, label, topology, chips, hosts, slices):
    if slices > 1 and hosts == 1:
        with pytest.raises(SubmitError, match=r"GKE connects only slices of several hosts"):
            write(accelerator=accelerator, num_slices=slices)
        return
    documents = write(accelerator=accelerator, num_slices=slices, max_restarts=7)
    assert list(errors_of(documents["JobSet"], SCHEMA)) == []
    (jobs,) = documents["JobSet"]["spec"]["replicatedJobs"]
    assert jobs["replicas"] == slices
    assert jobs["template"]["spec"]["parallelism"] == jobs["template"]["spec"]["completions"] == hosts
    assert jobs["template"]["spec"]["completionMode"] == "Indexed"
    # A failed pod fails its slice, and JobSet then restarts all slices.
    assert jobs["template"]["spec"]["backoffLimit"] == 0
    assert documents["JobSet"]["spec"]["failurePolicy"] == {"maxRestarts": 7}
    # Through the headless service, the hosts find the coordinator before it is ready.
    assert documents["JobSet"]["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    annotations = documents["JobSet"]["metadata"].get("annotations", {})
    exclusive = annotations.get("alpha.jobset.sigs.k8s.io/exclusive-topology")
    assert exclusive == ("cloud.google.com/gke-nodepool" if hosts > 1 else None)
    pod = pod_of(documents)
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": label,
        "cloud.google.com/gke-tpu-topology": topology,
    }
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    for kind in ("limits", "requests"):
        assert container["resources"][kind]["google.com/tpu"] == chips
    assert container["command"] == ["beambert", *PRETRAIN, "--backend", "jax"]


def test_the_checker_of_the_schema_finds_what_is_wrong():
    documents = write()
    spec = documents["JobSet"]["spec"]
    jobs = spec["replicatedJobs"][0]
    del jobs["name"]
    jobs["template"]["spec"]["parallelism"] = "4"
    jobs["template"]["spec"]["template"]["spec"]["restartPolicies"] = "Never"
    spec["failurePolicy"]["restartStrategy"] = "Sometimes"
    found = list(errors_of(documents["JobSet"], SCHEMA))
    assert [
        any(word in error for error in found) for word in ("name is missing", "parallelism", "restartPolicies")
    ] == [True] * 3
    assert any("Sometimes" in error for error in found)
    assert len(found) == 4


def test_spot_nodes_are_selected_and_tolerated():
    pod = pod_of(write(spot=True))
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert pod["tolerations"] == [
        {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    ]
    assert "tolerations" not in pod_of(write())


def test_a_service_account_and_a_namespace_that_exist_are_used():
    documents = write(kubernetes_service_account="mine", namespace="training")
    assert "ServiceAccount" not in documents
    assert pod_of(documents)["serviceAccountName"] == "mine"
    assert all(document["metadata"]["namespace"] == "training" for document in documents.values())
    own = write()
    assert pod_of(own)["serviceAccountName"] == own["ServiceAccount"]["metadata"]["name"]


def test_nothing_runs_as_root_or_could_become_root():
    pod = pod_of(write())
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


def test_the_pod_writes_where_it_may():
    pod = pod_of(write())
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    for path in (container["workingDir"], variables["HOME"], variables["BEAMBERT_CACHE"]):
        assert volumes[mounts[path]] == {"name": mounts[path], "emptyDir": {}}


def test_arguments_arrive_as_they_are_typed():
    """Kubernetes replaces $(NAME) by a variable, and $$ by $."""
    hostile = "$(HOME) ${x}: $$ '\"\n- a\t\u202eü\U0001f600 |"
    (container,) = pod_of(write(command=(*PRETRAIN, f"--best_metric={hostile}")))["containers"]
    assert not re.search(r"(?<!\$)(\$\$)*\$\(", " ".join(container["command"]))
    assert f"--best_metric={hostile}" in [word.replace("$$", "$") for word in container["command"]]


TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["yes", "null", "1e3", "0x1", "~", "a\n", "\na\n", "a\n b\n"]))
SCALARS = st.one_of(st.booleans(), st.integers(), TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=200)
@given(st.lists(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=3), min_size=1, max_size=2))
def test_yaml_is_read_as_what_was_written(documents):
    assert list(yaml.safe_load_all(to_yaml(documents))) == documents


def test_a_name_too_long_for_pods_is_one_line():
    write(name="n" * 47)
    with pytest.raises(SubmitError, match=r"--name n+ is too long for the names of the pods: use at most 47 char"):
        write(name="n" * 50)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--manifest=m.yaml"], "--image is missing: --engine gke requires it"),
        (["--image=i"], "--manifest is missing"),
        (["--image=i", "--dry_run", "--zone=us-west4-a"], "--zone does not apply to --engine gke"),
        (["--image=i", "--dry_run", "--keep"], "--keep does not apply to --engine gke"),
        (["--image=i", "--manifest=here"], "--manifest here"),
    ],
)
def test_flags_that_do_not_fit_the_engine_are_one_line(flags, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").write_text("mine")
    code = cli.main(["submit", "tpu", "--engine=gke", "--accelerator_type=v6e-16", *flags, *PRETRAIN])
    assert code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert (tmp_path / "here").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_the_manifest_is_written_once_and_the_commands_are_printed(capsys, tmp_path):
    path = tmp_path / "m.yaml"
    flags = ["--engine=gke", "--accelerator_type=v6e-16", "--image=i", "--name=run", f"--manifest={path}"]
    assert cli.main(["submit", "tpu", *flags, *PRETRAIN]) == 0
    assert [document["kind"] for document in yaml.safe_load_all(path.read_text())][-1] == "JobSet"
    assert f"kubectl apply -f {path}" in capsys.readouterr().out


def test_the_manifest_in_the_repository_is_what_its_command_writes(capsys):
    guide = (ROOT / "docs/guides/gke-tpu.md").read_text(encoding="utf-8")
    block = next(text for text in re.findall(r"```sh\n(.*?)```", guide, re.DOTALL) if "--engine gke" in text)
    argv = shlex.split(block.replace("\\\n", " "))
    assert argv[:3] == ["beambert", "submit", "tpu"]
    argv[argv.index("--manifest") : argv.index("--manifest") + 2] = ["--dry_run"]
    assert cli.main(argv[1:]) == 0
    assert capsys.readouterr().out == MANIFEST.read_text(encoding="utf-8")
    assert not re.search(r"(?i)password|private_key|apikey|token: (?!false)", MANIFEST.read_text(encoding="utf-8"))


def test_the_image_is_pinned_and_not_root():
    text = DOCKERFILE.read_text(encoding="utf-8")
    images = re.findall(r"^ARG \w+_IMAGE=(\S+)", text, re.MULTILINE)
    assert len(images) == 1
    for image in images:
        assert re.fullmatch(r"[\w./-]+:\d+\.\d+\.\d+-[\w-]+", image)
    assert "--require-hashes" in text
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "10001"
    assert not re.search(r"(?i)password|secret|token=", text)


def test_the_image_has_the_packages_and_variables_of_the_tpu_vms():
    from beambert.deploy.tpu.job import REQUIREMENTS
    from beambert.deploy.tpu.worker import JAX_VARIABLES

    text = DOCKERFILE.read_text(encoding="utf-8")
    assert f"COPY deploy/tpu/{REQUIREMENTS['jax']} " in text
    for name, value in JAX_VARIABLES.items():
        assert f"{name}={value}" in text.replace('"', "")
