"""Close the services of Beam's local runner to all but its own workers.

Beam opens their ports on all interfaces, and answers every client. The services return the data of a job, and any file
that the user of the job may read.
"""

import secrets
from collections.abc import Callable
from typing import Any

import grpc
from apache_beam.runners.portability.fn_api_runner import worker_handlers

# Beam numbers the workers, and every call has the number of its worker. Here the first number is a random secret,
# followed by nine digits that count the workers.
_SECRET = secrets.randbits(128)
_FIRST_NUMBER = _SECRET * 10**9


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
