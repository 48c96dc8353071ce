"""Test the growth of the job sent to a cluster by file and by shard; Dataflow rejects a job of many megabytes."""

import hashlib

import apache_beam as beam

from beambert.pipelines.corpus.corpus_manifest import CorpusReader, CorpusShard
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.examples.work_items import deal_work_items
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.sources.readers import FileSplit, Input
from beambert.pipelines.transforms.corpora import build_corpus
from beambert.pipelines.transforms.examples import build_pretraining_data

OPTIONS = CorpusOptions(do_lower_case=True, vocab_size=8000, character_rules="", num_partitions=16)
NUMBER = 400


def job_bytes(build) -> int:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    build(pipeline)
    return len(pipeline.to_runner_api().SerializeToString())


def corpus_job(number: int) -> int:
    names = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(number)]
    inputs = [
        Input(f"gs://crawl/{name[:14]}.wet.gz", 150_000_000, 1.7e9 + n, "gs://*", 1.0) for n, name in enumerate(names)
    ]
    files = [[each.path, each.bytes, each.changed, each.weight] for each in inputs]
    units = [FileSplit(each, 0, None) for each in inputs]
    return job_bytes(lambda pipeline: build_corpus(pipeline, units, files, OPTIONS, "gs://out"))


def pretraining_data_job(number: int) -> int:
    parts = [
        CorpusShard(
            f"t-{n}",
            "train",
            n,
            number,
            4000,
            500_000 + n,
            28_000_000 + 7 * n,
            hashlib.sha256(str(n).encode()).hexdigest(),
        )
        for n in range(number)
    ]
    options = PretrainingDataOptions()
    passes, reader = deal_work_items(parts, options, 64), CorpusReader("gs://c", "")
    return job_bytes(lambda pipeline: build_pretraining_data(pipeline, reader, passes, options, "gs://out", "work"))


def test_a_file_and_a_shard_add_at_most_100_bytes():
    # At 60 bytes each, the size if there are more of them, the 150,000 shards of 10 TB are 9 MB.
    assert (corpus_job(NUMBER) - corpus_job(1)) / NUMBER < 80
    assert (pretraining_data_job(NUMBER) - pretraining_data_job(1)) / NUMBER < 100


def test_4096_ranges_add_less_than_1_mb():
    def size(count: int) -> int:
        file = Input("gs://bucket/corpus/large.jsonl", 10**12, 1.7e9, "gs://*", 1.0)
        splits = [FileSplit(file, n * 10**8, (n + 1) * 10**8) for n in range(count)]
        return job_bytes(lambda pipeline: build_corpus(pipeline, splits, [], OPTIONS, "gs://out"))

    assert (size(500) - size(100)) / 400 < 200
