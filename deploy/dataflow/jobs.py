"""Run the jobs of a data command on Dataflow one after the other, or describe them without submitting."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError

from beambert.common.formatting import counted
from beambert.deploy.dataflow import flags as dataflow_flags
from beambert.deploy.dataflow import graph, workers
from beambert.deploy.dataflow.options import DataflowOptions
from beambert.pipelines.commands.build import BuildConfig
from beambert.pipelines.commands.corpus_run import CorpusConfig
from beambert.pipelines.commands.pretraining_data_run import PretrainingDataConfig
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.runner import memory
from beambert.pipelines.runner.dataflow_job import refusal
from beambert.pipelines.runner.job_output import absolute

if TYPE_CHECKING:
    from beambert.common.command_line.command import Command


def submit(config: DataflowOptions, command: "Command") -> int:
    """Run the command with its pipelines on Dataflow and return its exit code.

    Args:
        config: options of `beambert submit dataflow`.
        command: the data command to run.

    Raises:
        SubmitError: Dataflow rejects a request, or a job fails or is canceled.
        SourceError, DatasetError, VocabularyError: raised by the command.
    """
    with _prepared(config, command) as (job, flags):
        return command.module.run(job, flags)


def describe(config: DataflowOptions, command: "Command") -> int:
    """Print the jobs that `submit` would run; the input is listed but not read.

    Args:
        config: options of `beambert submit dataflow`.
        command: the data command to describe.

    Raises:
        SubmitError, SourceError, DatasetError, VocabularyError: as `submit`.
    """
    with _prepared(config, command) as (job_config, flags):
        jobs = graph.jobs_of(job_config)
        print(
            f"Dry run: {counted(len(jobs), 'job')} for project {config.project}, region {config.region}. Nothing is "
            "submitted."
        )
        for job in jobs:
            print()
            print(graph.describe(job, flags))
    return 0


@contextmanager
def _prepared(config: DataflowOptions, command: "Command") -> Iterator[tuple[graph.DataConfig, list[str]]]:
    """Yield the configuration and Beam's flags; convert errors of Google's libraries to SubmitError."""
    with tempfile.TemporaryDirectory(prefix="beambert-dataflow-") as folder:
        # File look-ups before the pipeline exists use the same project and credentials.
        access = PipelineOptions(dataflow_flags.beam_flags(config, command, ""))
        FileSystems.set_options(access)
        try:
            job = command.configure()
            machine_type = workers.choose_machine_type(config.worker_machine_type, _partition_bytes(job))
            flags = dataflow_flags.beam_flags(config, command, machine_type)
            yield job, flags + _code_flags(config, _extras(job), Path(folder))
        except (GoogleAPICallError, GoogleAuthError) as error:
            raise refusal(error, access.view_as(GoogleCloudOptions)) from error


def _partition_bytes(job: graph.DataConfig) -> int:
    """Return the approximate bytes of text in a partition."""
    if isinstance(job, PretrainingDataConfig):
        corpus = corpus_manifest.load(absolute(job.corpus_directory))
        # The command itself reports a missing corpus.
        return memory.largest_text_bytes(corpus) if corpus else 0
    config = job.corpus if isinstance(job, BuildConfig) else job
    return config.text_bytes // config.options.num_partitions


def _extras(job: graph.DataConfig) -> list[str]:
    """Return the extras that the workers of this job need beside those of all jobs."""
    extras: list[str] = []
    if isinstance(job, BuildConfig | CorpusConfig):
        config = job.corpus if isinstance(job, BuildConfig) else job
        extractor = config.options.read.wikitext_extractor
        # The extra has the name of the extractor; beambert's own needs none.
        if extractor != ReadOptions.wikitext_extractor:
            extras.append(extractor)
    if isinstance(job, BuildConfig | PretrainingDataConfig):
        data = job.data if isinstance(job, BuildConfig) else job
        if data.options.format == "array_record":
            extras.append("array-record")
    return extras


def _code_flags(config: DataflowOptions, extras: list[str], folder: Path) -> list[str]:
    """Return the flags that install beambert on the workers; none where an image contains it."""
    if config.sdk_container_image:
        return []
    package = workers.make_source_package(config.setup_file, folder)
    file = folder / "requirements.txt"
    file.write_text("\n".join(workers.requirements(extras)) + "\n", encoding="utf-8")
    # Workers download the packages themselves, since pip here would download those of this operating system.
    return [f"--extra_package={package}", f"--requirements_file={file}", "--requirements_cache=skip"]
