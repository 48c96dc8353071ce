"""Python worker of a Flink TaskManager, started by `beambert.deploy.flink.worker_pool`.

The worker requests the pipeline options from the runner's provisioning service, then runs Beam's SDK harness. Nothing
is staged: beambert is installed where the pool runs.
"""

import argparse
import json
import os
import sys

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc, endpoints_pb2
from apache_beam.runners.worker import sdk_worker_main
from apache_beam.runners.worker.worker_id_interceptor import WorkerIdInterceptor
from google.protobuf import json_format, text_format

_SECONDS_TO_ANSWER = 60
_GONE = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN, grpc.ChannelConnectivity.IDLE)


def environment(
    worker_id: str, logging: str, control: str, info: beam_provision_api_pb2.ProvisionInfo
) -> dict[str, str]:
    """Return the environment variables that configure Beam's `sdk_worker_main`.

    Args:
        worker_id: id that the runner assigned to this worker.
        logging: host:port of the log service.
        control: host:port of the control service.
        info: the runner's description of the job.
    """
    return {
        "WORKER_ID": worker_id,
        "LOGGING_API_SERVICE_DESCRIPTOR": _descriptor(info.logging_endpoint.url or logging),
        "CONTROL_API_SERVICE_DESCRIPTOR": _descriptor(info.control_endpoint.url or control),
        "PIPELINE_OPTIONS": json.dumps(json_format.MessageToDict(info.pipeline_options)),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }


def _descriptor(address: str) -> str:
    return text_format.MessageToString(endpoints_pb2.ApiServiceDescriptor(url=address))


def _end_with_runner(channel: grpc.Channel) -> None:
    """End this process as soon as the connection to the runner is lost.

    A killed TaskManager leaves its worker in the middle of a bundle; another worker repeats the bundle.
    """
    connected = False

    def changed(state: grpc.ChannelConnectivity) -> None:
        nonlocal connected
        if connected and state in _GONE:
            os._exit(1)
        connected = connected or state == grpc.ChannelConnectivity.READY

    channel.subscribe(changed, try_to_connect=True)


def main(argv: list[str] | None = None) -> int:
    """Process bundles until the runner ends the worker."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("id", "logging_endpoint", "provision_endpoint", "control_endpoint"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args(argv)
    # No idle timeout: an idle connection must not look like a lost runner.
    options = [("grpc.client_idle_timeout_ms", 2**31 - 1)]
    channel = grpc.insecure_channel(args.provision_endpoint, options)
    intercepted = grpc.intercept_channel(channel, WorkerIdInterceptor(args.id))
    service = beam_provision_api_pb2_grpc.ProvisionServiceStub(intercepted)
    request = beam_provision_api_pb2.GetProvisionInfoRequest()
    info = service.GetProvisionInfo(request, timeout=_SECONDS_TO_ANSWER, wait_for_ready=True).info
    os.environ.update(environment(args.id, args.logging_endpoint, args.control_endpoint, info))
    _end_with_runner(channel)
    sdk_worker_main.main([])
    return 0


if __name__ == "__main__":
    sys.exit(main())
