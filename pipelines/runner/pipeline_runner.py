"""Runs a pipeline on this machine's embedded engine, or hands it to the runner that was asked for.

Beam's own default, DirectRunner, first tries a binary that it downloads. Here the default is pinned to the in-process
FnApiRunner, and its worker processes are given the pipeline options, which they otherwise lack.
"""

import builtins
import dataclasses
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

from beambert_common import file_errors
from beambert_common.process import repeat_lost_interrupt
from beambert_common.signals import handled_signals
from pipelines.errors import DatasetError, SubmitError
from pipelines.runner import beam_flags
from pipelines.runner.worker_processes import WorkerDeath, WorkerProcesses
from pipelines.sources import SourceError
from tokenizer.vocabulary import VocabularyError

_USER_ERRORS = {error.__name__: error for error in (SourceError, DatasetError, VocabularyError)}
# How an exception of a worker shows: as the last line of its traceback, followed by the step's name.
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.*?)(?: \[while running '[^']*'\])*$", re.MULTILINE)
_ENGINE_LOGGERS = ("apache_beam", "grpc")
# The messages for a missing file of the operating system, of Beam's rename and of `writing.read_bytes`.
_MISSING = re.compile(
    r"No such file or directory: '([^']+)'|\('([^']+)', '[^']+'\): (?:OSError\()?FileNotFoundError|^((?:/|\w+://)[^']+)$"
)


def pipeline_options(flags: list[str]) -> PipelineOptions:
    """Return Beam's options from its own flags, with the embedded engine as default.

    `--direct_num_workers N` other than 1 means worker processes unless `--direct_running_mode` says otherwise.

    Raises:
        DatasetError: as of `engine_flags.options_of`.
    """
    return beam_flags.options_of(flags)


def is_embedded(options: PipelineOptions) -> bool:
    """Return whether the pipeline runs inside this process (and its children) rather than on a cluster."""
    return options.view_as(StandardOptions).runner in (None, *beam_flags.EMBEDDED_RUNNERS)


def num_workers(options: PipelineOptions) -> int | None:
    """Return the number of workers of the embedded engine; None where a cluster chooses it."""
    if not is_embedded(options):
        return None
    return options.view_as(DirectOptions).direct_num_workers or os.cpu_count() or 1


def _embedded_runner(options: PipelineOptions, workers: WorkerProcesses | None) -> FnApiRunner:
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    if workers:
        # The engine would start processes of its own.
        options.view_as(DirectOptions).direct_running_mode = "in_memory"
    return FnApiRunner(
        default_environment=workers.environment if workers else None,
        provision_info=ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)),
    )


@dataclasses.dataclass
class _Noise:
    """What the embedded engine would print itself: Ctrl-C, taken for a worker's error, and failures of its threads."""

    interrupted: bool = False
    thread_failures: list[str] = dataclasses.field(default_factory=list)


@contextmanager
def _quiet_engine() -> Iterator[_Noise]:
    """Suppress the tracebacks of the embedded engine while the body runs; the exception contains the same."""
    noise = _Noise()

    def interrupt(number: int, frame: FrameType | None) -> None:
        noise.interrupted = True
        signal.default_int_handler(number, frame)

    def thread_failed(arguments: threading.ExceptHookArgs) -> None:
        noise.thread_failures.append(f"{arguments.exc_type.__name__}: {arguments.exc_value}\n")

    previous = sys.unraisablehook
    threading.excepthook = thread_failed
    sys.unraisablehook = repeat_lost_interrupt
    levels = {name: logging.getLogger(name).level for name in _ENGINE_LOGGERS}
    logger = logging.getLogger("beambert")
    # What readers warn of stands in the summary.
    logger.disabled = True
    for name in _ENGINE_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with handled_signals((signal.SIGINT,), interrupt):
        try:
            yield noise
            # Not after a failure: the engine's threads end, each with its own complaint, when they get to it.
            threading.excepthook = threading.__excepthook__
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
        finally:
            logger.disabled = False
            sys.unraisablehook = previous


def run(build: Callable[[beam.Pipeline], None], options: PipelineOptions, output: str) -> None:
    """Build a pipeline, run it and wait for its end.

    Args:
        build: adds the steps.
        options: from `pipeline_options`, for this pipeline alone: the engine changes them.
        output: the directory that is written to, for messages.

    Raises:
        SourceError, DatasetError, VocabularyError: raised by a worker, with its message alone; DatasetError too where
            a worker could not write or was killed.
        RuntimeError: anything else that failed in a worker.
    """
    if not is_embedded(options):
        try:
            if options.view_as(StandardOptions).runner == "DataflowRunner":
                # A job there is monitored, and canceled on Ctrl-C; its package is there only with [gcp].
                from pipelines.runner import dataflow_job

                dataflow_job.run(build, options)
            else:
                with beam.Pipeline(options=options) as pipeline:
                    build(pipeline)
        except Exception as error:
            known = _as_user_error(error, output, on_cluster=True)
            if known is error and isinstance(error, SubmitError):
                # What a service said begins on a line of its own, for the search for a worker's exception.
                known = SubmitError(str(error).replace("\n", " "))
            elif known is error:
                known = beam_flags.failure(error, options) or error
            raise known from error
        return
    with ExitStack() as stack, _quiet_engine() as noise:
        in_processes = options.view_as(DirectOptions).direct_running_mode == "multi_processing"
        workers = stack.enter_context(WorkerProcesses()) if in_processes else None

        def run_pipeline() -> None:
            with beam.Pipeline(runner=_embedded_runner(options, workers), options=options) as pipeline:
                # It is for steps in other languages, and would be left by a process that is killed.
                Path(pipeline.local_tempdir).rmdir()
                build(pipeline)

        try:
            workers.run(run_pipeline) if workers else run_pipeline()
            # The engine swallows an exception that reaches it while it closes its workers.
            if noise.interrupted:
                raise KeyboardInterrupt
        except Exception as error:
            if noise.interrupted:
                raise KeyboardInterrupt from error
            if isinstance(error, WorkerDeath):
                raise DatasetError(str(error)) from error
            known = _as_user_error(error, output)
            if known is error:
                sys.stderr.write("".join(noise.thread_failures) + (workers.log() if workers else ""))
            raise known from error


def _as_user_error(error: Exception, output: str, on_cluster: bool = False) -> Exception:
    """Return the user error that a worker's error text describes, or the error itself."""
    for name, message in reversed(_RAISED.findall(f"{type(error).__name__}: {error}")):
        if name in _USER_ERRORS:
            return _USER_ERRORS[name](message)
        missing = _MISSING.search(message) if "FileNotFoundError" in f"{name} {message}" else None
        if missing:
            path = next(filter(None, missing.groups()))
            hint = ", or is not on a filesystem that every worker sees" if on_cluster else ""
            return DatasetError(f"{path} was removed while the command ran{hint}; run the same command again")
        if line := _file_error(name, message, output):
            return DatasetError(line)
    return error


def _file_error(name: str, message: str, output: str) -> str | None:
    """Return the line about an error of the file system in a worker, None where it is another error.

    Args:
        name: of the exception's class.
        message: its text.
        output: the directory that is written to.
    """
    kind = getattr(builtins, name, None)
    if (
        "[Errno " not in message
        and name != "BeamIOError"
        and not (isinstance(kind, type) and issubclass(kind, OSError))
    ):
        return None
    number = file_errors.errno_in(message)
    if number is not None and file_errors.cannot_write(number):
        return file_errors.write_line(f"--output {output}", number)
    return file_errors.line_of(OSError(message), f"--output {output}")
