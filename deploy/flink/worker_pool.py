"""Python worker pool of a Flink TaskManager; run `python -m beambert.deploy.flink.worker_pool` next to each.

TaskManagers run Java and request Python workers from a pool (Beam's environment_type=EXTERNAL). This pool replaces
Beam's `apache_beam.runners.worker.worker_pool_main`, which has four limitations. It starts the first `python` in PATH.
It never reads the output of a worker, so that a full pipe blocks the worker. It passes no pipeline options. It
identifies workers by id alone, so that two TaskManagers that share a pool stop each other's workers.
"""

import argparse
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from beambert.common.command_line.flags import WholeNumber
from beambert.common.process import python_command, python_environment
from beambert.common.signals import handled_signals

DEFAULT_PORT = 50000
_SECONDS_TO_END = 10.0


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """Service that starts and stops workers, each a process of `beambert.deploy.flink.worker`."""

    def __init__(self) -> None:
        # The key includes the peer, since ids repeat between TaskManagers; each has one connection.
        self._workers: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def StartWorker(
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        """Start a worker, which registers with the runner itself."""
        command = python_command(
            *("-m", "beambert.deploy.flink.worker", f"--id={request.worker_id}"),
            f"--logging_endpoint={request.logging_endpoint.url}",
            f"--provision_endpoint={request.provision_endpoint.url}",
            f"--control_endpoint={request.control_endpoint.url}",
        )
        try:
            # The output goes to the pool's stderr, since a pipe would have to be read.
            # Beam reads WORKER_ID, which its log records contain, when its modules are imported.
            worker = subprocess.Popen(  # noqa: S603
                command,
                env={**python_environment(), "WORKER_ID": request.worker_id},
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
            )
        except OSError as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=f"the worker cannot be started: {error}")
        print(f"worker {request.worker_id} of {context.peer()}: pid {worker.pid}", file=sys.stderr, flush=True)
        with self._lock:
            self._workers = {key: other for key, other in self._workers.items() if other.poll() is None}
            self._workers[context.peer(), request.worker_id] = worker
        threading.Thread(target=worker.wait, daemon=True).start()
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        """Stop a worker, which may have ended already; a worker whose connection is lost ends by itself."""
        with self._lock:
            worker = self._workers.pop((context.peer(), request.worker_id), None)
        if worker:
            _end(worker)
        return beam_fn_api_pb2.StopWorkerResponse()

    def stop_all(self) -> None:
        """Stop all workers."""
        with self._lock:
            workers, self._workers = list(self._workers.values()), {}
        for worker in workers:
            worker.terminate()
        for worker in workers:
            _end(worker)


def _end(worker: "subprocess.Popen[bytes]") -> None:
    worker.terminate()
    try:
        worker.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        worker.kill()


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C, then stop all workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--port", type=WholeNumber(1, 65535), default=DEFAULT_PORT, help="Port of the pool (default: %(default)s)"
    )
    parser.add_argument(
        "--host",
        default="localhost",
        help="Address to listen on (default: %(default)s). Anyone who can connect can start workers.",
    )
    args = parser.parse_args(argv)
    pool = WorkerPool()
    server = grpc.server(ThreadPoolExecutor(max_workers=16), options=[("grpc.so_reuseport", 0)])
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    try:
        server.add_insecure_port(f"{args.host}:{args.port}")
    except RuntimeError:
        print(
            f"{args.host}:{args.port} is in use: another worker pool may be running, or choose another --port",
            file=sys.stderr,
        )
        return 1
    stopped = threading.Event()
    with handled_signals((signal.SIGTERM, signal.SIGINT), lambda *_: stopped.set()):
        server.start()
        print(f"worker pool at {args.host}:{args.port}", file=sys.stderr, flush=True)
        stopped.wait()
        server.stop(grace=None)
        pool.stop_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
