"""Run one job of the stand-in for Dataflow from its staged files, as Dataflow workers would.

The argument is a folder with request.json. The program fetches the pipeline and the packages from the staging location
and checks them against the hashes in the request and in the pipeline. It installs beambert next to the folder, and runs
the pipeline on Beam's embedded runner. The worker processes import beambert from there. The program writes result.json.
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
    """Return the content of a staged file after checking its hash."""
    with FileSystems.open(url, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        content = file.read()
    assert hashlib.sha256(content).hexdigest() == sha256, f"{url} is another file than was staged"
    return content


def install(proto: beam_runner_api_pb2.Pipeline, folder: Path) -> Path:
    """Fetch the dependencies of the pipeline's environments, install beambert, and return its installation folder."""
    site = folder / "nothing"
    for environment in proto.components.environments.values():
        assert environment.urn == common_urns.environments.DOCKER.urn, environment.urn
        for dependency in environment.dependencies:
            assert dependency.type_urn == common_urns.artifact_types.URL.urn, dependency.type_urn
            place = beam_runner_api_pb2.ArtifactUrlPayload.FromString(dependency.type_payload)
            role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(dependency.role_payload)
            (folder / role.staged_name).write_bytes(fetch(place.url, place.sha256))
            if role.staged_name.startswith("beambert-"):
                # Jobs with the same package share one installation, which is compiled once.
                site = folder.parent / f"site-{place.sha256}"
                if not site.exists():
                    install_package(folder / role.staged_name, site)
    return site


def install_package(package: Path, site: Path) -> None:
    """Compile and install beambert; this environment already has the other packages of requirements.txt."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(site), str(package)], check=True)


def as_metrics(result) -> list[dict]:
    """Return a run's counters in Dataflow's format: the attempted and the committed value of each."""
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
    """Run the job and write result.json."""
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
    # Workers receive only options that are in the request.
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
