"""Test `--abbreviations`: the sentences, the recorded content, resuming, and files that are not such a list."""

import json
from pathlib import Path

import apache_beam as beam
import pyarrow.parquet
import pytest
from apache_beam.testing.util import assert_that, equal_to

from beambert import cli
from beambert.pipelines.documents import Document
from beambert.pipelines.errors import SourceError
from beambert.pipelines.segmentation.own_abbreviations import read_abbreviations
from beambert.pipelines.transforms.documents import SegmentSentences

TEXT = "Das gilt bzgl. Haus und Hof. Siehe qx. Nord und ut zz. Süd."
JOINED = ["Das gilt bzgl. Haus und Hof.", "Siehe qx. Nord und ut zz. Süd."]


@pytest.fixture
def run(tmp_path, capsys):
    """Run `beambert corpus` with the abbreviations of a file, and return (exit status, output, sentences)."""
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"Text {number} ist da. {TEXT}\n", encoding="utf-8")

    def command(content: str | bytes, *flags: str, name: str = "abbreviations.txt") -> tuple[int, str, list[str]]:
        path = tmp_path / "lists" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        argv = ["corpus", "--input", f"{tmp_path}/*.txt", "--output", str(tmp_path / "out"), "--vocab_size", "60"]
        argv += ["--num_partitions", "2", "--validation_fraction", "0", "--abbreviations", str(path), *flags]
        status = cli.main(argv)
        captured = capsys.readouterr()
        tables = map(pyarrow.parquet.read_table, sorted((tmp_path / "out").glob("corpus/*.parquet")))
        rows = [row for table in tables for row in table.to_pylist()]
        return status, captured.out + captured.err, rows[0]["sentences"][1:] if rows else []

    return command


def test_the_content_is_an_option_of_the_corpus(run, tmp_path):
    status, _, sentences = run("bzgl.\n\nqx\nut  zz.\n")
    assert (status, sentences) == (0, JOINED)
    options = json.loads((tmp_path / "out" / "corpus.json").read_text())["options"]
    assert options["abbreviations"] == "bzgl\nqx\nut zz"
    assert "abbreviations.txt" not in json.dumps(options)
    # Another file with the same abbreviations is the same option.
    status, output, _ = run("ut zz\r\nqx.\nbzgl\n", name="other.txt")
    assert status == 0
    assert "is up to date" in output
    status, output, _ = run("bzgl.\n")
    assert status == 1
    assert "with other options (abbreviations: 'bzgl\\nqx\\nut zz' recorded, 'bzgl' requested)" in output


def test_many_other_abbreviations_are_one_short_line(run):
    assert run("".join(f"abk{letter}{other}.\n" for letter in "abcdefghij" for other in "klmnopqrst"))[0] == 0
    status, output, _ = run("bzgl.\n")
    assert status == 1
    assert "abbreviations: 'abkak\\nabkal" in output
    assert max(map(len, output.splitlines())) < 400


@pytest.mark.slow
def test_workers_have_the_abbreviations(run):
    flags = ["--direct_num_workers", "2", "--direct_running_mode", "multi_processing"]
    status, _, sentences = run("bzgl\nqx\nut zz", *flags)
    assert (status, sentences) == (0, JOINED)


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        (b"\xff\xfe", [], "abbreviations.txt is not UTF-8 text"),
        ("\n \n", [], "abbreviations.txt has no abbreviations"),
        ("bzgl.\n...\n", [], "abbreviations.txt, line 2: '..' is not an abbreviation of a letter or more"),
        ("a" * 41, [], f"line 1: '{'a' * 40}' is not an abbreviation of a letter or more and fewer than 40"),
        ("bzgl.", ["--segmenter", "lines"], "has no effect on --segmenter lines; leave one of them out"),
    ],
)
def test_a_file_that_is_no_list_is_refused(run, content, flags, message):
    status, output, _ = run(content, *flags)
    assert status == 1
    (line,) = [line for line in output.splitlines() if "--abbreviations" in line]
    assert message in line


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    for path, problem in ((tmp_path, "cannot be read"), (tmp_path / "none.txt", "does not exist")):
        with pytest.raises(SourceError, match=f"--abbreviations {path} {problem}"):
            read_abbreviations(str(path))


def test_the_transform_reads_the_file_when_the_pipeline_runs(tmp_path):
    path = Path(tmp_path / "own.txt")
    segment = SegmentSentences("de", abbreviations=str(path))
    path.write_text("bzgl.\nqx.\nut zz.\n")
    with beam.Pipeline() as pipeline:
        documents = pipeline | beam.Create([Document([TEXT])]) | segment
        assert_that(documents | beam.FlatMap(lambda document: document.sentences), equal_to(JOINED))
