"""Runs a pipeline on this machine's embedded engine, or hands it to the runner that was asked for.

Beam's own default, DirectRunner, first tries a binary that it downloads. Here the default is pinned to the in-process
FnApiRunner, and its worker processes are given the pipeline options, which they otherwise lack.
"""

import errno
import logging
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.runner import create_runner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from pipelines.dataset import DatasetError
from pipelines.sources import SourceError
from tokenizer.vocabulary import VocabularyError

_USER_ERRORS = {error.__name__: error for error in (SourceError, DatasetError, VocabularyError)}
# How an exception of a worker shows: as the last line of its traceback, with the step's name behind it.
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.*?)(?: \[while running '[^']*'\])*$", re.MULTILINE)
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS)
_ERRNO = re.compile(r"\[Errno (\d+)\]")


def pipeline_options(flags: list[str]) -> PipelineOptions:
    """Beam's options from its own flags, with the embedded engine as default.

    `--direct_num_workers N` above 1 means worker processes unless `--direct_running_mode` says otherwise.

    Raises:
        DatasetError: `--runner` names none.
    """
    options = PipelineOptions(flags)
    name = options.view_as(StandardOptions).runner
    if name:
        try:
            create_runner(name)
        except (ValueError, ImportError, AttributeError) as error:
            raise DatasetError(f"--runner {name} is not to be had ({error}); leave it out to run here") from error
    direct = options.view_as(DirectOptions)
    if direct.direct_num_workers != 1 and not any(flag.startswith("--direct_running_mode") for flag in flags):
        direct.direct_running_mode = "multi_processing"
    return options


def is_embedded(options: PipelineOptions) -> bool:
    """Whether the pipeline runs inside this process (and its children) rather than on a cluster."""
    return options.view_as(StandardOptions).runner in (None, "DirectRunner", "FnApiRunner", "EmbeddedRunner")


def _embedded_runner(options: PipelineOptions, worker_log: str) -> FnApiRunner:
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    environment = None
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_processing":
        # The engine would start the same command, but let every worker print the traceback of a user's mistake.
        environment = SubprocessSDKEnvironment.from_command_string(
            f"{shlex.quote(sys.executable)} -m apache_beam.runners.worker.sdk_worker_main 2>>{shlex.quote(worker_log)}"
        )
        direct.direct_running_mode = "in_memory"
    return FnApiRunner(
        default_environment=environment,
        provision_info=ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)),
    )


def run(build: Callable[[beam.Pipeline], None], options: PipelineOptions, output: str) -> None:
    """Builds a pipeline, runs it and waits for its end.

    Args:
        build: adds the steps.
        options: from `pipeline_options`.
        output: the directory that is written to, for messages.

    Raises:
        SourceError, DatasetError, VocabularyError: raised by a worker, with its message alone; DatasetError too where
            a worker could not write.
        RuntimeError: anything else that failed in a worker.
    """
    # The engine logs a worker's traceback before it raises; the exception says it all.
    logging.disable(logging.ERROR)
    try:
        with tempfile.NamedTemporaryFile("r", prefix="beambert-workers-", suffix=".log") as log:
            runner = _embedded_runner(options, log.name) if is_embedded(options) else None
            try:
                with beam.Pipeline(runner=runner, options=options) as pipeline:
                    build(pipeline)
            except Exception as error:
                known = _as_user_error(error, output)
                if known is error:
                    sys.stderr.write(log.read())
                raise known from error
    finally:
        logging.disable(logging.NOTSET)


def _as_user_error(error: Exception, output: str) -> Exception:
    """The user's mistake that a worker's error text tells of, or the error itself."""
    for name, message in reversed(_RAISED.findall(f"{type(error).__name__}: {error}")):
        if name in _USER_ERRORS:
            return _USER_ERRORS[name](message)
        number = _ERRNO.search(message)
        if number and int(number.group(1)) in _CANNOT_WRITE:
            reason = os.strerror(int(number.group(1)))
            return DatasetError(f"writing to --output {output} failed: {reason}; mend that and run the same again")
    return error
