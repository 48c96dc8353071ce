"""Test `beambert quality train`, and its model in `corpus` and in a pipeline: files, counts, lists and errors."""

import hashlib
import json
import random
from pathlib import Path

import apache_beam as beam
import msgspec
import pyarrow
import pyarrow.parquet
import pytest
from apache_beam.testing.util import assert_that, equal_to

from beambert import cli
from beambert.pipelines.cleaning import quality_model
from beambert.pipelines.documents import Document
from beambert.pipelines.io.manifest_schemas import QualityModelReport
from beambert.pipelines.transforms import RejectLowQuality, SegmentSentences, WriteCorpus
from tests.conftest import ROOT
from tests.documented_commands import commands
from tests.every_output import corpus_rows, digests, rejected

GOOD_WORDS = [
    "the",
    "river",
    "rose",
    "after",
    "cold",
    "night",
    "people",
    "of",
    "old",
    "houses",
    "were",
    "glad",
    "light",
]
BAD_WORDS = ["home", "login", "menu", "subscribe", "cookies", "share", "tweet", "click", "accept", "policy", "contact"]


def texts(seed: int, words: list[str], count: int) -> list[str]:
    """Return distinct texts of one sentence; a fifth of their words are of both classes."""
    rng = random.Random(seed)
    both = ["year", "city", "news", "page", "report"]
    return [
        f"{' '.join(rng.choice(words if rng.random() < 0.8 else both) for _ in range(rng.randint(12, 30)))} {number}."
        for number in range(count)
    ]


def write_jsonl(path: Path, rows: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows), encoding="utf-8")
    return path


def train(*flags: object) -> int:
    return cli.main(["quality", "train", *map(str, flags)])


def fails(capsys, *flags: object) -> str:
    assert train(*flags) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return err


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("quality")
    write_jsonl(folder / "good.jsonl", texts(1, GOOD_WORDS, 600))
    write_jsonl(folder / "bad.jsonl", texts(2, BAD_WORDS, 300))
    assert train("--good", folder / "good.jsonl", "--bad", folder / "bad.jsonl", "--output", folder / "model") == 0
    return folder


def test_results_on_the_validation_split_are_printed(folder, tmp_path, capsys):
    flags = ["--good", folder / "good.jsonl", "--bad", folder / "bad.jsonl"]
    assert train(*flags, "--output", tmp_path / "m") == 0
    out, err = capsys.readouterr()
    assert "--good 1 file, 600 documents\n--bad  1 file, 300 documents\n" in out
    assert "60 good and 30 bad documents, accuracy 100.0%" in out
    assert "          0.5     100.0%      0.0%\n" in out
    assert "the validation split has only 30 documents of a class" in " ".join(err.split())
    assert out.count("  good  ") + out.count("  bad   ") == 6


def test_names_order_and_format_of_files_do_not_change_the_model(folder, tmp_path):
    good, bad = texts(1, GOOD_WORDS, 600), texts(2, BAD_WORDS, 300)
    random.Random(3).shuffle(good)
    write_jsonl(tmp_path / "z.jsonl", good[:200])
    write_jsonl(tmp_path / "y.jsonl", good[150:])
    pyarrow.parquet.write_table(pyarrow.table({"body": bad}), tmp_path / "b.parquet")
    (tmp_path / "b.parquet").rename(tmp_path / "bad")
    # A text field for both classes.
    rows = [json.dumps({"body": text}) + "\n" for text in good]
    (tmp_path / "x.jsonl").write_text("".join(rows))
    assert train("--good", tmp_path / "[yz]*", "--bad", folder / "bad.jsonl", "--output", tmp_path / "m1") == 0
    flags = ["--text_field", "body", "--output", tmp_path / "m2"]
    assert train("--good", tmp_path / "x.jsonl", "--bad", tmp_path / "bad", *flags) == 0
    assert (tmp_path / "m1").read_bytes() == (folder / "model").read_bytes() == (tmp_path / "m2").read_bytes()


def test_errors_are_one_line(folder, tmp_path, capsys):
    good, bad, output = folder / "good.jsonl", folder / "bad.jsonl", tmp_path / "out"
    few = write_jsonl(tmp_path / "few.jsonl", texts(9, GOOD_WORDS, 19))
    signs = write_jsonl(tmp_path / "signs.jsonl", ["...", "* * *"])
    (tmp_path / "text.txt").write_text("A text of a user.\n")
    both = fails(capsys, "--good", folder / "*.jsonl", "--bad", bad, "--output", output)
    assert f"--good and --bad both match {bad}; give each file in one of them" in both
    assert "--bad has 19 distinct documents, fewer than 20" in fails(
        capsys, "--good", good, "--bad", few, "--output", output
    )
    assert "--good has no documents with words in 1 file" in fails(
        capsys, "--good", signs, "--bad", bad, "--output", output
    )
    copy = write_jsonl(tmp_path / "copy.jsonl", texts(1, GOOD_WORDS, 600))
    assert "--good has 0 distinct documents without the 600 that are in both classes" in fails(
        capsys, "--good", good, "--bad", copy, "--output", output
    )
    exists = ["--good", good, "--bad", bad, "--output", tmp_path / "text.txt"]
    assert "exists" in fails(capsys, *exists)
    assert "exists and is not a quality model" in fails(capsys, *exists, "--overwrite")
    assert (tmp_path / "text.txt").read_text() == "A text of a user.\n"
    assert "is the same file as --good" in fails(capsys, "--good", few, "--bad", bad, "--output", few, "--overwrite")
    assert not output.exists()


def test_a_model_is_replaced_on_request(folder, tmp_path, capsys):
    model = tmp_path / "model"
    model.write_bytes((folder / "model").read_bytes())
    flags = ["--good", folder / "bad.jsonl", "--bad", folder / "good.jsonl", "--output", model]
    assert "exists" in fails(capsys, *flags)
    assert train(*flags, "--overwrite") == 0
    assert model.read_bytes() != (folder / "model").read_bytes()


def test_classes_that_cannot_be_distinguished_are_a_warning(tmp_path, capsys):
    write_jsonl(tmp_path / "a.jsonl", texts(1, GOOD_WORDS, 300))
    write_jsonl(tmp_path / "b.jsonl", texts(2, GOOD_WORDS, 300))
    assert train("--good", tmp_path / "a.jsonl", "--bad", tmp_path / "b.jsonl", "--output", tmp_path / "m") == 0
    assert "is at chance (50%)" in " ".join(capsys.readouterr().err.split())


def test_records_that_are_not_read_are_counted(folder, tmp_path, capsys):
    path = write_jsonl(tmp_path / "good.jsonl", texts(1, GOOD_WORDS, 50))
    path.write_text(path.read_text() + '{"other": 1}\n{"text": "..."}\n')
    flags = ["--bad", folder / "bad.jsonl", "--output", tmp_path / "m"]
    assert train("--good", path, *flags, "--on_bad_record", "skip") == 0
    assert "--good 1 file, 50 documents, 2 without text or not readable\n" in capsys.readouterr().out


def test_the_commands_of_the_guide_run(folder, tmp_path, monkeypatch):
    for name, source in (("good", "good.jsonl"), ("bad", "bad.jsonl"), ("crawl", "bad.jsonl")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_bytes((folder / source).read_bytes())
    write_jsonl(tmp_path / "crawl" / "b.jsonl", texts(7, GOOD_WORDS, 200))
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/guides/quality-filter.md").read_text(encoding="utf-8")
    argvs = commands(text)
    assert [argv[0] for argv in argvs] == ["quality", "corpus"]
    for argv in argvs:
        assert cli.main([*argv, *(["--vocab_size", "60"] if argv[0] == "corpus" else [])]) == 0
    counts = json.loads((tmp_path / "corpus" / "corpus.json").read_text())["counts"]
    assert counts["documents_rejected"]["low_quality"] == 300


# In a corpus.


@pytest.fixture(scope="module")
def crawl(folder) -> Path:
    return write_jsonl(folder / "crawl.json", [*texts(5, GOOD_WORDS, 40), *texts(6, BAD_WORDS, 25)])


def flags_of(crawl: Path, output: Path, *flags: object) -> list[str]:
    argv = ["corpus", "--input", crawl, "--input_format", "jsonl", "--output", output, "--vocab_size", 60, *flags]
    return list(map(str, argv))


@pytest.fixture(scope="module")
def filtered(crawl, folder) -> Path:
    output = folder / "filtered"
    assert cli.main(flags_of(crawl, output, "--quality_model", folder / "model", "--min_quality", 0.5)) == 0
    return output


def test_a_corpus_counts_and_lists_rejected_documents(filtered, folder):
    manifest = json.loads((filtered / "corpus.json").read_text())
    assert manifest["counts"]["documents_rejected"] == {"low_quality": 25}
    assert manifest["counts"]["documents_read"] == 65
    options = manifest["options"]
    assert options["quality_model_sha256"] == hashlib.sha256((folder / "model").read_bytes()).hexdigest()
    assert (options["quality_model"], options["min_quality"]) == (str(folder / "model"), 0.5)
    lines = rejected(filtered)
    assert sorted(line["text"] for line in lines) == sorted(text[:200] for text in texts(6, BAD_WORDS, 25))
    assert {line["reason"] for line in lines} == {"low_quality"}
    assert all(0 <= float(line["quality"]) < 0.5 for line in lines)
    qualities = manifest["counts"]["qualities"]
    kept = {name: size for name, size in qualities.items() if name >= "0.5"}
    assert sum(size["documents"] for size in kept.values()) == 40
    assert sum(size["bytes"] for size in kept.values()) == manifest["counts"]["bytes"]
    assert sum(size["rejected"] for name, size in qualities.items() if name < "0.5") == 25
    assert not any("rejected" in size for size in kept.values())


def test_the_report_has_the_validation_of_the_model_and_the_documents_next_to_the_threshold(filtered, crawl, folder):
    counts = json.loads((filtered / "corpus.json").read_text())["counts"]
    model = quality_model.load(str(folder / "model"))
    assert msgspec.convert(counts["quality_model"], QualityModelReport) == model.report
    probabilities = [model.probability(json.loads(line)["text"]) for line in crawl.read_text().splitlines()]
    nearest = {
        "low_quality": sorted((each for each in probabilities if each < 0.5), reverse=True)[:3],
        "low_quality, kept": sorted(each for each in probabilities if each >= 0.5)[:3],
    }
    assert {rule: [float(sample["quality"]) for sample in samples] for rule, samples in counts["samples"].items()} == {
        rule: pytest.approx(expected, abs=1e-4) for rule, expected in nearest.items()
    }


def test_the_same_options_are_up_to_date_and_another_model_is_not(filtered, crawl, folder, capsys):
    argv = flags_of(crawl, filtered, "--quality_model", folder / "model", "--min_quality", 0.5)
    assert cli.main(argv) == 0
    assert "is up to date" in capsys.readouterr().out
    assert cli.main([*argv[:-1], "0.6"]) == 1
    assert "min_quality: 0.5 recorded, 0.6" in " ".join(capsys.readouterr().err.split())
    content = (folder / "model").read_bytes()
    (folder / "model").write_bytes(content[:-4] + b"\0\0\x80\x3f")
    try:
        assert cli.main(argv) == 1
        assert "quality_model_sha256" in capsys.readouterr().err
    finally:
        (folder / "model").write_bytes(content)


def test_a_pipeline_gives_the_same_corpus(filtered, crawl, folder, tmp_path):
    rows = [json.loads(line)["text"] for line in crawl.read_text().splitlines()]
    with beam.Pipeline() as pipeline:
        documents = pipeline | beam.Create([Document([text]) for text in rows]) | SegmentSentences()
        checked = documents | RejectLowQuality(str(folder / "model"), 0.5)
        _ = checked | WriteCorpus(str(tmp_path / "out"), vocab_size=60, num_partitions=1)
    assert digests(tmp_path / "out", "vocab.txt") == digests(filtered, "vocab.txt")
    ours, theirs = (json.loads((path / "corpus.json").read_text())["options"] for path in (tmp_path / "out", filtered))
    for name in ("quality_model", "min_quality", "quality_model_sha256"):
        assert ours[name] == theirs[name]
    texts_of = [sorted(row["sentences"][0] for row in corpus_rows(path)) for path in (tmp_path / "out", filtered)]
    assert texts_of[0] == texts_of[1]


def test_a_model_that_changes_during_a_job_stops_it(folder, tmp_path):
    path = tmp_path / "model"
    path.write_bytes((folder / "model").read_bytes())
    transform = RejectLowQuality(str(path), 0.5)
    path.write_bytes((folder / "model").read_bytes()[:-4] + b"\0\0\x80\x3f")
    with pytest.raises(Exception, match="has changed since the job started"), beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([Document(["A text."])]) | SegmentSentences() | transform


def test_a_rejected_document_stays_as_it_is(folder):
    with beam.Pipeline() as pipeline:
        documents = pipeline | beam.Create([Document(["Login menu."], rejected="spam")])
        found = documents | RejectLowQuality(str(folder / "model"), 0.5)
        assert_that(found | beam.Map(lambda document: document.rejected), equal_to(["spam"]))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--min_quality", "0.5"], "--min_quality 0.5 has no effect without --quality_model"),
        (["--quality_model", "{}/model"], "--quality_model requires --min_quality above 0"),
        (["--quality_model", "{}/none", "--min_quality", "0.5"], "/none does not exist"),
        (["--quality_model", "{}/good.jsonl", "--min_quality", "0.5"], "is not a quality model"),
    ],
)
def test_invalid_flags_of_a_corpus_are_one_line(flags, says, crawl, folder, tmp_path, capsys):
    assert cli.main(flags_of(crawl, tmp_path / "out", *(flag.format(folder) for flag in flags))) == 1
    err = capsys.readouterr().err
    assert says in " ".join(err.split())
    assert "Traceback" not in err
