"""Check the directories that transforms read and write, when the pipeline runs."""

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from beambert.common.formatting import join_first
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.corpus_manifest import CorpusReader
from beambert.pipelines.errors import OutputError, SourceError
from beambert.pipelines.runner.job_output import absolute, entries_in


@beam.ptransform_fn
def RequireNewOutput(elements: PCollection, output: str) -> PCollection:
    """Return the elements, after a check that an output directory is new or empty.

    The check is made when the pipeline runs, so that it can be built again.

    Raises:
        OutputError: when the pipeline runs: the directory has files.
    """
    checked = elements.pipeline | "Output" >> beam.Create([output]) | "Check" >> beam.Map(_require_new)
    after = beam.Map(lambda element, _: element, AsSingleton(checked)).with_output_types(elements.element_type)
    return elements | "AfterCheck" >> after


def _require_new(output: str) -> str:
    if names := sorted(name for name in entries_in(output) if "/" not in name):
        raise OutputError(f"output {output} contains {join_first(names)}; delete it, or give a new or empty directory")
    return output


def open_corpus(directory: str) -> CorpusReader:
    """Return the reader of a corpus.

    Raises:
        SourceError: the directory has no corpus.
    """
    path = absolute(directory)
    if corpus_manifest.load(path) is None:
        raise SourceError(f"{directory} has no {corpus_manifest.FILE_NAME}; give a directory of beambert corpus")
    return CorpusReader.open(path)
