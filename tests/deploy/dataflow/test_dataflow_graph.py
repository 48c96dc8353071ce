"""Test the submitted graphs for faults that break a job on Dataflow only.

Each check is a function that returns the faults of a graph. Each is also tested on a graph that has the fault. What a
worker cannot load is found by test_dataflow.py, whose workers have only the staged files.
"""

import argparse
import base64
import bz2
import pickletools
import re
import zlib
from collections.abc import Iterator

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

from beambert.deploy.dataflow import graph as dataflow_graph
from beambert.deploy.dataflow.flags import FOR_EVERY_JOB
from beambert.pipelines.commands import build
from beambert.pipelines.sources import readers
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS
from tests.deploy.dataflow.gcp_stand_in import BUCKET, stand_in

FLAGS = [
    "--runner=DataflowRunner",
    "--project=my-project",
    "--region=us-central1",
    "--temp_location=gs://bucket/temp",
    "--staging_location=gs://bucket/temp",
    "--job_name=job",
    *FOR_EVERY_JOB,
]
# Flags that add every optional step.
EVERYTHING = [
    "--drop_near_duplicates",
    "--drop_repeated_paragraphs",
    "--identify_language",
    "--language_sampling_exponent=0.7",
    f"--compare_vocab=gs://{BUCKET}/text/vocab.txt",
]

# Every step that groups by key, and why a group always fits a worker's memory. A step that is missing here is a fault.
# To add one, give the reason why its groups are bounded.
_SPREAD = "keys are random and a group's elements are only passed on, never held together"
_PARTITIONS = "GroupByPartition"
_VOCABULARIES, _SHARDS = "WriteVocabulary/LearnVocabularies", "WriteDataset"
BOUNDED_GROUPS = {
    "FileSplits/MaybeReshuffle/Reshuffle/ReshufflePerKey/GroupByKey": _SPREAD,
    "ReadBlocks/Spread/ReshufflePerKey/GroupByKey": _SPREAD,
    "CreateExamplesOfCorpus/Spread/ReshufflePerKey/GroupByKey": _SPREAD,
    f"{_SHARDS}/Overlap/SpreadShards/ReshufflePerKey/GroupByKey": _SPREAD,
    f"{_PARTITIONS}/GroupByBand": "a share of the hashes of all documents: as many shares as partitions",
    f"{_PARTITIONS}/GroupLinks": "streamed: 32 bytes for each near-duplicate and hash group, 300 in memory for each",
    f"{_PARTITIONS}/GroupByParagraph": "a share of the hashes of all paragraphs: as many shares as partitions",
    f"{_PARTITIONS}/PartitionForParagraphs/CoGroupByKeyImpl/GroupByKey": "a partition: 64 MiB of text",
    f"{_PARTITIONS}/Partition/CoGroupByKeyImpl/GroupByKey": "a partition: 64 MiB of text, by their number",
    f"{_VOCABULARIES}/MergeWordCounts/GroupByKey": "combined before it is shuffled: a count for each word of a group",
    f"{_VOCABULARIES}/MergeLanguages/GroupByKey": "combined before it is shuffled: a count for each word of a group",
    f"{_VOCABULARIES}/AddLanguageWords/GroupByKey": "combined before it is shuffled: a number for each language",
    f"{_SHARDS}/SumStatistics/GroupByKey": "combined before it is shuffled: the statistics of a split, of fixed size",
    f"{_SHARDS}/Overlap/Union/CombinePerKey/GroupByKey": "combined before it is shuffled: numbers of sentences",
}
# Every step with side inputs, which it reads completely, and how large they become.
SMALL_SIDE_INPUTS = {
    f"{_VOCABULARIES}/Learn": "2 million words and their counts at most, whatever the corpus",
    f"{_VOCABULARIES}/Measure": "the vocabularies",
    f"{_VOCABULARIES}/WeighLanguages": "a number for each language",
    "WriteVocabulary/Write": "a few numbers for each group of words",
    "Manifest": "a line for each part or unit",
    "CreateExamplesOfCorpus/Examples": "the vocabulary, and the path of the corpus",
    f"{_SHARDS}/Files/ParDo(_WriteShardFiles)": "the vocabulary",
    f"{_SHARDS}/Manifest": "a line for each shard; statistics of fixed size",
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """Graphs of both jobs of a build with every optional step, by the name of the job."""
    with stand_in(tmp_path_factory.mktemp("cloud")) as here, pytest.MonkeyPatch.context() as patch:
        for name, value in here.environment.items():
            patch.setenv(name, value)
        for name, text in {
            "a.txt": "A text.",
            "b.txt": "A text.",
            "c.txt": "A text that is read in ranges.",
            "d.txt": "A text that is read in ranges.",
            "vocab.txt": "\n".join([*SPECIAL_TOKENS, "a"]),
        }.items():
            here.bucket().blob(f"text/{name}").upload_from_string(text)
        patch.setitem(readers._LINE_RANGE_BYTES, "", 20)
        parser = argparse.ArgumentParser()
        build.add_arguments(parser)
        argv = ["--input", f"gs://{BUCKET}/text/?.txt", "--output", f"gs://{BUCKET}/data", "--vocab_size=100"]
        config = build.configure(parser.parse_args([*argv, *EVERYTHING]))
        jobs = dataflow_graph.jobs_of(config)
        return {job.name: dataflow_graph.to_proto(job.build, FLAGS) for job in jobs}


def graph(build) -> beam_runner_api_pb2.Pipeline:
    return dataflow_graph.to_proto(build, FLAGS)


def pardos(proto) -> Iterator[tuple[str, beam_runner_api_pb2.ParDoPayload]]:
    for transform in proto.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            yield transform.unique_name, beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)


def groups(proto) -> Iterator[tuple[str, str]]:
    """Yield the name and the input collection of every step that groups by key."""
    for transform in proto.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.GROUP_BY_KEY.urn:
            (collection,) = transform.inputs.values()
            yield transform.unique_name, collection


def strings(pickled: bytes) -> Iterator[str]:
    """Yield every string in a pickle, including those in byte strings that are pickles themselves."""
    for _, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, str):
            yield argument
        elif isinstance(argument, bytes) and argument[:1] == b"\x80" and argument[-1:] == b".":
            yield from strings(argument)


def unpacked(payload: bytes) -> bytes:
    """Return the pickle that Beam has compressed and encoded in base64."""
    packed = base64.b64decode(payload)
    return bz2.decompress(packed) if packed.startswith(b"BZh") else zlib.decompress(packed)


# Checks


def local_paths(proto) -> list[str]:
    """Return the steps that contain a path of this machine.

    Paths of source files do not count, since they are information only.
    """
    faults = []
    for name, payload in pardos(proto):
        for text in strings(unpacked(payload.do_fn.payload)) if payload.do_fn.payload else ():
            if re.match(r"/[\w.-]+/", text) and not text.endswith(".py"):
                faults.append(f"{name}: {text}")
    return faults


def unbounded_groups(proto) -> list[str]:
    return [name for name, _ in groups(proto) if name not in BOUNDED_GROUPS]


def large_side_inputs(proto) -> list[str]:
    return [name for name, payload in pardos(proto) if payload.side_inputs and name not in SMALL_SIDE_INPUTS]


@pytest.mark.parametrize("check", [local_paths, unbounded_groups, large_side_inputs])
def test_neither_job_has_the_fault(check, everything):
    assert {name: check(proto) for name, proto in everything.items()} == {"corpus": [], "pretraining-data": []}


def test_every_step_of_the_lists_exists(everything):
    """Check that the lists name no step that was removed from the pipelines."""
    made = {name for proto in everything.values() for name, _ in groups(proto)}
    read = {name for proto in everything.values() for name, payload in pardos(proto) if payload.side_inputs}
    assert made == BOUNDED_GROUPS.keys()
    assert read == SMALL_SIDE_INPUTS.keys()


def keyed(pipeline, key):
    return pipeline | beam.Create([1]) | "Key" >> beam.Map(lambda element: (key, element))


@pytest.mark.parametrize(
    ("check", "build"),
    [
        (local_paths, lambda p: p | beam.Create([1]) | beam.Map(lambda element, path: path, "/tmp/vocab.txt")),
        (unbounded_groups, lambda p: keyed(p, 1) | "ByDay" >> beam.GroupByKey()),
        (large_side_inputs, lambda p: keyed(p, 1) | beam.Map(max, beam.pvalue.AsList(p | "All" >> beam.Create([1])))),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_graph_with_the_fault_is_found(check, build):
    assert check(graph(build))
