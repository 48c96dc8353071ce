"""Tests of `beambert corpus` with invalid or unsuitable files, records and flags."""

import json
import zipfile
from pathlib import Path

import pytest

from beambert import cli
from beambert.pipelines.commands.input_files import _sample, check_inputs
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import Input
from tests.conftest import without_progress
from tests.every_output import rejected

RIVERS = ["Rhine", "Elbe", "Oder", "Weser", "Danube", "Main", "Neckar", "Spree", "Havel", "Inn", "Isar", "Lech"]


def texts() -> list[str]:
    return [
        f"The {river} was high on day {number}.\nIts water rose {number} feet, says the {other}."
        for number, (river, other) in enumerate(zip(RIVERS, RIVERS[1:] + RIVERS[:1], strict=True))
    ]


def records() -> list[dict]:
    return [{"key": f"k{number}", "body": text, "title": f"T{number}"} for number, text in enumerate(texts())]


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def corpus(output: Path, *flags: object) -> int:
    argv = ["corpus", "--output", output, "--vocab_size", "60", "--num_partitions", "2", *flags]
    return cli.main([*map(str, argv), "--validation_fraction", "0"])


def counts(output: Path) -> dict:
    return json.loads((output / "corpus.json").read_text())["counts"]


# Invalid lines by the reason of their rejection.
BAD = {
    "null_text": '{"key": "k50", "body": null}',
    "missing_text": '{"key": "k51", "text": "Other field."}',
    "not_text": '{"key": "k52", "body": 3.5}',
    "broken_record": '{"key": "k53", "body": "cut',
}


def lines_with_bad_ones() -> list[str]:
    lines = list(map(json.dumps, records()))
    for number, line in enumerate(BAD.values()):
        lines.insert(2 * number + 1, line)
    return lines


def test_bad_records_are_left_out_counted_and_listed(tmp_path, capsys):
    path = write_lines(tmp_path / "a.jsonl", lines_with_bad_ones())
    flags = ["--input", path, "--text_field", "body", "--on_bad_record", "skip", "--id_field", "key"]
    assert corpus(tmp_path / "out", *flags) == 0
    captured = capsys.readouterr()
    assert "rejected 4 of 16 records as invalid (1 null_text, " in captured.err
    assert "1 broken_record" in captured.out
    found = counts(tmp_path / "out")
    assert found["documents_rejected"] == dict.fromkeys(sorted(BAD), 1)
    assert found["documents"]["train"] == 12
    listed = {line["reason"]: line for line in rejected(tmp_path / "out")}
    lines = path.read_text().splitlines()
    for reason, line in BAD.items():
        assert listed[reason]["source"] == str(path)
        assert listed[reason]["line"] == lines.index(line) + 1
        assert listed[reason]["text"] == line
    # A line that is not valid JSON has no fields.
    assert {reason: line.get("source_id") for reason, line in listed.items()} == {
        "null_text": "k50",
        "missing_text": "k51",
        "not_text": "k52",
        "broken_record": None,
    }


def test_vocab_says_what_it_left_out(tmp_path, capsys):
    path = write_lines(tmp_path / "a.jsonl", lines_with_bad_ones())
    argv = ["vocab", "--input", path, "--output", tmp_path / "vocab.txt", "--vocab_size", 60, "--text_field", "body"]
    assert cli.main(list(map(str, [*argv, "--on_bad_record", "skip"]))) == 0
    assert (
        "rejected    documents by rule: 1 broken_record, 1 missing_text, 1 not_text, 1 null_text"
        in capsys.readouterr().out
    )


def test_rejected_documents_have_line_and_identifier(tmp_path):
    lines = [*records(), {"key": "again", "body": texts()[4], "title": "T4"}, {"key": "empty", "body": ""}]
    path = write_lines(tmp_path / "a.jsonl", list(map(json.dumps, lines)))
    assert corpus(tmp_path / "out", "--input", path, "--text_field", "body", "--id_field", "key") == 0
    found = {line["reason"]: (line["line"], line["source_id"]) for line in rejected(tmp_path / "out")}
    assert found["no_text"] == (14, "empty")
    assert found["duplicate"] in {(5, "k4"), (13, "again")}


def test_a_folder_of_archives_is_refused_by_name_before_anything_is_written(tmp_path, capsys):
    folder = tmp_path / ("a-name-of-some-length" * 2)
    folder.mkdir()
    (folder / "good.txt").write_text("\n\n".join(texts()))
    for name in ("a.zip", "b.zip", "c.zip", "d.zip", "e.zip"):
        zipfile.ZipFile(folder / name, "w").close()
    assert corpus(tmp_path / "out", "--input", f"{folder}/*") == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "/a.zip is a zip archive or office document; unpack it first (unzip FILE)" in error
    assert "4 more input files cannot be read" in error
    assert "/b.zip and 3 more" in error
    assert not (tmp_path / "out/corpus.json").exists()


def test_a_field_is_refused_where_no_file_has_fields(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("\n\n".join(texts()))
    for flags in (["--text_field", "text"], ["--id_field", "key"], ["--text_field", "text", "--input_format", "text"]):
        assert corpus(tmp_path / "out", "--input", tmp_path / "a.txt", *flags) == 1
        error = capsys.readouterr().err
        assert f"{flags[0]} {flags[1]} has no effect: no --input file has fields ({tmp_path}/a.txt)" in error


PAGE = """<div class="nav"><ul><li><a href="/">Home</a></li><li><a href="/x">More</a></li></ul></div>
<script>var a = {{"b": {number}}}; if (a < 3) {{ document.write("x"); }}</script>
<style>.nav {{ color: red }}</style><p>{text}</p>"""


def test_html_in_records_is_warned_of(tmp_path, capsys):
    pages = [{"text": PAGE.format(number=number, text=text)} for number, text in enumerate(texts())]
    path = write_lines(tmp_path / "a.jsonl", list(map(json.dumps, pages)))
    assert corpus(tmp_path / "out", "--input", path, "--vocab_size", 80) == 0
    error = capsys.readouterr().err
    assert "12 of 12 documents (100%) contain HTML, so scripts, styles and menus become training text" in error
    assert "read a field with pages with --html_field" in error
    assert counts(tmp_path / "out")["documents_reported"] == {"html_tags": 12}
    assert cli.main(["pretraining-data", "--input", f"{tmp_path}/out", "--output", f"{tmp_path}/data"]) == 0
    manifest = json.loads((tmp_path / "data/dataset.json").read_text())
    assert any("12 of 12 documents (100%) contain HTML" in line for line in manifest["counts"]["warnings"])
    capsys.readouterr()
    assert corpus(tmp_path / "pages", "--input", path, "--vocab_size", 80, "--html_field", "text") == 0
    assert "HTML" not in capsys.readouterr().err
    assert counts(tmp_path / "pages")["documents_reported"] == {}


@pytest.mark.slow
def test_an_error_of_a_worker_process_is_one_line(tmp_path, capfd):
    path = write_lines(tmp_path / "a.jsonl", lines_with_bad_ones())
    assert corpus(tmp_path / "out", "--input", path, "--text_field", "body", "--direct_num_workers", 2) == 1
    lines = without_progress(capfd.readouterr().err)
    assert len(lines) == 1, lines
    assert "field 'body' is null" in lines[0]


def inputs(*paths: object) -> list[Input]:
    return [Input(str(path), 1, 0, "*", 1.0) for path in paths]


def test_sample_size_is_bounded_for_any_file_names():
    names = [f"texts/part.{number:05d}" for number in range(20_000)]
    assert len(_sample(inputs(*names))) <= 5_000
    assert len(_sample(inputs(*(f"{name}.bz2" for name in names)))) <= 200
    assert len(_sample(inputs(*(f"gs://bucket/{name}" for name in names)))) <= 30


def test_sample_has_every_suffix():
    names = [*(f"a{number}.txt" for number in range(3_000)), "b.jsonl", "c.zip", "d.txt.gz"]
    assert {"b.jsonl", "c.zip", "d.txt.gz"} <= {each.path for each in _sample(inputs(*names))}


def test_a_sample_without_fields_refuses_nothing(tmp_path, capsys):
    """Warn only, since a file outside the sample may have the field."""
    paths = [tmp_path / f"{number:04d}" for number in range(1_001)]
    for path in paths:
        path.write_text("Some text.")
    paths[-1].write_text('{"body": "Some text."}')
    check_inputs(inputs(*paths), ReadOptions(text_field="body"), ["--text_field body"])
    assert "has no effect on 1,000 of 1,000 input files checked" in capsys.readouterr().err
    with pytest.raises(SourceError, match="no --input file has fields"):
        check_inputs(inputs(*paths[:3]), ReadOptions(text_field="body"), ["--text_field body"])
