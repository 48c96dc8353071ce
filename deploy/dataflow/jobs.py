"""The jobs of a data command on Dataflow: run one after the other, or described without being submitted."""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError

from deploy.dataflow import flags as dataflow_flags
from deploy.dataflow import graph, workers
from pipelines.commands.corpus_config import corpus_config
from pipelines.corpus import corpus_manifest
from pipelines.runner import memory
from pipelines.runner.dataflow_job import refusal
from pipelines.runner.job_output import absolute

if TYPE_CHECKING:
    from beambert_common.command import Command


def submit(args: argparse.Namespace, command: "Command") -> int:
    """Runs the command with its pipelines on Dataflow and returns its exit code.

    Args:
        args: of `beambert submit dataflow`, checked.
        command: what to run.

    Raises:
        SubmitError: the service refuses, or a job fails or is cancelled.
        SourceError, DatasetError, VocabularyError: see the command.
    """
    with _prepared(args, command) as flags:
        return command.module.run(command.args, flags)


def describe(args: argparse.Namespace, command: "Command") -> int:
    """Prints what `submit` would do, and does nothing of it; the input is looked up, but not read.

    Args:
        args: of `beambert submit dataflow`, checked.
        command: what would run.

    Raises:
        SubmitError, SourceError, DatasetError, VocabularyError: see `submit`.
    """
    with _prepared(args, command) as flags:
        jobs = graph.jobs_of(command.name, command.args)
        print(f"Would submit {len(jobs)} job(s) to project {args.project}, region {args.region}. Nothing is submitted.")
        for job in jobs:
            print()
            print(graph.describe(job, flags))
    return 0


@contextmanager
def _prepared(args: argparse.Namespace, command: "Command") -> Iterator[list[str]]:
    """Beam's flags for the command's jobs; errors of Google's libraries in the body become errors of ours."""
    with tempfile.TemporaryDirectory(prefix="beambert-dataflow-") as folder:
        # What is looked up before there is a pipeline is looked up in the same project, as the same user.
        access = PipelineOptions(dataflow_flags.beam_flags(args, command, ""))
        FileSystems.set_options(access)
        try:
            machine_type = workers.choose_machine_type(args.worker_machine_type, _bucket_bytes(command))
            yield dataflow_flags.beam_flags(args, command, machine_type) + _code_flags(args, Path(folder))
        except (GoogleAPICallError, GoogleAuthError) as error:
            raise refusal(error, access.view_as(GoogleCloudOptions)) from error


def _bucket_bytes(command: "Command") -> int:
    """About how many bytes of text a bucket of the command holds."""
    if command.name == "pretraining-data":
        corpus = corpus_manifest.load(absolute(command.args.input))
        # The command itself says what is wrong where there is none.
        return memory.largest_text_bytes(corpus) if corpus else 0
    config = corpus_config(command.args)
    return config.text_bytes // config.options.num_buckets


def _code_flags(args: argparse.Namespace, folder: Path) -> list[str]:
    """What tells Beam how workers come by beambert: nothing more where an image has it."""
    if args.sdk_container_image:
        return []
    package = workers.make_source_package(args.setup_file, folder)
    file = folder / "requirements.txt"
    file.write_text("\n".join(workers.requirements()) + "\n", encoding="utf-8")
    # Workers fetch the packages themselves: what pip would download here is for this machine's system.
    return [f"--extra_package={package}", f"--requirements_file={file}", "--requirements_cache=skip"]
