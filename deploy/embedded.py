"""Runs a pipeline on this machine's embedded engine, or hands it to the runner that was asked for.

Beam's own default, DirectRunner, first tries a binary that it downloads. Here the default is pinned to the in-process
FnApiRunner, and its worker processes are given the pipeline options, which they otherwise lack.
"""

import errno
import logging
import os
import re
from collections.abc import Callable

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
from apache_beam.runners.portability.portable_runner import JobServiceHandle

from pipelines.dataset import DatasetError
from pipelines.sources import SourceError
from tokenizer.vocabulary import VocabularyError

_USER_ERRORS = {error.__name__: error for error in (SourceError, DatasetError, VocabularyError)}
# How an exception of a worker shows: as the last line of its traceback, with the step's name behind it.
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.*?)(?: \[while running '[^']*'\])*$", re.MULTILINE)
_ERRNO = re.compile(r"\[Errno (\d+)\]")


def pipeline_options(flags: list[str]) -> PipelineOptions:
    """Beam's options from its own flags, with the embedded engine as default.

    `--direct_num_workers N` above 1 means worker processes unless `--direct_running_mode` says otherwise.
    """
    options = PipelineOptions(flags)
    direct = options.view_as(DirectOptions)
    if direct.direct_num_workers != 1 and not any(flag.startswith("--direct_running_mode") for flag in flags):
        direct.direct_running_mode = "multi_processing"
    return options


def is_embedded(options: PipelineOptions) -> bool:
    """Whether the pipeline runs inside this process (and its children) rather than on a cluster."""
    return options.view_as(StandardOptions).runner in (None, "DirectRunner", "FnApiRunner", "EmbeddedRunner")


def run(build: Callable[[beam.Pipeline], None], options: PipelineOptions) -> None:
    """Builds a pipeline, runs it and waits for its end.

    Args:
        build: adds the steps.
        options: from `pipeline_options`.

    Raises:
        SourceError, DatasetError, VocabularyError: raised by a worker, with its message alone.
        RuntimeError: anything else that failed in a worker.
    """
    runner = None
    if is_embedded(options):
        encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
        runner = FnApiRunner(
            provision_info=ExtendedProvisionInfo(beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded))
        )
    # The engine logs a failing worker's traceback before it raises; what the user needs to know is in the exception.
    loggers = [logging.getLogger(name) for name in ("apache_beam", "root")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with beam.Pipeline(runner=runner, options=options) as pipeline:
            build(pipeline)
    except Exception as error:
        raise _as_user_error(error) from error
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _as_user_error(error: Exception) -> Exception:
    """The user's mistake that a worker's error text tells of, or the error itself."""
    for name, message in reversed(_RAISED.findall(f"{type(error).__name__}: {error}")):
        if name in _USER_ERRORS:
            return _USER_ERRORS[name](message)
        number = _ERRNO.search(message)
        if number and int(number.group(1)) in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            return OSError(int(number.group(1)), os.strerror(int(number.group(1))))
    return error
