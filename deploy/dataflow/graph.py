"""Build the job graphs of a data command without running them, and list the files that would be staged."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

from beambert.common.formatting import counted
from beambert.common.word_rules import WordRules
from beambert.pipelines import dataset
from beambert.pipelines.commands.build import BuildConfig
from beambert.pipelines.commands.corpus_run import CorpusConfig
from beambert.pipelines.commands.pretraining_data_run import ExamplesJob, PretrainingDataConfig, examples_job
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import Corpus, CorpusReader, CorpusShard, corpus_shard_name
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.dataset import SPLITS
from beambert.pipelines.errors import SourceError
from beambert.pipelines.examples.work_items import deal_work_items
from beambert.pipelines.io.atomic_files import write_text
from beambert.pipelines.runner.beam_flags import pipeline_options
from beambert.pipelines.runner.job_output import absolute
from beambert.pipelines.sources.readers import split_inputs
from beambert.pipelines.transforms.corpora import build_corpus
from beambert.pipelines.transforms.examples import build_pretraining_data
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary

_WORKERS = 64
# Configurations of the commands that run on Dataflow.
DataConfig = BuildConfig | CorpusConfig | PretrainingDataConfig


class PlannedJob(NamedTuple):
    """A job that has not been submitted.

    Attributes:
        name: "corpus" or "pretraining-data".
        amount: its input size, for display.
        build: adds its steps to a pipeline.
        prepare: function to call before the submission.
    """

    name: str
    amount: str
    build: Callable[[beam.Pipeline], None]
    prepare: Callable[[], object] = lambda: None


def jobs_of(config: DataConfig) -> list[PlannedJob]:
    """Return the jobs of a data command in order of execution, without reading the input.

    Args:
        config: options of `beambert build`, `corpus` or `pretraining-data`.

    Raises:
        SourceError, DatasetError, VocabularyError: invalid flags.
    """
    if isinstance(config, PretrainingDataConfig):
        source = absolute(config.corpus_directory)
        corpus = corpus_manifest.load(source)
        if corpus is None:
            raise SourceError(
                f"--input {config.corpus_directory} is not a corpus: {corpus_manifest.FILE_NAME} is missing"
            )
        return [_examples_job(corpus, source, absolute(config.output), examples_job(config, corpus))]
    job = config.corpus if isinstance(config, BuildConfig) else config
    output = absolute(job.output)
    splits = split_inputs(job.inputs, job.options.read)
    planned = PlannedJob(
        "corpus",
        f"{counted(len(job.inputs), 'file')} in {counted(len(splits), 'split')}, "
        f"{sum(file.bytes for file in job.inputs) / 1e9:,.2f} GB, to "
        f"{counted(job.options.num_partitions, 'partition')}",
        lambda pipeline: build_corpus(pipeline, splits, job.files, job.options, output),
    )
    if not isinstance(config, BuildConfig):
        return [planned]
    # The corpus that the first job will write, with partitions of equal size.
    corpus = _planned_corpus(job.options, job.text_bytes)
    unknown = Vocabulary(SPECIAL_TOKENS)
    options = dataclasses.replace(config.data.options, **dataclasses.asdict(WordRules.of(job.options)))
    return [planned, _examples_job(corpus, output, output, ExamplesJob(unknown, options, {}))]


def _planned_corpus(options: CorpusOptions, text_bytes: int) -> Corpus:
    size = text_bytes // options.num_partitions
    shards = []
    for split in SPLITS:
        partitions = options.num_partitions_of(split)
        names = [f"corpus/{corpus_shard_name(split, number, options)}.parquet" for number in range(partitions)]
        shards += [CorpusShard(name, split, number, partitions, 0, 0, size, "") for number, name in enumerate(names)]
    return Corpus({}, [], {}, {}, shards, {})


def _examples_job(corpus: Corpus, source: str, output: str, job: ExamplesJob) -> PlannedJob:
    work_items = deal_work_items(corpus.shards, job.options, _WORKERS)
    # A corpus that does not exist yet has no checksum.
    reader = CorpusReader(source, job.recorded.get("corpus_sha256", ""))
    return PlannedJob(
        "pretraining-data",
        f"{counted(len(corpus.shards), 'corpus shard')}, "
        f"{sum(len(item.copies) for item in work_items):,} copies of a shard",
        lambda pipeline: build_pretraining_data(
            pipeline, reader, work_items, job.options, output, f"{output}/unfinished"
        ),
        lambda: write_text(f"{output}/{dataset.VOCAB_FILE_NAME}", job.vocab.to_bytes().decode("utf-8")),
    )


def to_proto(build: Callable[[beam.Pipeline], None], flags: list[str]) -> beam_runner_api_pb2.Pipeline:
    """Return the pipeline that Dataflow would receive; staged files are written but not uploaded.

    Args:
        build: adds the steps to a pipeline.
        flags: Beam's flags.
    """
    pipeline = beam.Pipeline(runner=DataflowRunner(), options=pipeline_options([*flags, "--dry_run=True"]))
    build(pipeline)
    return pipeline.run().job.proto_pipeline


# The specification of a composite of this package begins with its class: that of a function, or its own.
_OWN_COMPOSITES = (b"<_PTransformFnPTransform(", b"<CreateExamplesOfCorpus(")


def steps(proto: beam_runner_api_pb2.Pipeline) -> list[str]:
    """Return the names of the steps in the order of the code; steps that shuffle are marked."""
    (root,) = proto.root_transform_ids
    return list(_steps_below(proto.components.transforms, root))


def _steps_below(transforms: Any, key: str) -> Iterator[str]:
    """Yield the steps of which the composites of this package are made."""
    for name in transforms[key].subtransforms:
        transform = transforms[name]
        if transform.subtransforms and transform.spec.payload.startswith(_OWN_COMPOSITES):
            yield from _steps_below(transforms, name)
        else:
            yield transform.unique_name + ("  (shuffles)" if _shuffles(transforms, name) else "")


def _shuffles(transforms: Any, key: str) -> bool:
    transform = transforms[key]
    return transform.spec.urn == common_urns.primitives.GROUP_BY_KEY.urn or any(
        _shuffles(transforms, key) for key in transform.subtransforms
    )


class Staged(NamedTuple):
    """A staged file: its name at the staging location, its size in bytes and its SHA-256."""

    name: str
    bytes: int
    sha256: str


def staged(proto: beam_runner_api_pb2.Pipeline) -> list[Staged]:
    """Return the staged files of a job: the packages that workers install, and the pipeline."""
    files = []
    for environment in proto.components.environments.values():
        for dependency in environment.dependencies:
            path = Path(beam_runner_api_pb2.ArtifactFilePayload.FromString(dependency.type_payload).path)
            role = beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(dependency.role_payload)
            files.append(_staged(role.staged_name or path.name, path.read_bytes()))
    return [*sorted(set(files)), _staged("pipeline.pb", proto.SerializeToString(deterministic=True))]


def _staged(name: str, content: bytes) -> Staged:
    return Staged(name, len(content), hashlib.sha256(content).hexdigest())


def image_of(proto: beam_runner_api_pb2.Pipeline) -> str:
    """Return the container image of the workers."""
    images = {
        beam_runner_api_pb2.DockerPayload.FromString(environment.payload).container_image
        for environment in proto.components.environments.values()
        if environment.urn == common_urns.environments.DOCKER.urn
    }
    return ", ".join(sorted(images))


def describe(job: PlannedJob, flags: list[str]) -> str:
    """Return a job's graph, workers and staged files as text."""
    proto = to_proto(job.build, flags)
    options = dict(flag.removeprefix("--").split("=", 1) for flag in flags if "=" in flag)
    lines = [
        f"{job.name}: {job.amount}",
        f"  job name    {options['job_name']}",
        f"  workers     {options['machine_type']}, at most {options['max_num_workers']}, {options['disk_size_gb']} GB "
        f"of disk, {'private' if '--no_use_public_ips' in flags else 'public'} IP addresses",
        f"  image       {image_of(proto)}",
        f"  staged to   {options['staging_location']}",
        *(f"    {file.bytes:>12,}  {file.sha256[:12]}  {file.name}" for file in staged(proto)),
        "  steps",
        *(f"    {step}" for step in steps(proto)),
    ]
    return "\n".join(lines)
