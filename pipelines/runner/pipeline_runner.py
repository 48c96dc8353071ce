"""Run a pipeline on this machine, or on the runner of the flags.

Beam's own default, DirectRunner, first tries a binary that it downloads. Here the default is the in-process
FnApiRunner, and its worker processes receive the pipeline options, which Beam does not pass to them.
"""

import builtins
import dataclasses
import errno
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
from apache_beam.runners.portability.portable_runner import JobServiceHandle

from beambert.common import file_errors
from beambert.common.imports import raising_module
from beambert.common.process import repeat_lost_interrupt
from beambert.common.signals import handled_signals
from beambert.common.terminal import without_middle
from beambert.pipelines.errors import DatasetError, EngineError, SourceError, SubmitError
from beambert.pipelines.runner import beam_flags, worker_processes
from beambert.pipelines.runner.worker_processes import WorkerProcesses
from beambert.tokenizer.vocabulary import VocabularyError

_USER_ERRORS = {error.__name__: error for error in (SourceError, DatasetError, VocabularyError)}
# An exception of a worker: the last line of its traceback, followed by the step's name.
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.*?)(?: \[while running '[^']*'\])*$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
# The environment with Beam may be in a directory named beambert.
_OWN_FRAME = re.compile(r'File "[^"]*beambert/(?![^"]*site-packages)')
_MAX_REASON_CHARACTERS = 200
_RUNNER_LOGGERS = ("apache_beam", "grpc")


def is_embedded(options: PipelineOptions) -> bool:
    """Return whether the pipeline runs in this process and its children rather than on a cluster."""
    return options.view_as(StandardOptions).runner in (None, *beam_flags.EMBEDDED_RUNNERS)


def num_workers(options: PipelineOptions) -> int | None:
    """Return the number of workers of the local runner, or None if a cluster determines it."""
    if not is_embedded(options):
        return None
    return options.view_as(DirectOptions).direct_num_workers or os.cpu_count() or 1


def _embedded_runner(options: PipelineOptions, workers: WorkerProcesses | None) -> FnApiRunner:
    worker_processes.protect()
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    if workers:
        # Otherwise the runner starts processes of its own.
        options.view_as(DirectOptions).direct_running_mode = "in_memory"
    return FnApiRunner(
        default_environment=workers.environment if workers else None,
        provision_info=ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)),
    )


@dataclasses.dataclass
class _RunnerErrors:
    """The errors that the local runner would print itself: that of a signal, and the failures of its threads."""

    signaled: KeyboardInterrupt | SystemExit | None = None
    thread_failures: list[str] = dataclasses.field(default_factory=list)


@contextmanager
def _quiet_runner() -> Iterator[_RunnerErrors]:
    """Suppress the tracebacks of the local runner while the body runs; its exception contains the same text."""
    errors = _RunnerErrors()

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        # A supervisor that signals a process and its group must not interrupt the clean-up.
        if number == signal.SIGINT or not errors.signaled:
            errors.signaled = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
            raise errors.signaled

    def thread_failed(arguments: threading.ExceptHookArgs) -> None:
        errors.thread_failures.append(f"{arguments.exc_type.__name__}: {arguments.exc_value}\n")

    previous = sys.unraisablehook
    threading.excepthook = thread_failed
    sys.unraisablehook = repeat_lost_interrupt
    levels = {name: logging.getLogger(name).level for name in _RUNNER_LOGGERS}
    logger = logging.getLogger("beambert")
    # The summary repeats the warnings of readers.
    logger.disabled = True
    for name in _RUNNER_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with handled_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), interrupt):
        try:
            yield errors
            # Not after a failure: the runner's threads end later, each with an error of its own.
            threading.excepthook = threading.__excepthook__
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
        finally:
            logger.disabled = False
            sys.unraisablehook = previous


def run(build: Callable[[beam.Pipeline], None], options: PipelineOptions, output: str) -> None:
    """Build a pipeline, run it and wait for its end.

    Args:
        build: Adds the steps to a pipeline.
        options: Options from `beam_flags.pipeline_options`, not shared with another pipeline, because the runner
            modifies them.
        output: The output directory, for messages.

    Raises:
        SourceError, DatasetError, VocabularyError: The error of a worker, with its message only. DatasetError also if
            a worker cannot write or was killed.
        RuntimeError: Any other failure of a worker.
    """
    if not is_embedded(options):
        try:
            if options.view_as(StandardOptions).runner == "DataflowRunner":
                # This module monitors the job and cancels it on Ctrl-C; it requires the extra [gcp].
                from beambert.pipelines.runner import dataflow_job

                dataflow_job.run(build, options)
            else:
                with beam.Pipeline(options=options) as pipeline:
                    build(pipeline)
        except Exception as error:
            user_error = _as_user_error(error, output, on_cluster=True)
            if user_error is error and isinstance(error, SubmitError):
                # The message of the service is on a separate line only for the search for a worker's exception.
                user_error = SubmitError(str(error).replace("\n", " "))
            elif user_error is error:
                user_error = _runner_failure(error, options) or error
            raise user_error from error
        return
    with ExitStack() as stack, _quiet_runner() as errors:
        in_processes = options.view_as(DirectOptions).direct_running_mode == "multi_processing"
        workers = stack.enter_context(WorkerProcesses()) if in_processes else None

        def run_pipeline() -> None:
            with beam.Pipeline(runner=_embedded_runner(options, workers), options=options) as pipeline:
                # Only steps in other languages use this directory, and a killed process would leave it.
                Path(pipeline.local_tempdir).rmdir()
                build(pipeline)

        try:
            workers.run(run_pipeline) if workers else run_pipeline()
            # The runner drops an exception that is raised while it closes its workers.
            if errors.signaled:
                raise errors.signaled
        except Exception as error:
            if errors.signaled:
                raise errors.signaled from error
            user_error = _as_user_error(error, output)
            if user_error is error:
                sys.stderr.write("".join(errors.thread_failures) + (workers.log() if workers else ""))
            raise user_error from error


def _is_beam_traceback(text: str) -> bool:
    """Return whether a text has a traceback without code of beambert, such as that of a job server in this process."""
    return _TRACEBACK in text and not _OWN_FRAME.search(text)


def _runner_failure(error: Exception, options: PipelineOptions) -> EngineError | None:
    """Return the error of a runner that fails outside the pipeline: at a download, at its server, at its flags.

    Args:
        error: The exception of Beam.
        options: Beam's options.

    Returns:
        The error with a remedy. None for an error of beambert's own code: one of a worker, whose text contains a
        traceback, or one of this process.
    """
    # The text of a gRPC error is a page long; its details contain the message.
    details = getattr(error, "details", None)
    text = str(details() if callable(details) else error).strip() or type(error).__name__
    if _is_beam_traceback(text):
        text = text.splitlines()[-1]
    elif _TRACEBACK in text or raising_module(error).startswith("beambert."):
        return None
    runner = options.view_as(StandardOptions).runner
    reason = without_middle(" ".join(text.split()), _MAX_REASON_CHARACTERS)
    return EngineError(
        f"--runner {runner} cannot run the pipeline ({reason}); check the flags of the runner, or "
        f"{beam_flags.LOCAL_REMEDY}"
    )


def _as_user_error(error: Exception, output: str, on_cluster: bool = False) -> Exception:
    """Return the user error that a worker's traceback contains, or the error itself."""
    if on_cluster and _is_beam_traceback(str(error)):
        return error
    for name, message in reversed(_RAISED.findall(f"{type(error).__name__}: {error}")):
        if name in _USER_ERRORS:
            return _USER_ERRORS[name](message)
        if line := _file_error(name, message, output, on_cluster):
            return DatasetError(line)
    return error


def _file_error(name: str, message: str, output: str, on_cluster: bool) -> str | None:
    """Return a one-line message for a file system error of a worker, or None for another error.

    Args:
        name: Name of the exception's class.
        message: Text of the exception.
        output: The output directory.
        on_cluster: Whether workers may be on other machines.
    """
    kind = getattr(builtins, name, None)
    if (
        "[Errno " not in message
        and name != "BeamIOError"
        and not (isinstance(kind, type) and issubclass(kind, OSError))
    ):
        return None
    number, path = file_errors.errno_in(message), file_errors.path_in(OSError(message))
    if number == errno.ENOENT and path:
        path = file_errors.without_temporary_suffix(path)
        hint = ", or is not on a filesystem that all workers share" if on_cluster else ""
        return f"{path} was removed while the command ran{hint}; run the same command again"
    if number is not None and file_errors.cannot_write(number):
        return file_errors.write_line(f"--output {output}", number)
    return file_errors.line_of(OSError(message), f"--output {output}")
