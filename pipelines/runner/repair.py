"""Makes a finished dataset whole again that has lost files: the same bytes, or an error."""

import hashlib
from contextlib import suppress

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import dataset
from pipelines.build_pretraining_data import rebuild_shards
from pipelines.corpus.corpus_reader import CorpusReader
from pipelines.dataset import Dataset
from pipelines.examples.make_shards import current_name, shard_name
from pipelines.examples.work_items import WorkItem
from pipelines.instances.options import PretrainingDataOptions
from pipelines.io.atomic_files import read_bytes, write_atomically
from pipelines.runner import pipeline_runner
from pipelines.runner.job_output import absolute, delete_work, work_directory
from tokenizer.vocabulary import Vocabulary


def restore_vocabulary(manifest: Dataset, vocab: Vocabulary, output: str) -> None:
    """Writes vocab.txt again if it is not what the manifest says."""
    path = f"{output}/{dataset.VOCAB_FILE_NAME}"
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        content = b""
    if hashlib.sha256(content).hexdigest() != manifest.vocab_sha256:
        with write_atomically(path) as file:
            file.write(vocab.to_bytes())


def missing_shards(manifest: Dataset, output: str) -> frozenset[str]:
    """Names of the shards that are not there or have another size than the manifest says; one look at the folder."""
    there = {
        file.path.rsplit("/", 1)[-1]: file.size_in_bytes
        for file in FileSystems.match([f"{output}/shards/*"])[0].metadata_list
    }
    return frozenset(shard.name for shard in manifest.shards if there.get(shard.name.split("/")[-1]) != shard.bytes)


def passes_of(passes: list[WorkItem], names: frozenset[str], options: PretrainingDataOptions) -> list[WorkItem]:
    """Those passes that write a shard of `names`."""
    found = []
    names = frozenset(map(current_name, names))
    for corpus_shard, copies in passes:
        some = tuple(
            copy
            for copy in copies
            if any(shard_name(corpus_shard, copy, length, options) in names for length in options.row_lengths)
        )
        if some:
            found.append(WorkItem(corpus_shard, some))
    return found


def make_again(
    manifest: Dataset,
    missing: frozenset[str],
    reader: CorpusReader,
    passes: list[WorkItem],
    options: PretrainingDataOptions,
    beam_options: PipelineOptions,
    output: str,
) -> None:
    """Makes missing shards again and moves them into place; leaves all else as it is.

    Args:
        manifest: what the dataset is to be again.
        missing: from `missing_shards`.
        reader: of the corpus that it was made from.
        passes: from `passes_of`.
        options: what it was made with.
        beam_options: for the engine.
        output: the dataset directory.

    Raises:
        DatasetError: a shard comes out otherwise than it was.
    """
    folder = absolute(output)
    work = work_directory(folder, ["repair"])
    # Always from the start: a repair that was stopped has noted nothing.
    delete_work(folder)
    with suppress(BeamIOError, OSError):
        FileSystems.mkdirs(f"{folder}/shards")
    try:
        pipeline_runner.run(
            lambda pipeline: rebuild_shards(pipeline, reader, passes, options, manifest, folder, missing, work),
            beam_options,
            output,
        )
    finally:
        delete_work(folder)
