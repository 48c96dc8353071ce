"""Runs one job of the stand-in for Dataflow from what was staged for it, as its workers would.

In the folder given it finds request.json; it fetches the pipeline and the packages from the staging location, checks
them by the hashes that the request and the pipeline name, installs the packages into the folder, and runs the pipeline
on Beam's embedded runner in worker processes that import beambert from there. It leaves result.json.
"""

import hashlib
import json
import shlex
import subprocess
import sys
import traceback
from pathlib import Path

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import beam_provision_api_pb2, beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
from apache_beam.runners.portability.portable_runner import JobServiceHandle


def fetch(url: str, sha256: str) -> bytes:
    """A staged file, if it is what it should be."""
    with FileSystems.open(url, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        content = file.read()
    assert hashlib.sha256(content).hexdigest() == sha256, f"{url} is another file than was staged"
    return content


def install(proto: beam_runner_api_pb2.Pipeline, folder: Path) -> Path:
    """Fetches what the pipeline's environments name and installs beambert; returns where that lies."""
    site = folder / "nothing"
    for environment in proto.components.environments.values():
        assert environment.urn == common_urns.environments.DOCKER.urn, environment.urn
        for dependency in environment.dependencies:
            assert dependency.type_urn == common_urns.artifact_types.URL.urn, dependency.type_urn
            place = beam_runner_api_pb2.ArtifactUrlPayload.FromString(dependency.type_payload)
            role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(dependency.role_payload)
            (folder / role.staged_name).write_bytes(fetch(place.url, place.sha256))
            if role.staged_name.startswith("beambert-"):
                # The same package, compiled for one job, serves the next.
                site = folder.parent / f"site-{place.sha256}"
                if not site.exists():
                    install_package(folder / role.staged_name, site)
    return site


def install_package(package: Path, site: Path) -> None:
    """Compiles and installs beambert; what requirements.txt names beside it is in this environment already."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(site), str(package)], check=True)


def as_metrics(result) -> list[dict]:
    """The counters of a run as Dataflow tells of them: each attempted and committed."""
    metrics = []
    for counter in result.metrics().query()["counters"]:
        for tentative in ("true", None):
            context = {"namespace": counter.key.metric.namespace, "step": counter.key.step}
            if tentative:
                context["tentative"] = tentative
            name = {"origin": "user", "name": counter.key.metric.name, "context": context}
            metrics.append({"name": name, "scalar": counter.committed, "updateTime": "2026-01-01T00:00:00Z"})
    for name, value in {"TotalVcpuTime": 7200, "CurrentVcpuCount": 8, "TotalShuffleDataProcessed": 0.5}.items():
        metrics.append({"name": {"origin": "dataflow/v1b3", "name": name}, "scalar": value})
    return metrics


def main(folder: Path) -> None:
    """Runs the job and writes result.json."""
    environment = json.loads((folder / "request.json").read_text())["environment"]
    asked = environment["sdkPipelineOptions"]["options"]
    proto = beam_runner_api_pb2.Pipeline.FromString(fetch(asked["pipelineUrl"], asked["pipelineProtoHash"]))
    site = install(proto, folder)
    command = [sys.executable, "-m", "apache_beam.runners.worker.sdk_worker_main"]
    path = f"PYTHONPATH={shlex.quote(str(site))}"
    for each in proto.components.environments.values():
        each.urn = python_urns.SUBPROCESS_SDK
        each.payload = f"env {path} {shlex.join(command)}".encode()
        del each.dependencies[:]
    # Workers see the options that the request has for them, and nothing else.
    options = PipelineOptions.from_dictionary({"project": asked["project"], "temp_location": asked["temp_location"]})
    options.view_as(DirectOptions).direct_num_workers = 2
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    info = ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded))
    result = FnApiRunner(provision_info=info).run_via_runner_api(proto, options)
    result.wait_until_finish()
    (folder / "result.json").write_text(json.dumps({"metrics": as_metrics(result)}))


if __name__ == "__main__":
    here = Path(sys.argv[1])
    try:
        main(here)
    except Exception:
        (here / "result.json").write_text(json.dumps({"error": traceback.format_exc()}))
