"""Test pools of Python workers, with Beam's embedded engine in place of a TaskManager."""

import os
import queue
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from google.protobuf import json_format

from beambert.deploy.flink.job_server import free_port
from beambert.deploy.flink.worker import environment
from beambert.pipelines.runner.flink_rest import listens
from tests.conftest import ROOT

# A pipeline on the embedded engine that requests its workers from a pool, as a TaskManager does.
PIPELINE = """
import os, sys, time
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.transforms.environments import ExternalEnvironment

class Work(beam.DoFn):
    def process(self, element):
        import os, time
        with open(os.environ["WORKER_SAYS"], "w") as file:
            file.write(f"{os.getpid()}.")
        time.sleep(element)

options = PipelineOptions([])
encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
runner = FnApiRunner(
    default_environment=ExternalEnvironment(sys.argv[1]),
    provision_info=ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)),
)
with beam.Pipeline(runner=runner, options=options) as pipeline:
    _ = pipeline | beam.Create([float(sys.argv[2])]) | beam.ParDo(Work())
"""


@pytest.fixture(scope="module")
def says(tmp_path_factory) -> Path:
    """Path of the file to which a worker writes its process ID."""
    return tmp_path_factory.mktemp("pool") / "worker"


@pytest.fixture(scope="module")
def pool(says) -> Iterator[str]:
    """Address of a pool in a separate process."""
    address = f"localhost:{free_port()}"
    # Another python comes first in PATH, as on many machines.
    wrong = says.parent / "bin"
    wrong.mkdir()
    (wrong / "python").write_text("#!/bin/sh\nsleep 1000\n")
    (wrong / "python").chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "beambert.deploy.flink.worker_pool", f"--port={address.rsplit(':', 1)[1]}"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "WORKER_SAYS": str(says), "PATH": f"{wrong}:{os.environ['PATH']}"},
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: listens(address))
    yield address
    process.terminate()
    assert process.wait(30) == 0


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_a_worker_ends_in_the_middle_of_its_work_when_its_runner_is_killed(pool, says):
    runner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PIPELINE), pool, "600"], stderr=subprocess.DEVNULL)
    wait_until(lambda: says.exists() and says.read_text().endswith("."))
    pid = int(says.read_text().rstrip("."))
    assert alive(pid)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    wait_until(lambda: not alive(pid), 20)


class Runner(beam_fn_api_pb2_grpc.BeamFnLoggingServicer, beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    """The services of a runner that a worker calls first; the worker IDs of senders of log records are kept."""

    def __init__(self) -> None:
        self.senders: queue.Queue[str | None] = queue.Queue()

    def GetProvisionInfo(self, request, context):
        return beam_provision_api_pb2.GetProvisionInfoResponse()

    def Logging(self, request_iterator, context):
        self.senders.put(dict(context.invocation_metadata()).get("worker_id"))
        yield beam_fn_api_pb2.LogControl()
        for _ in request_iterator:
            pass


@pytest.mark.slow
def test_log_records_say_which_worker_sends_them(pool):
    """Check the worker ID of log records, since Beam's Prism rejects records without it."""
    runner = Runner()
    server = grpc.server(ThreadPoolExecutor(4))
    beam_fn_api_pb2_grpc.add_BeamFnLoggingServicer_to_server(runner, server)
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(runner, server)
    here = endpoints_pb2.ApiServiceDescriptor(url=f"localhost:{server.add_insecure_port('localhost:0')}")
    request = beam_fn_api_pb2.StartWorkerRequest(
        worker_id="7-3", control_endpoint=here, logging_endpoint=here, provision_endpoint=here
    )
    server.start()
    try:
        with grpc.insecure_channel(pool) as channel:
            stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
            assert not stub.StartWorker(request).error
            assert runner.senders.get(timeout=60) == "7-3"
            stub.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="7-3"))
    finally:
        server.stop(None)


@pytest.mark.slow
def test_two_task_managers_that_number_their_workers_alike(pool):
    """Check that in a shared pool, stopping the worker of one TaskManager does not stop that of the other."""
    nowhere = endpoints_pb2.ApiServiceDescriptor(url="localhost:1")
    request = beam_fn_api_pb2.StartWorkerRequest(
        worker_id="1-1", control_endpoint=nowhere, logging_endpoint=nowhere, provision_endpoint=nowhere
    )

    def workers() -> set[int]:
        found = subprocess.run(["pgrep", "-f", "provision_endpoint=localhost:1$|provision_endpoint=localhost:1 "],
                               capture_output=True, text=True, check=False)  # fmt: skip
        return {int(pid) for pid in found.stdout.split()}

    # Without this option, two channels of one process share a connection.
    own = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(pool, own) as one, grpc.insecure_channel(pool, own) as other:
        stubs = [beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel) for channel in (one, other)]
        assert not stubs[0].StartWorker(request).error
        first = workers()
        assert len(first) == 1
        assert not stubs[1].StartWorker(request).error
        assert len(workers()) == 2
        stubs[1].StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"))
        assert workers() == first
        stubs[1].StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"))
        assert workers() == first
        stubs[0].StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"))
        assert not workers()


@pytest.mark.slow
def test_a_port_that_is_taken(pool):
    result = subprocess.run(
        [sys.executable, "-m", "beambert.deploy.flink.worker_pool", f"--port={pool.rsplit(':', 1)[1]}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )
    assert result.returncode == 1
    assert "is in use" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_environment_of_a_worker():
    info = beam_provision_api_pb2.ProvisionInfo(runner_capabilities=["a", "b"])
    json_format.ParseDict({"beam:option:job_name:v1": 'x"y'}, info.pipeline_options)
    told = environment("1-2", "logs:1", "control:2", info)
    assert told["WORKER_ID"] == "1-2"
    assert told["RUNNER_CAPABILITIES"] == "a b"
    assert told["PIPELINE_OPTIONS"] == '{"beam:option:job_name:v1": "x\\"y"}'
    assert told["LOGGING_API_SERVICE_DESCRIPTOR"].strip() == 'url: "logs:1"'
    assert told["CONTROL_API_SERVICE_DESCRIPTOR"].strip() == 'url: "control:2"'
    # An endpoint in the runner's provision info takes precedence over the argument.
    info.control_endpoint.url = "control:3"
    assert "control:3" in environment("1-2", "logs:1", "control:2", info)["CONTROL_API_SERVICE_DESCRIPTOR"]
