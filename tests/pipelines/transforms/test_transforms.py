"""Test pipelines of public transforms: they write the files of the commands, and errors are one line."""

import dataclasses
import doctest
import functools
import itertools
import json
import math
import operator
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.coders import registry
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given
from pyarrow import parquet

from beambert import cli
from beambert.pipelines import dataset, transforms
from beambert.pipelines.cleaning.rules import BOILERPLATE, DOCUMENT_RULES, CleaningOptions
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.corpus.blocks import to_block
from beambert.pipelines.corpus.document_steps import (
    clean_document,
    clean_with,
    decontaminate,
    identify_language,
    reject_document,
    reject_if,
    segment_document,
    truncate_document,
)
from beambert.pipelines.documents import Document, identified, identity
from beambert.pipelines.errors import DatasetError, SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.sources import readers
from beambert.pipelines.sources.readers import read_file
from beambert.pipelines.transforms import corpora, documents, examples, ml_transform, rows, vocabulary
from beambert.pipelines.transforms.corpora import DeduplicateDocuments, ReadCorpus, WriteCorpus
from beambert.pipelines.transforms.documents import (
    CleanDocuments,
    CleanParagraphs,
    IdentifyLanguage,
    ReadDocuments,
    RejectContaminated,
    RejectDocuments,
    RejectIf,
    SegmentSentences,
    TruncateSentences,
)
from beambert.pipelines.transforms.examples import (
    CreateExamplesOfCorpus,
    CreatePretrainingExamples,
    WriteShards,
    _create_examples,
)
from beambert.pipelines.transforms.partitions import _BLOCKS, DEFAULTS, _local_directory
from beambert.pipelines.transforms.vocabulary import LearnWordPieceVocabulary
from beambert.tokenizer.vocabulary import Vocabulary
from tests.conftest import with_slow
from tests.every_output import digests
from tests.pipelines.documents import documents as any_documents

PRISM = os.environ.get("BEAMBERT_PRISM")
needs_prism = pytest.mark.skipif(not PRISM, reason="set BEAMBERT_PRISM to the binary of Prism")
OPTIONS = PretrainingDataOptions(max_seq_length=64, max_predictions_per_seq=10, dupe_factor=2)
CATS = [Document([f"The cat number {number} sat.", "It saw a hat."]) for number in range(9)]
WORDS = "cat sat mat while dogs ran birds sang over green hills far away from town".split()  # noqa: SIM905


def story(number: int) -> str:
    """Return a document of paragraphs, some with markup, an HTML tag, or nothing to keep."""
    sentences = []
    for i in range(2 + number % 6):
        words = [WORDS[(number * 7 + 3 * i + i * j) % len(WORDS)] for j in range(5 + (number + i) % 9)]
        sentences.append(" ".join(words).capitalize() + ".")
    extra = ["* * *", f"See <b>this</b>[{number % 7}] text.", ""][number % 3]
    return "\n".join([*sentences, extra])


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """A directory with two input files, which share one document, and an evaluation file."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.jsonl").write_text("".join(_line(number) for number in range(150)), encoding="utf-8")
    (folder / "b.jsonl").write_text("".join(_line(number) for number in range(149, 220)), encoding="utf-8")
    (folder / "evaluation.txt").write_text(" ".join(story(3).split()) + "\n", encoding="utf-8")
    return folder


def _line(number: int) -> str:
    return json.dumps({"text": story(number), "title": f"story {number}"}) + "\n"


@pytest.fixture(scope="module")
def built(texts, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("built") / "data"
    flags = ["--vocab_size", "80", "--num_partitions", "3", "--max_seq_length", "64"]
    flags += ["--max_predictions_per_seq", "10"]
    flags += ["--dupe_factor", "2", "--validation_fraction", "0.1", "--min_words", "12", "--truncation_noise", "0.1"]
    flags += ["--identify_language", "--decontaminate", str(texts / "evaluation.txt"), "--drop_near_duplicates"]
    assert cli.main(["build", "--input", f"{texts}/*.jsonl", "--output", str(output), *flags]) == 0
    return output


def documents_of(pipeline, texts: Path, *, truncated: bool = True):
    rules = CleaningOptions(min_words=12)
    documents = (
        pipeline
        | ReadDocuments(f"{texts}/*.jsonl")
        | CleanDocuments(rules)
        | SegmentSentences("en")
        | RejectDocuments({"min_words": 12})
        | IdentifyLanguage(keep="en")
        | RejectContaminated([str(texts / "evaluation.txt")])
    )
    return documents | TruncateSentences(0.1) if truncated else documents


def test_a_corpus_has_the_bytes_of_the_command(texts, built, tmp_path):
    with beam.Pipeline() as pipeline:
        _ = documents_of(pipeline, texts) | WriteCorpus(
            str(tmp_path / "corpus"), vocab_size=80, num_partitions=3, validation_fraction=0.1, near_duplicates=True
        )
    names = ("corpus/*.parquet", "vocab.txt", "rejected/*.jsonl")
    assert digests(tmp_path / "corpus", *names) == digests(built, *names)
    counters = pipeline.result.metrics().query(MetricsFilter().with_namespace("beambert"))["counters"]
    metrics = {counter.key.metric.name: counter.committed for counter in counters}
    ours, theirs = (json.loads((folder / "corpus.json").read_text()) for folder in (tmp_path / "corpus", built))
    theirs["counts"]["files_mostly_rejected"] = []
    # Without the file of evaluation data, which has no weight.
    theirs["files"] = [file for file in theirs["files"] if len(file) == 4]
    for name in ("counts", "files", "shards", "vocab", "format", "format_version"):
        assert ours[name] == theirs[name], name
    for name in ours["options"]:
        assert ours["options"][name] == theirs["options"][name], name
    assert metrics["documents_read"] == theirs["counts"]["documents_read"] == 221
    assert metrics["documents_rejected_too_short"] == theirs["counts"]["documents_rejected"]["too_short"] > 0


def test_a_corpus_records_the_transforms_of_its_documents(tmp_path):
    """Test own steps between ours, two sources, rules that are left out, and deduplication before the sink."""
    texts = [Document([f"The cat number {number} sat on the mat."]) for number in range(9)]
    (tmp_path / "own.txt").write_text("bzgl.\n", encoding="utf-8")
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"Ein Text {name}.\n", encoding="utf-8")
    with beam.Pipeline() as pipeline:
        first = (
            pipeline
            | "First" >> ReadDocuments(f"{tmp_path}/[ab].txt", weight=0.5)
            | CleanDocuments(CleaningOptions(skip_rules="boilerplate", fix_mojibake=True))
        )
        second = pipeline | "Second" >> beam.Create(texts)
        documents = (
            (first, second)
            | beam.Flatten()
            | beam.Map(lambda document: document).with_output_types(Document)
            | SegmentSentences("de", abbreviations=f"{tmp_path}/own.txt")
            | TruncateSentences(0.1)
            | DeduplicateDocuments(repeated_paragraphs=True)
        )
        _ = documents | WriteCorpus(str(tmp_path / "corpus"), vocab_size=40, near_duplicates=True)
    manifest = json.loads((tmp_path / "corpus/corpus.json").read_text())
    files = [[path.removeprefix(f"{tmp_path}/"), size, weight] for path, size, _, weight in manifest["files"]]
    assert files == [["a.txt", 12, 0.5], ["b.txt", 12, 0.5]]
    recorded = manifest["options"]
    assert recorded["language"] == "de"
    assert recorded["abbreviations"] == "bzgl"
    assert recorded["truncation_noise"] == 0.1
    assert (recorded["near_duplicates"], recorded["repeated_paragraphs"]) == (True, True)
    assert recorded["cleaning"]["fix_mojibake"]
    assert recorded["cleaning"]["skip_rules"].split(",") == sorted([BOILERPLATE, *DOCUMENT_RULES])


@pytest.mark.parametrize("runner", ["default", pytest.param("Prism", marks=needs_prism)])
def test_shards_of_one_pipeline_have_the_bytes_of_build(texts, built, tmp_path, runner):
    flags = []
    if runner == "Prism":
        flags = ["--runner=PrismRunner", f"--prism_location={PRISM}", "--environment_type=LOOPBACK"]
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        documents = documents_of(pipeline, texts) | DeduplicateDocuments(near_duplicates=True)
        partitions = {"num_partitions": 3, "validation_fraction": 0.1}
        vocabulary = documents | LearnWordPieceVocabulary(80, **partitions)
        examples = documents | CreatePretrainingExamples(vocabulary, OPTIONS, **partitions)
        _ = examples | WriteShards(str(tmp_path / "data"), vocabulary)
    assert digests(tmp_path / "data", "shards/*", "vocab.txt") == digests(built, "shards/*", "vocab.txt")
    ours, theirs = dataset.load(tmp_path / "data"), dataset.load(built)
    assert ours.shards == theirs.shards
    for split in dataset.SPLITS:
        assert ours.counts[split] == theirs.counts[split]


def test_a_chain_of_near_duplicates_collapses_across_hash_groups():
    words = [f"w{number}" for number in range(900)]
    texts = [" ".join(words[30 * number : 30 * number + 600]) for number in range(10)]
    segmented = [segment_document(Document([text]), "en") for text in [*texts, "Another text of more than five words."]]
    kept = [min(document.id for document in segmented[:10]), segmented[10].id]
    for num_partitions in (1, 5):
        with beam.Pipeline() as pipeline:
            found = (
                pipeline
                | beam.Create(segmented)
                | DeduplicateDocuments(near_duplicates=True, num_partitions=num_partitions)
            )
            reasons = found | beam.Map(lambda document: (document.id, document.rejected))
            expected = [(each.id, "" if each.id in kept else "near_duplicate") for each in segmented]
            assert_that(reasons, equal_to(expected))


def test_warnings_are_logged_and_recorded(built, tmp_path, caplog):
    texts = [Document([f"The cat number {number} sat on mat {i}." for i in range(30)]) for number in range(3)]
    options = dataclasses.replace(OPTIONS, balance_next_sentence=True)
    with beam.Pipeline() as pipeline:
        documents = pipeline | beam.Create(texts) | SegmentSentences("en")
        examples = documents | CreatePretrainingExamples(str(built / "vocab.txt"), options, 16, validation_fraction=0)
        _ = examples | WriteShards(str(tmp_path / "data"), str(built / "vocab.txt"))
    expected = (
        "0.0% of the pairs are random next sentences instead of about 50%, because partitions with a single document "
        "have none; use fewer partitions, such as --num_partitions 1"
    )
    assert expected in caplog.messages
    assert expected in dataset.load(tmp_path / "data").counts["warnings"]
    assert expected[:60] in (tmp_path / "data/README.md").read_text(encoding="utf-8")
    report = (tmp_path / "data/report.html").read_text(encoding="utf-8")
    assert expected[:60] in report
    assert report.count("not searched") == 3


@pytest.mark.parametrize("file_format", ["parquet", "array_record"])
def test_a_corpus_is_read_back(built, tmp_path, file_format):
    """Test with a runner that serializes every element, and with the file format chosen at the end."""
    if file_format == "array_record":
        pytest.importorskip("array_record")
    with beam.Pipeline() as pipeline:
        documents = pipeline | ReadCorpus(str(built)) | beam.Reshuffle()
        examples = documents | CreatePretrainingExamples(
            str(built / "vocab.txt"), OPTIONS, num_partitions=3, validation_fraction=0.1
        )
        _ = (
            examples
            | "Again" >> beam.Reshuffle()
            | WriteShards(str(tmp_path / "data"), str(built / "vocab.txt"), file_format)
        )
    argv = ["pretraining-data", "--input", str(built), "--output", str(tmp_path / "again"), "--format", file_format]
    flags = ["--max_seq_length", "64", "--max_predictions_per_seq", "10", "--dupe_factor", "2"]
    assert cli.main([*argv, *flags]) == 0
    assert digests(tmp_path / "data", "shards/*") == digests(tmp_path / "again", "shards/*")
    ours, theirs = dataset.load(tmp_path / "data"), dataset.load(tmp_path / "again")
    assert (ours.file_format, ours.versions) == (theirs.file_format, theirs.versions)


def test_metadata_is_in_the_corpus_and_in_its_lists(tmp_path):
    """Metadata changes neither identity nor order, and shards without it have the columns they always had."""
    texts = [f"Document {number} has a sentence of its own." for number in range(40)]
    pages = [
        Document([text], metadata={"url": f"https://a.example/{number}", "date": "2026"} if number else {})
        for number, text in enumerate(texts)
    ]
    copy = Document([texts[1]], title="B", metadata={"url": "https://b.example/1"})
    for name, listed in {"plain": map(Document, [[text] for text in texts]), "pages": [*pages, copy]}.items():
        with beam.Pipeline() as pipeline:
            documents = pipeline | beam.Create(list(listed)) | SegmentSentences()
            _ = documents | WriteCorpus(str(tmp_path / name), vocab_size=60, num_partitions=2)
    with beam.Pipeline() as pipeline:
        found = pipeline | ReadCorpus(str(tmp_path / "pages"))
        assert_that(
            found | beam.Map(lambda document: (document.text, document.metadata)),
            equal_to([(page.text, page.metadata) for page in pages]),
        )
    shards = sorted((tmp_path / "pages" / "corpus").glob("*.parquet"))
    for shard in shards:
        table, plain = (parquet.read_table(path) for path in (shard, tmp_path / "plain" / "corpus" / shard.name))
        assert plain.column_names == corpus_manifest.SCHEMA.names
        assert table.drop_columns(["metadata"]) == plain
    (rejected,) = (tmp_path / "pages" / "rejected").glob("*.jsonl")
    assert json.loads(rejected.read_text(encoding="utf-8"))["metadata"] == copy.metadata


@pytest.mark.usefixtures("without_array_record")
@pytest.mark.parametrize("at_the_end", [True, False])
def test_a_format_without_its_package_is_one_line(built, tmp_path, at_the_end):
    vocabulary = str(built / "vocab.txt")
    if at_the_end:
        with pytest.raises(DatasetError, match=r"^--format array_record .*; pip install 'beambert\[array-record\]'$"):
            WriteShards(str(tmp_path / "data"), vocabulary, "array_record")
    else:
        options = dataclasses.replace(OPTIONS, format="array_record")
        pipeline = beam.Pipeline()
        examples = pipeline | ReadCorpus(str(built)) | CreatePretrainingExamples(vocabulary, options, 3)
        _ = examples | WriteShards(str(tmp_path / "data"), vocabulary)
        with pytest.raises(Exception, match="requires the package array-record"):
            pipeline.run().wait_until_finish()
    assert not list(tmp_path.glob("data/shards/*"))


def test_the_lines_of_plain_text_are_kept_on_request(tmp_path):
    (tmp_path / "a.txt").write_text("One\ntwo\n\nThree\n")
    with beam.Pipeline() as pipeline:
        documents = pipeline | ReadDocuments(f"{tmp_path}/*.txt", line_paragraphs=True)
        values = documents | SegmentSentences("en", "lines") | beam.Map(lambda document: document.sentences)
        assert_that(values, equal_to([["One", "two", "Three"]]))


def test_a_large_file_is_read_in_ranges(texts, monkeypatch, tmp_path):
    path = str(texts / "a.jsonl")
    options = ReadOptions("jsonl")
    expected = [document.paragraphs for document in read_file(path, options)]
    monkeypatch.setattr(readers, "_LINE_RANGE_BYTES", {"": 3000})
    starts = []

    def read_one_range(path: str, options: ReadOptions, start: int, stop: int | None, **flags) -> Iterator[Document]:
        starts.append(start)
        return read_file(path, options, start, stop, **flags)

    monkeypatch.setattr(readers, "read_file", read_one_range)
    with beam.Pipeline() as pipeline:
        documents = pipeline | ReadDocuments(path, weight=2.0)
        values = documents | beam.Map(
            lambda document: json.dumps([document.byte, document.paragraphs, document.weight])
        )
        _ = values | beam.io.WriteToText(str(tmp_path / "values"))
    read = sorted(json.loads(line) for file in tmp_path.iterdir() for line in file.read_text().splitlines())
    assert [paragraphs for _, paragraphs, _ in read] == expected
    assert {weight for *_, weight in read} == {2.0}
    size = (texts / "a.jsonl").stat().st_size
    count = math.ceil(size / 3000)
    assert sorted(starts) == [size * number // count for number in range(count)]


@given(any_documents())
def test_documents_survive_their_coder(document):
    coder = registry.get_coder(Document)
    assert type(coder).__name__ == "DocumentCoder"
    assert coder.decode(coder.encode(document)) == document


def _run(make):
    with beam.Pipeline() as pipeline:
        make(pipeline)


def test_an_output_with_files_stays_as_it_is(tmp_path, built):
    """The check is made when the pipeline runs: a pipeline can be built twice, and before its output is emptied."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")

    def make(output: str, sink: str):
        def pipeline_of(p):
            segmented = p | beam.Create(CATS) | SegmentSentences()
            if sink == "corpus":
                return segmented | WriteCorpus(output, vocab_size=60)
            examples = segmented | CreatePretrainingExamples(str(built / "vocab.txt"), OPTIONS, 2)
            return examples | WriteShards(output, str(built / "vocab.txt"))

        return pipeline_of

    for sink in ("corpus", "examples"):
        with pytest.raises(Exception, match=r"mine contains notes\.txt; delete it, or give a new"):
            _run(make(str(tmp_path / "mine"), sink))
        assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
        output = str(tmp_path / sink)
        _run(make(output, sink))
        before = {path: path.read_bytes() for path in Path(output).rglob("*") if path.is_file()}
        with pytest.raises(Exception, match=rf"{sink} contains README\.md|{sink} contains corpus"):
            _run(make(output, sink))
        assert {path: path.read_bytes() for path in Path(output).rglob("*") if path.is_file()} == before
    with pytest.raises(Exception, match=r"has no corpus\.json"):
        _run(lambda p: p | ReadCorpus(str(tmp_path / "mine")))


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"do_lower_case": False}, {}, "learned with do_lower_case=False, but the examples have True"),
        ({}, {"num_partitions": 3}, "learned with num_partitions=2, but the examples have 3"),
        ({}, {"validation_fraction": 0.5}, r"learned with validation_fraction=0\.02, but the examples have 0\.5"),
    ],
)
def test_a_vocabulary_of_other_options_is_refused(options, arguments, message):
    def make(p):
        segmented = p | beam.Create(CATS) | SegmentSentences()
        vocabulary = segmented | LearnWordPieceVocabulary(40, num_partitions=2, **options)
        return segmented | CreatePretrainingExamples(vocabulary, OPTIONS, **{"num_partitions": 2, **arguments})

    with pytest.raises(Exception, match=message):
        _run(make)


def test_two_sinks_of_one_directory_leave_no_manifest(tmp_path, built):
    vocabulary = str(built / "vocab.txt")

    def make(p):
        examples = p | beam.Create(CATS) | SegmentSentences() | CreatePretrainingExamples(vocabulary, OPTIONS, 2)
        _ = examples | "TFRecord" >> WriteShards(str(tmp_path / "data"), vocabulary)
        _ = examples | "Parquet" >> WriteShards(str(tmp_path / "data"), vocabulary, "parquet")

    with pytest.raises(Exception, match="has shards of another pipeline"):
        _run(make)
    assert not (tmp_path / "data/dataset.json").exists()


def test_mistakes_when_a_pipeline_runs(tmp_path, built):
    with pytest.raises(Exception, match="not segmented; apply SegmentSentences first"):
        _run(lambda p: p | beam.Create([Document(["a"])]) | WriteCorpus(str(tmp_path / "a"), vocab_size=100))
    assert not (tmp_path / "a/corpus.json").exists()
    with pytest.raises(Exception, match="matches no files"):
        _run(lambda p: p | ReadDocuments(str(tmp_path / "none*.txt")))
    with pytest.raises(Exception, match="no training instances"):
        _run(
            lambda p: (
                p
                | beam.Create([Document(["a"])])
                | SegmentSentences()
                | CreatePretrainingExamples(str(built / "vocab.txt"), OPTIONS, 1, validation_fraction=0)
                | WriteShards(str(tmp_path / "b"), str(built / "vocab.txt"))
            )
        )
    assert not (tmp_path / "b/dataset.json").exists()


_UNSEGMENTED = r"a document of a\.txt is not segmented; apply SegmentSentences first"
_FAILED = r"rule own failed on a document of a\.txt \(ZeroDivisionError: division by zero\); correct the function"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([RejectDocuments()], _UNSEGMENTED),
        ([RejectContaminated(["evaluation.txt"])], _UNSEGMENTED),
        ([TruncateSentences(0.5)], _UNSEGMENTED),
        (
            [SegmentSentences("en"), IdentifyLanguage()],
            "segmented by the rules of the language en; identify the language before SegmentSentences",
        ),
        ([SegmentSentences(), CleanDocuments()], "already segmented; apply CleanDocuments first"),
        ([SegmentSentences(), CleanParagraphs(str.upper)], "already segmented; apply CleanParagraphs first"),
        ([RejectIf(lambda _: 3, "own")], "the function of the rule own returned 3; it must return"),
        ([CleanParagraphs(lambda _: None, "own")], "the function of the rule own returned None; it must return"),
        ([RejectIf(lambda _: 1 / 0, "own")], _FAILED),
        ([CleanParagraphs(lambda _: 1 / 0, "own")], _FAILED),
    ],
)
def test_a_step_that_fails_is_one_line(steps, message):
    with pytest.raises(Exception, match=message):
        _run(
            lambda p: functools.reduce(operator.or_, steps, p | beam.Create([Document(["Some text."], source="a.txt")]))
        )


@pytest.mark.parametrize(
    "step",
    [
        lambda document: clean_document(document, CleaningOptions()),
        lambda document: clean_with(document, str.upper, "upper"),
        lambda document: segment_document(document, "de"),
        lambda document: reject_if(document, lambda _: True, "all"),
        lambda document: reject_document(document, CleaningOptions()),
        lambda document: decontaminate(document, ["evaluation.txt"], "drop"),
        lambda document: truncate_document(document, 0.5),
        identify_language,
    ],
)
def test_a_rejected_document_passes_every_step(step):
    document = Document(["Some text."], rejected="redirect", language="en")
    assert step(document) == document


def examples_of(documents: list[Document]) -> tuple[list[list[str]], int]:
    """Return the sentences of the pretraining examples of documents, by document, and their number of tokens."""
    vocabulary = Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"))
    grouped = {_BLOCKS: [to_block([identified(document, "en") for document in documents])]}
    options = PretrainingDataOptions(max_seq_length=16, max_predictions_per_seq=3, dupe_factor=1)
    partitions = dataclasses.replace(DEFAULTS, num_partitions=1)
    (examples,) = _create_examples((("train", 0), grouped), vocabulary, options, partitions)
    table = examples.documents
    sentences = [
        " ".join(vocabulary.tokens[token] for token in table.token_ids[start:stop])
        for start, stop in itertools.pairwise(table.sentence_starts)
    ]
    return [sentences[start:stop] for start, stop in itertools.pairwise(table.document_starts)], len(table.token_ids)


def test_examples_of_documents_without_sentences():
    documents = [segment_document(Document([text], segmented=True), "en") for text in ("a a", "b", "c d")]
    empty = [
        segment_document(Document([]), "en"),
        dataclasses.replace(documents[0], paragraphs=[], id="00" * 16),
    ]
    sentences, tokens = examples_of(documents)
    assert (sorted(sentences), tokens) == ([["a a"], ["b"], ["c d"]], 5)
    assert examples_of([*documents, *empty]) == (sentences, tokens)


def test_line_breaks_in_sentences_of_a_format_are_folded():
    document = segment_document(Document(["a\nb", "c", " d \n"], segmented=True), "en")
    assert document.paragraphs == ["a b", "c", "d"]
    assert document.id == identity(["a b", "c", "d"]).hex()
    assert segment_document(document, "de") == document
    assert examples_of([document]) == ([["a b", "c", "d"]], 4)


def test_equal_texts_with_and_without_a_title():
    documents = [segment_document(Document(["a"], title), "en") for title in (None, "B", None)]
    assert examples_of(documents) == ([["a"]], 1)
    assert Document(["a"], None).title == ""


def test_own_rules_are_counted_and_listed_as_ours(tmp_path):
    """Test rules of functions: a name, a reason, a changed and a dropped paragraph; with metrics."""
    texts = [Document([f"Text number {number} [ad]", "[ad]"], origin="mine") for number in range(30)]

    def reason(document: Document) -> str:
        return "three" if "3" in document.text else ""

    pipeline = beam.Pipeline()
    documents = (
        pipeline
        | beam.Create(texts)
        | CleanParagraphs(lambda text: text.replace("[ad]", "").strip(), "advertisement")
        | SegmentSentences()
        | RejectIf(reason)
        | RejectIf(lambda document: "5" in document.text, "five")
    )
    _ = documents | WriteCorpus(str(tmp_path / "corpus"), vocab_size=30, validation_fraction=0.1)
    divided = documents | transforms.PartitionRejected()
    assert_that(divided.kept | beam.Map(lambda document: document.rejected) | beam.Distinct(), equal_to([""]))
    names = divided.rejected | "Names" >> beam.Map(lambda document: document.rejected)
    assert_that(names, equal_to(["three"] * 3 + ["five"] * 3), "rejected")
    result = pipeline.run()
    result.wait_until_finish()  # Beam's default engine is Prism where it can be downloaded.
    counts = json.loads((tmp_path / "corpus/corpus.json").read_text())["counts"]
    assert counts["documents_rejected"] == {"five": 3, "three": 3}
    assert counts["paragraphs_cleaned"] == {"advertisement": 60}
    assert counts["inputs"]["mine"]["bytes_lost"]["advertisement"] == 30 * 9
    lines = [json.loads(line) for file in (tmp_path / "corpus/rejected").iterdir() for line in file.open()]
    assert {line["reason"] for line in lines} == {"five", "three", "advertisement"}
    counters = result.metrics().query(MetricsFilter().with_name("documents_rejected_three"))["counters"]
    assert [counter.committed for counter in counters] == [3]


def test_own_rules_by_name(tmp_path, monkeypatch):
    (tmp_path / "my_own_rules.py").write_text("def is_short(document):\n    return len(document.text) < 9\n")
    monkeypatch.syspath_prepend(tmp_path)
    with beam.Pipeline() as pipeline:
        documents = pipeline | beam.Create([Document(["short"]), Document(["a long text"])])
        found = documents | RejectIf("my_own_rules:is_short") | CleanParagraphs("textwrap:dedent", "indent")
        assert_that(found | beam.Map(lambda document: document.rejected), equal_to(["is_short", ""]))
    for name, message in (
        ("is_short", "must be package.module:function"),
        ("my_own_rules:none", "cannot be imported"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("string:digits", "is not a function"),
    ):
        with pytest.raises(SourceError, match=message):
            RejectIf(name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WriteCorpus("new"), "either vocab_size or vocab_file"),
        (lambda: SegmentSentences("en", "foo"), "invalid --segmenter 'foo': must be one of"),
        (lambda: SegmentSentences("xx"), "xx"),
        (lambda: WriteShards("new", "vocab.txt", "avro"), "invalid --format"),
        (lambda: RejectIf(lambda _: True), "has no name; give it with name"),
        (lambda: Document("one text"), "paragraphs of a document must be a list of strings, not 'one text'"),
        (lambda: beam.Pipeline() | beam.Create(["text"]) | CleanDocuments(), "Document"),
        (lambda: TruncateSentences(7), "invalid --truncation_noise 7: must be"),
        (lambda: RejectContaminated(["a.txt"], "dropp"), "invalid --decontaminate_action 'dropp': must be one of drop"),
        (lambda: RejectContaminated("a.txt"), "invalid --decontaminate 'a.txt': must be a list"),
        (lambda: IdentifyLanguage(keep="xx"), "xx"),
        (lambda: SegmentSentences("en", "lines", "own.txt"), "--abbreviations has no effect on --segmenter lines"),
        (lambda: ReadDocuments("a.txt", "foo"), "invalid --input_format foo: must be auto or one of"),
        (lambda: ReadDocuments("a.txt", weight=-1.0), "invalid weight -1.0 of a document"),
        (lambda: Document(["a"], weight=float("nan")), "invalid weight nan of a document"),
    ],
)
def test_constructors_check_their_values(make, message):
    expected = (SourceError, DatasetError, TypeError, beam.typehints.TypeCheckError)
    with pytest.raises(expected, match=re.escape(message)):
        make()


def test_windowed_documents_are_refused():
    windows = beam.WindowInto(beam.window.FixedWindows(60))
    with pytest.raises(SourceError, match="the documents are in windows"):
        _ = beam.Pipeline() | beam.Create([Document(["a"])]) | windows | DeduplicateDocuments()


def test_a_vocabulary_of_another_pipeline_is_refused():
    def segmented(pipeline):
        return pipeline | beam.Create([Document(["a text"])]) | SegmentSentences()

    learned = segmented(beam.Pipeline()) | LearnWordPieceVocabulary(20)
    with pytest.raises(DatasetError, match="the vocabulary is of another pipeline"):
        _ = segmented(beam.Pipeline()) | CreatePretrainingExamples(learned)


@pytest.mark.parametrize(("num_partitions", "shuffles"), [(4, 1), (5, 2)])
def test_transforms_of_the_same_documents_share_a_shuffle(num_partitions, shuffles):
    pipeline = beam.Pipeline()
    documents = pipeline | beam.Create([Document(["a text"])]) | SegmentSentences()
    learned = documents | LearnWordPieceVocabulary(20, num_partitions=4)
    _ = documents | CreatePretrainingExamples(learned, num_partitions=num_partitions)
    steps = pipeline.to_runner_api().components.transforms.values()
    grouped = [step for step in steps if step.unique_name.endswith("GroupByPartition/Partition")]
    assert len(grouped) == shuffles


def test_documents_are_shuffled_in_files_that_are_deleted(tmp_path):
    """Test that the files exist during the run, and that none is left when the process ends."""
    program = """
import os
import apache_beam as beam
from beambert.pipelines.transforms import Document, SegmentSentences
from beambert.pipelines.transforms.partitions import DEFAULTS, ToBlocks
with beam.Pipeline(runner="FnApiRunner") as pipeline:
    blocks = pipeline | beam.Create([Document(["a text"])]) | SegmentSentences() | ToBlocks(DEFAULTS)
    _ = blocks | beam.Map(lambda block: print(type(block[1]).__name__, os.path.exists(block[1].path)))
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed == "BlockLocation True\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [["--runner=FlinkRunner"], ["--runner=DirectRunner", "--environment_type=DOCKER"]])
def test_documents_are_shuffled_as_bytes_between_machines(flags):
    assert _local_directory(beam.Pipeline(options=PipelineOptions(flags))) == ""


def test_examples_are_not_pickled_to_measure_their_size(tmp_path, monkeypatch):
    """Test that the text of a partition is not copied for Beam's metrics."""
    monkeypatch.setattr(examples.PretrainingExamples, "__getstate__", None)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        documents = pipeline | beam.Create([Document([f"Cat number {n}."]) for n in range(20)]) | SegmentSentences()
        learned = documents | LearnWordPieceVocabulary(40, num_partitions=1)
        created = documents | CreatePretrainingExamples(learned, num_partitions=1)
        _ = created | WriteShards(str(tmp_path / "data"), learned)
    assert (tmp_path / "data/dataset.json").exists()


def test_a_learned_vocabulary_equals_the_vocabulary_of_its_file(tmp_path):
    with beam.Pipeline() as pipeline:
        documents = pipeline | beam.Create([Document(["the cat and the hat"])]) | SegmentSentences()
        learned = documents | LearnWordPieceVocabulary(20, validation_fraction=0)
        assert_that(
            learned | beam.Map(lambda found: found == Vocabulary.from_bytes(found.to_bytes(), "vocab.txt")),
            equal_to([True]),
        )


def test_examples_of_a_corpus_with_its_report(built, tmp_path):
    """Test a pipeline that reads a corpus without a shuffle: the dataset is that of the command, byte by byte."""
    vocabulary = str(built / "vocab.txt")
    with beam.Pipeline() as pipeline:
        examples = pipeline | CreateExamplesOfCorpus(str(built), vocabulary, OPTIONS)
        _ = examples | WriteShards(str(tmp_path / "data"), vocabulary, corpus=str(built))
    argv = ["pretraining-data", "--input", str(built), "--output", str(tmp_path / "again"), "--max_seq_length", "64"]
    assert cli.main([*argv, "--max_predictions_per_seq", "10", "--dupe_factor", "2"]) == 0
    names = ("shards/*", "vocab.txt", "dataset.json", "report.html", "README.md", "croissant.json")
    assert digests(tmp_path / "data", *names) == digests(tmp_path / "again", *names)


@pytest.mark.parametrize("learned", [False, True])
def test_shards_with_another_vocabulary_than_the_examples_are_an_error(texts, built, tmp_path, learned):
    other = tmp_path / "other.txt"
    other.write_text((built / "vocab.txt").read_text(encoding="utf-8") + "zebra\n", encoding="utf-8")
    message = (
        r"is not the vocabulary of the examples \(.*\); give WriteShards the vocabulary of CreatePretrainingExamples"
    )

    def write(pipeline):
        documents = pipeline | ReadCorpus(str(built))
        vocabulary = documents | LearnWordPieceVocabulary(70) if learned else str(other)
        examples = documents | CreatePretrainingExamples(str(built / "vocab.txt"), OPTIONS, 1)
        _ = examples | WriteShards(str(tmp_path / "data"), vocabulary)

    with pytest.raises(Exception, match=message):
        _run(write)
    assert not (tmp_path / "data/dataset.json").exists()
    assert not list((tmp_path / "data").glob("shards/*"))


@pytest.mark.parametrize(
    ("options", "config", "expected"),
    [
        ({"format": "parquet", "feature_names": "model_garden"}, {}, ("parquet", "none", True)),
        ({"ragged": True, "compression": "gzip"}, {"ragged": False}, ("tfrecord", "gzip", False)),
    ],
)
def test_the_options_of_the_examples_are_kept(built, tmp_path, options, config, expected):
    vocabulary = str(built / "vocab.txt")
    options = {"max_seq_length": 64, "max_predictions_per_seq": 10, "dupe_factor": 1, **options}
    with beam.Pipeline() as pipeline:
        examples = pipeline | ReadCorpus(str(built)) | CreatePretrainingExamples(vocabulary, options, 1)
        _ = examples | WriteShards(str(tmp_path / "data"), vocabulary, **config)
    manifest = dataset.load(tmp_path / "data")
    assert (manifest.file_format, manifest.compression, manifest.ragged) == expected
    assert ("input_word_ids" in manifest.features.values()) == ("feature_names" in options)


_WITH_PIPELINES = [documents, corpora, vocabulary, examples, ml_transform]


@pytest.mark.parametrize(
    "module", with_slow([*_WITH_PIPELINES, rows], _WITH_PIPELINES), ids=lambda module: module.__name__
)
def test_docstrings(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {name: getattr(transforms, name) for name in transforms.__all__}
    names.update(beam=beam, CleaningOptions=CleaningOptions, PretrainingDataOptions=PretrainingDataOptions)
    result = doctest.testmod(module, extraglobs=names)
    assert not result.failed
    assert result.attempted


def test_every_transform_has_an_example():
    for name in transforms.__all__:
        public = getattr(transforms, name)
        if isinstance(public, type) and issubclass(public, beam.PTransform):
            assert ">>> with beam.Pipeline() as pipeline:" in public.__doc__, name
