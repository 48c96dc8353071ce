"""Start, supervise and end the worker processes of the local runner, and close its services to other processes.

Beam starts such workers through a shell, and waits forever if one of them dies. Here `worker_server.py` forks them, a
thread waits for each, and the runner has its own thread, so that the main thread can end a job whose runner blocks.

Beam opens the ports of its services on all interfaces, and answers every client. The services return the data of a job,
and any file that the user of the job may read.
"""

import itertools
import secrets
import signal
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, endpoints_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    GrpcServer,
    GrpcWorkerHandler,
    StateServicer,
    WorkerHandler,
)
from apache_beam.transforms.environments import SubprocessSDKEnvironment
from google.protobuf import json_format, text_format

from beambert.pipelines.errors import DatasetError
from beambert.pipelines.io import job_progress
from beambert.pipelines.runner import worker_server
from beambert.pipelines.runner.worker_server import WorkerServer

_URN = "beambert:env:worker_process:v1"
# Time for the runner's threads to end after its workers are killed; later ones end with the process.
_SECONDS_TO_END = 2.0
_SECONDS_BETWEEN_SIGNALS = 0.2
# Beam numbers the workers, and every call has the number of its worker. Here the first number is a random secret,
# followed by nine digits that count the workers.
_SECRET = secrets.randbits(128)
_FIRST_NUMBER = _SECRET * 10**9
_jobs: dict[str, "WorkerProcesses"] = {}
_numbers = itertools.count()


class WorkerProcesses:
    """The worker processes of one job. As a context manager, it kills them where the job fails.

    Attributes:
        environment: Beam environment that makes FnApiRunner start its workers with this object.
    """

    def __init__(self) -> None:
        self._name = str(next(_numbers))
        self.environment = _Environment.from_command_string(self._name)
        self._server: WorkerServer | None = None
        self._handlers: list[_Handler] = []
        self._killed = False
        self._closing = False
        self._death: str | None = None
        self._changed = threading.Event()

    def __enter__(self) -> "WorkerProcesses":
        _jobs[self._name] = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error:
            self.kill()
        del _jobs[self._name]

    @property
    def killed(self) -> bool:
        """Return whether the workers were killed because the job failed or was interrupted."""
        return self._killed

    def log(self) -> str:
        """Return the end of the standard error of the workers."""
        return self._server.log() if self._server else ""

    def run(self, run_pipeline: Callable[[], None]) -> None:
        """Run a pipeline in another thread and wait until it ends, or until a worker ends too early.

        Args:
            run_pipeline: Runs a pipeline with `environment`.

        Raises:
            DatasetError: A worker ended before its work was done. The message states the cause and the remedy.
            Exception: The exception of `run_pipeline`.
        """
        failures: list[BaseException] = []
        ended = threading.Event()

        def run_and_record() -> None:
            try:
                run_pipeline()
            except BaseException as error:
                failures.append(error)
            finally:
                ended.set()
                self._changed.set()

        thread = threading.Thread(target=run_and_record, name="runner", daemon=True)
        thread.start()
        succeeded = False
        try:
            # With a timeout: a Ctrl-C just before an unlimited wait would be handled only after the wait.
            while not self._changed.wait(_SECONDS_BETWEEN_SIGNALS):
                pass
            succeeded = ended.is_set() and not failures
        finally:
            if not succeeded:
                self.kill()
                thread.join(_SECONDS_TO_END)
        if not succeeded and self._death:
            raise DatasetError(self._death) from (failures[0] if failures else None)
        if failures:
            raise failures[0]

    def start(self, handler: "_Handler", environment: Mapping[str, str]) -> None:
        """Start a worker in the background.

        Args:
            handler: The runner's end of the connection to the worker.
            environment: Environment variables that configure Beam's `sdk_worker_main`.
        """
        self._handlers.append(handler)
        try:
            self._server = worker_server.running()
        except OSError as error:
            self._record_death(f"worker processes cannot be started ({error.strerror}); reduce --direct_num_workers")
            return
        thread = threading.Thread(target=self._run_worker, args=(environment,), name="run_worker", daemon=True)
        thread.start()
        handler.thread = thread

    def close(self) -> None:
        """Record that the workers will end on their own, because there is no more work."""
        self._closing = True

    def kill(self) -> None:
        """Kill the workers that still run, and do not start more."""
        self._killed = True
        if self._server:
            self._server.kill()
        for handler in self._handlers:
            handler.abort()

    def _run_worker(self, environment: Mapping[str, str]) -> None:
        """Start a worker and wait for its end."""
        server = self._server
        if self._killed or not server:
            return
        code = server.run_worker(environment, job_progress.descriptors())
        if not self._killed and (code or not self._closing):
            self._record_death(_reason(code, self.log()))

    def _record_death(self, death: str) -> None:
        if self._death is None:
            self._death = death
        if not self._closing:
            self._changed.set()


class _Environment(SubprocessSDKEnvironment):
    """Environment of the worker processes of the job whose name is in `command_string`."""

    def to_runner_api_parameter(self, context: object) -> tuple[str, bytes]:  # noqa: ARG002
        return _URN, self.command_string.encode("utf-8")


@WorkerHandler.register_environment(_URN, bytes)
class _Handler(GrpcWorkerHandler):
    """The runner's end of the connection to one worker process."""

    thread: threading.Thread | None = None

    def __init__(
        self, job: bytes, state: StateServicer, provision_info: ExtendedProvisionInfo, grpc_server: GrpcServer
    ) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._workers = _jobs[job.decode("utf-8")]

    def start_worker(self) -> None:
        control = endpoints_pb2.ApiServiceDescriptor(url=self.control_address)
        environment = {
            "WORKER_ID": self.worker_id,
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(control),
            "PIPELINE_OPTIONS": json_format.MessageToJson(self.provision_info.provision_info.pipeline_options),
        }
        self._workers.start(self, environment)

    def stop_worker(self) -> None:
        if self.thread:
            self.thread.join()

    def close(self) -> None:
        """Let the worker end on its own, unless it was killed."""
        if not self._workers.killed:
            self._workers.close()
            super().close()

    def abort(self) -> None:
        """Answer every pending request of a killed worker, so that the runner's threads end."""
        for future in list(self.control_conn._futures_by_id.values()):
            future.set(beam_fn_api_pb2.InstructionResponse(error="worker process killed"))


def _reason(code: int, log: str) -> str:
    """Return one line with the cause of a worker's early end, and the remedy."""
    remedy = "run the same command again to resume"
    if code == -signal.SIGKILL:
        return (
            "a worker process was killed (signal 9), most likely because the machine ran out of memory; reduce "
            f"--direct_num_workers or build a corpus with more --num_partitions, and {remedy}"
        )
    if code < 0:
        return f"a worker process was ended by signal {-code} ({signal.strsignal(-code) or 'unknown'}); {remedy}"
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "no output")
    return f"a worker process exited with code {code} ({last[:200]}); {remedy}"


class _OwnWorkers(grpc.ServerInterceptor):
    """Answer only calls with the number of a worker; for others the service does not exist."""

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        worker = dict(handler_call_details.invocation_metadata).get("worker_id", "")
        return continuation(handler_call_details) if worker.startswith(f"worker_{_SECRET}") else None


class _LocalGrpc:
    """The module `grpc` for Beam's server, which has no option for its addresses."""

    @staticmethod
    def server(*args: Any, **options: Any) -> grpc.Server:
        server = grpc.server(*args, interceptors=[_OwnWorkers()], **options)
        add_port = server.add_insecure_port
        server.add_insecure_port = lambda address: add_port(address.replace("[::]", "localhost"))
        return server


def protect() -> None:
    """Make Beam's local runner listen on the loopback interface only, and answer only its own workers."""
    worker_handlers.WorkerHandler._worker_id_counter = _FIRST_NUMBER
    worker_handlers.grpc = _LocalGrpc
