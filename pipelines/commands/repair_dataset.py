"""Rebuild the missing files of a complete dataset: with the same bytes, or with an error."""

import hashlib
from contextlib import suppress

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from beambert.pipelines import dataset
from beambert.pipelines.corpus.corpus_reader import CorpusReader
from beambert.pipelines.dataset import Dataset
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples.shards import shard_name
from beambert.pipelines.examples.work_items import WorkItem
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io.atomic_files import list_files, read_bytes, write_atomically
from beambert.pipelines.io.versions import versions
from beambert.pipelines.runner import pipeline_runner
from beambert.pipelines.runner.job_output import absolute, delete_work, work_directory
from beambert.pipelines.transforms.examples import CreateExamplesOfCorpus, WriteShardFiles
from beambert.tokenizer.vocabulary import Vocabulary


def restore_vocabulary(manifest: Dataset, vocab: Vocabulary, output: str) -> None:
    """Write vocab.txt again if it differs from the manifest."""
    path = f"{output}/{dataset.VOCAB_FILE_NAME}"
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        content = b""
    if hashlib.sha256(content).hexdigest() != manifest.vocab_sha256:
        with write_atomically(path) as file:
            file.write(vocab.to_bytes())


def missing_shards(manifest: Dataset, output: str) -> frozenset[str]:
    """Return the names of the shards that are missing or differ in size, from one listing of the directory."""
    sizes = {file.path.rsplit("/", 1)[-1]: file.size_in_bytes for file in list_files(f"{output}/shards/*")}
    return frozenset(shard.name for shard in manifest.shards if sizes.get(shard.name.split("/")[-1]) != shard.bytes)


def items_with_missing_shards(
    work_items: list[WorkItem], names: frozenset[str], options: PretrainingDataOptions
) -> list[WorkItem]:
    """Return the work items, reduced to the copies that write a shard of `names`."""
    items = []
    for corpus_shard, copies in work_items:
        missing_copies = tuple(
            copy
            for copy in copies
            if any(shard_name(corpus_shard.place, copy, length, options) in names for length in options.row_lengths)
        )
        if missing_copies:
            items.append(WorkItem(corpus_shard, missing_copies))
    return items


def rebuild_missing_shards(
    manifest: Dataset,
    missing: frozenset[str],
    reader: CorpusReader,
    work_items: list[WorkItem],
    options: PretrainingDataOptions,
    beam_options: PipelineOptions,
    output: str,
) -> None:
    """Rebuild missing shards and move them into place; all other files stay unchanged.

    Args:
        manifest: Manifest of the dataset.
        missing: Names from `missing_shards`.
        reader: Reader of the corpus.
        work_items: Work items from `items_with_missing_shards`.
        options: Options of the dataset.
        beam_options: Beam's options, with the runner.
        output: The dataset directory.

    Raises:
        DatasetError: A rebuilt shard differs from the manifest.
    """
    folder = absolute(output)
    # Into another directory, so that no file is replaced by a different one.
    rebuilt = work_directory(folder, ["repair"])
    vocabulary = f"{folder}/{dataset.VOCAB_FILE_NAME}"

    def build(pipeline: beam.Pipeline) -> None:
        examples = pipeline | CreateExamplesOfCorpus(reader, vocabulary, options, work_items)
        _ = examples | WriteShardFiles(rebuilt, vocabulary)

    # Always from the start: a stopped repair leaves no completion markers.
    delete_work(folder)
    with suppress(BeamIOError, OSError):
        FileSystems.mkdirs(f"{folder}/shards")
    try:
        pipeline_runner.run(build, beam_options, output)
        for shard in manifest.shards:
            if shard.name in missing:
                path = f"{rebuilt}/{shard.name}"
                if hashlib.sha256(read_bytes(path)).hexdigest() != shard.sha256:
                    raise DatasetError(_difference(shard.name, manifest, folder))
                FileSystems.rename([path], [f"{folder}/{shard.name}"])
    finally:
        delete_work(folder)


def _difference(name: str, manifest: Dataset, folder: str) -> str:
    """Return the error about a rebuilt shard that differs from the manifest, with the cause if it is a version."""
    here = versions(manifest.file_format)
    differences = [
        f"{n} {v} recorded, {here.get(n)} installed" for n, v in manifest.versions.items() if here.get(n) != v
    ]
    return (
        f"{name} was rebuilt, but its checksum differs from {folder}/{dataset.FILE_NAME} "
        f"({', '.join(differences) or 'with the same versions'}); delete that directory and build it again"
    )
