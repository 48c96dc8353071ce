"""Measure the size of jobs and manifests of a large corpus: the steps `graph` and `manifests` of `scale.py`."""

import dataclasses
import hashlib
import json
import os
import time

from apache_beam import Pipeline

from beambert.pipelines.corpus.corpus_manifest import Corpus, CorpusReader, CorpusShard
from beambert.pipelines.corpus.options import CorpusOptions
from beambert.pipelines.dataset import Dataset, Shard
from beambert.pipelines.documents import choose_num_partitions
from beambert.pipelines.examples.work_items import deal_work_items
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.sources.readers import FileSplit, Input
from beambert.pipelines.transforms.corpora import build_corpus
from beambert.pipelines.transforms.examples import build_pretraining_data
from benchmarks.corpus import memory


def measure_graph(options: CorpusOptions) -> None:
    """Print the bytes of the pipelines submitted to a cluster, by number of files and corpus shards.

    Args:
        options: of the corpus job.
    """
    for number in (1, 1000, 10_000):
        names = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(number)]
        inputs = [
            Input(f"gs://bucket/crawl/CC-MAIN-{name[:14]}-{n:05d}.warc.wet.gz", 150_000_000, 1.7e9 + n, "gs://*", 1.0)
            for n, name in enumerate(names)
        ]
        parts = [
            CorpusShard(
                f"corpus/train-{n:05d}-of-{number:05d}.parquet", "train", n, number, 4000, 500_000, 28_000_000 + n, name
            )
            for n, name in enumerate(names)
        ]
        files = [[each.path, each.bytes, each.changed, each.weight] for each in inputs]
        corpus = Pipeline(runner="FnApiRunner")
        splits = [FileSplit(each, 0, None) for each in inputs]
        _ = build_corpus(corpus, splits, files, options, "gs://bucket/out")
        examples = PretrainingDataOptions()
        start = time.process_time()
        passes = deal_work_items(parts, examples, 64)
        seconds = time.process_time() - start
        pretraining = Pipeline(runner="FnApiRunner")
        reader = CorpusReader("gs://bucket/out", "")
        _ = build_pretraining_data(pretraining, reader, passes, examples, "gs://bucket/data", "")
        sizes = [len(each.to_runner_api().SerializeToString()) for each in (corpus, pretraining)]
        print(
            f"{number:>7,} files: corpus job {sizes[0] / 1e6:.2f} MB; {number:>7,} parts: pretraining-data job "
            f"{sizes[1] / 1e6:.2f} MB, its passes dealt in {seconds:.1f} s"
        )


def measure_manifests() -> None:
    """Print the bytes, seconds and memory of corpus.json and dataset.json of 1 TB: 14,902 partitions, 10 copies."""
    partitions = choose_num_partitions(round(1e12))
    digests = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(partitions)]
    parts = [
        CorpusShard(
            f"corpus/train-{n:05d}-of-{partitions:05d}.parquet",
            "train",
            n,
            partitions,
            4000,
            500_000,
            28_000_000 + n,
            name,
        )
        for n, name in enumerate(digests)
    ]
    shards = [
        Shard(
            f"shards/train-copy-{k:03d}-{n:05d}-of-{partitions:05d}.tfrecord",
            "train",
            k,
            145_000,
            145_145_000,
            name,
            128,
            20,
        )
        for k in range(10)
        for n, name in enumerate(digests)
    ]
    dataset = Dataset(
        max_seq_length=128,
        max_predictions_per_seq=20,
        instances_per_row=1,
        features=PretrainingDataOptions().names_of_features(),
        file_format="tfrecord",
        compression="none",
        ragged=False,
        vocab_size=30_000,
        vocab_sha256=digests[0],
        do_lower_case=True,
        options=dataclasses.asdict(PretrainingDataOptions()),
        counts={},
        shards=shards,
        versions={},
    )
    for name, manifest in (
        ("corpus.json", Corpus({}, [], {}, {}, parts, {})),
        ("dataset.json", dataset),
    ):
        text = manifest.to_json()
        before, start = memory(os.getpid()), time.process_time()
        read = json.loads(text) if name == "corpus.json" else Dataset.from_json(text)
        seconds, more = time.process_time() - start, memory(os.getpid()) - before
        print(f"{name}: {len(text) / 1e6:.1f} MB, read in {seconds:.1f} s, {more / 1e6:,.0f} MB of memory")
        del read
