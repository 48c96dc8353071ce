"""Test a pipeline of a stranger: rows of another schema, own steps and rules between ours, metrics, run twice."""

import dataclasses
import datetime
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pyarrow
import pyarrow.parquet
import pytest
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

from beambert.pipelines.documents import Document
from beambert.pipelines.transforms.corpora import DeduplicateDocuments
from beambert.pipelines.transforms.documents import (
    CleanDocuments,
    PartitionRejected,
    RejectDocuments,
    RejectIf,
    SegmentSentences,
)
from beambert.pipelines.transforms.examples import CreatePretrainingExamples, WriteShards
from beambert.pipelines.transforms.rows import RowsToDocuments
from beambert.pipelines.transforms.vocabulary import LearnWordPieceVocabulary

OPTIONS = {"max_seq_length": 64, "max_predictions_per_seq": 10, "dupe_factor": 2}
WORDS = "cat sat mat while dogs ran birds sang over green hills far away from town".split()  # noqa: SIM905


class UpperTitles(beam.DoFn):
    """Write titles in capitals, and count the documents."""

    SEEN = Metrics.counter("mine", "seen")

    def process(self, document: Document) -> Iterator[Document]:
        """Yield the changed document."""
        self.SEEN.inc()
        yield dataclasses.replace(document, title=document.title.upper())


def is_spam(document: Document) -> bool:
    return "spam" in document.text


def body(number: int) -> str:
    words = [WORDS[(number * 7 + 3 * i * i + i * number) % len(WORDS)] for i in range(19)]
    end = " It is spam." if number % 10 == 0 else ""
    return f"{' '.join(words[:9]).capitalize()} {number}. {' '.join(words[9:]).capitalize()}.{end}"


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    rows = [
        {"article": {"body": body(number), "title": f"t{number}"}, "published": datetime.date(2026, 1, 1 + number % 28)}
        for number in range(200)
    ]
    path = tmp_path_factory.mktemp("rows") / "table.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=30)
    return path


def build(pipeline: beam.Pipeline, table: Path, output: Path) -> None:
    documents = (
        pipeline
        | beam.io.ReadFromParquet(str(table))
        | RowsToDocuments(text="article.body", title="article.title", id="published")
        | CleanDocuments()
        | beam.ParDo(UpperTitles()).with_output_types(Document)
        | SegmentSentences("en")
        | RejectDocuments({"min_words": 3})
        | RejectIf(is_spam)
        | DeduplicateDocuments()
    )
    vocabulary = documents | LearnWordPieceVocabulary(70, num_partitions=2)
    examples = documents | CreatePretrainingExamples(vocabulary, OPTIONS, 2)
    _ = examples | WriteShards(str(output), vocabulary)
    divided = documents | PartitionRejected()
    rules = divided.rejected | beam.Map(lambda document: document.rejected) | beam.combiners.Count.PerElement()
    assert_that(rules | beam.Filter(lambda count: count[0] == "is_spam"), equal_to([("is_spam", 20)]))
    titles = divided.kept | "Titles" >> beam.Map(lambda document: document.title == document.title.upper())
    assert_that(titles | beam.Distinct(), equal_to([True]), "titles")


def digests(output: Path) -> dict[str, str]:
    paths = [*sorted(output.glob("shards/*")), output / "vocab.txt"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_a_pipeline_built_twice_in_one_process(table, tmp_path):
    for number in range(2):
        pipeline = TestPipeline(runner="FnApiRunner")
        build(pipeline, table, tmp_path / str(number))
        result = pipeline.run()
        result.wait_until_finish()
        counters = result.metrics().query(MetricsFilter().with_namespace("mine"))["counters"]
        assert [counter.committed for counter in counters] == [200]
    assert len(digests(tmp_path / "0")) > 3
    assert digests(tmp_path / "0") == digests(tmp_path / "1")
    assert json.loads((tmp_path / "0/dataset.json").read_text())["counts"]["train"]["documents"] > 100


@pytest.mark.skipif(not os.environ.get("BEAMBERT_PRISM"), reason="set BEAMBERT_PRISM to the binary of Prism")
def test_prism_writes_the_same_bytes(table, tmp_path):
    build_and_run = [TestPipeline(runner="FnApiRunner"), beam.Pipeline(options=PipelineOptions(_prism_flags()))]
    for number, pipeline in enumerate(build_and_run):
        build(pipeline, table, tmp_path / str(number))
        pipeline.run().wait_until_finish()
    assert digests(tmp_path / "0") == digests(tmp_path / "1")


def _prism_flags() -> list[str]:
    location = os.environ["BEAMBERT_PRISM"]
    return ["--runner=PrismRunner", f"--prism_location={location}", "--environment_type=LOOPBACK"]
