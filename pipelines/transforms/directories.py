"""Check the directories that transforms read and write, when the pipeline runs."""

import hashlib
from contextlib import suppress

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_reader import CorpusReader
from beambert.pipelines.dataset import VOCAB_FILE_NAME, Dataset
from beambert.pipelines.errors import OutputError, SourceError
from beambert.pipelines.io.atomic_files import delete_files, delete_matching, list_files, read_bytes
from beambert.pipelines.io.output_directory import CORPUS_ENTRIES, CORPUS_MANIFEST, DATASET_ENTRIES, listed
from beambert.pipelines.runner.job_output import absolute, entries_in


@beam.ptransform_fn
def RequireNewOutput(elements: PCollection, output: str, overwritten: str = "") -> PCollection:
    """Return the elements, after a check that an output directory is new or empty.

    The check is made when the pipeline runs, so that it can be built again.

    Args:
        elements: any elements.
        output: the directory, on any Beam filesystem.
        overwritten: name of the manifest of an earlier result, which is deleted with its files; "" to delete nothing.

    Raises:
        OutputError: when the pipeline runs: the directory has other files.
    """
    checked = elements.pipeline | "Output" >> beam.Create([output]) | "Check" >> beam.Map(_require_new, overwritten)
    after = beam.Map(lambda element, _: element, AsSingleton(checked)).with_output_types(elements.element_type)
    return elements | "AfterCheck" >> after


def _require_new(output: str, overwritten: str) -> str:
    # Imported late: the commands import this module without using it.
    from beambert.pipelines.dataset_report.dataset_descriptions import foreign_descriptions

    names = {name for name in entries_in(output) if "/" not in name}
    if overwritten in names:
        own = CORPUS_ENTRIES if overwritten == CORPUS_MANIFEST else DATASET_ENTRIES
        names = names.difference(own).union(foreign_descriptions(output), _foreign_vocabulary(output, overwritten))
    if names:
        raise OutputError(
            f"output {output} contains {listed(sorted(names))}; delete it, or give a new or empty directory"
        )
    if overwritten:
        _delete_result(output, overwritten)
    return output


def _read_manifest(output: str, name: str) -> tuple[set[str], str]:
    """Return the names of the shards and the SHA-256 of the vocabulary of a corpus or a dataset."""
    path = f"{output}/{name}"
    if name == CORPUS_MANIFEST:
        corpus = corpus_manifest.parse(read_bytes(path), path)
        return {shard.name for shard in corpus.shards}, corpus.vocab["sha256"]
    dataset = Dataset.from_json(read_bytes(path), path)
    return {shard.name for shard in dataset.shards}, dataset.vocab_sha256


def _foreign_vocabulary(output: str, manifest: str) -> set[str]:
    """Return the name of the vocabulary if it is not the one of the manifest, for example of a user."""
    with suppress(FileNotFoundError):
        if hashlib.sha256(read_bytes(f"{output}/{VOCAB_FILE_NAME}")).hexdigest() != _read_manifest(output, manifest)[1]:
            return {VOCAB_FILE_NAME}
    return set()


def _delete_result(output: str, manifest: str) -> None:
    """Delete the files of a corpus or a dataset, its manifest last, so that a retried bundle continues."""
    from beambert.pipelines.dataset_report import data_report
    from beambert.pipelines.dataset_report.dataset_descriptions import delete_own_descriptions

    with suppress(FileNotFoundError):
        shards, _ = _read_manifest(output, manifest)
        files = [file.path for folder in ("corpus", "shards") for file in list_files(f"{output}/{folder}/*-of-*")]
        delete_files([path for path in files if path.removeprefix(f"{output}/") in shards])
        delete_matching(f"{output}/rejected/*-of-*.jsonl")
        delete_own_descriptions(output)
        for name in (data_report.FILE_NAME, VOCAB_FILE_NAME, manifest):
            delete_matching(f"{output}/{name}")


def open_corpus(directory: str) -> CorpusReader:
    """Return the reader of a corpus.

    Raises:
        SourceError: the directory has no corpus.
    """
    path = absolute(directory)
    if corpus_manifest.load(path) is None:
        raise SourceError(f"{directory} has no {corpus_manifest.FILE_NAME}; give a directory of beambert corpus")
    return CorpusReader.open(path)
