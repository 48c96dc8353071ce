"""Rebuild the missing files of a complete dataset: with the same bytes, or with an error."""

import hashlib
from collections.abc import Iterator
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
from beambert.pipelines.transforms.examples import CreateExamplesOfCorpus, WriteShardFiles, WrittenCopy
from beambert.tokenizer.vocabulary import Vocabulary


class _RestoreShards(beam.DoFn):
    """Move rebuilt shards to the places of missing ones, and yield their names.

    Args:
        rebuilt: The directory of the rebuilt shards.
        manifest: Manifest of the dataset.
        output: Directory of the dataset.
        missing: Names of the missing shards.
    """

    def __init__(self, rebuilt: str, manifest: Dataset, output: str, missing: frozenset[str]) -> None:
        self._rebuilt = rebuilt
        self._recorded = {shard.name: shard for shard in manifest.shards}
        self._versions = manifest.versions
        self._file_format = manifest.file_format
        self._output = output
        self._missing = missing

    def process(self, copy: WrittenCopy) -> Iterator[str]:
        """Move the missing shards of one copy. Raise DatasetError if they differ from the manifest."""
        for shard in copy.result.shards:
            recorded = self._recorded.get(shard.name)
            if recorded is None or shard.name not in self._missing:
                continue
            if shard.sha256 != recorded.sha256:
                here = versions(self._file_format)
                differences = [
                    f"{n} {v} recorded, {here.get(n)} installed" for n, v in self._versions.items() if here.get(n) != v
                ]
                raise DatasetError(
                    f"{shard.name} was rebuilt, but its checksum differs from {self._output}/{dataset.FILE_NAME} "
                    f"({', '.join(differences) or 'with the same versions'}); delete that directory and build it again"
                )
            FileSystems.rename([f"{self._rebuilt}/{shard.name}"], [f"{self._output}/{shard.name}"])
            yield shard.name


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
    work = work_directory(folder, ["repair"])
    vocabulary = f"{folder}/{dataset.VOCAB_FILE_NAME}"

    def build(pipeline: beam.Pipeline) -> None:
        examples = pipeline | CreateExamplesOfCorpus(reader, vocabulary, options, work_items)
        # Into another directory, so that no file is replaced by a different one.
        rebuilt = examples | WriteShardFiles(work, vocabulary)
        _ = rebuilt | "RestoreShards" >> beam.ParDo(_RestoreShards(work, manifest, folder, missing))

    # Always from the start: a stopped repair leaves no completion markers.
    delete_work(folder)
    with suppress(BeamIOError, OSError):
        FileSystems.mkdirs(f"{folder}/shards")
    try:
        pipeline_runner.run(build, beam_options, output)
    finally:
        delete_work(folder)
