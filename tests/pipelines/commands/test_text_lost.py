"""Tests of the count of text bytes that rules remove, by input and rule, and of the warning if most is removed."""

import json
import random
from collections import Counter

import pytest

from beambert import cli
from beambert.pipelines.cleaning.rules import CleaningOptions, clean_paragraphs
from beambert.pipelines.corpus.corpus_warnings import loss_warnings

_OPTIONS = ["--vocab_size", "300", "--validation_fraction", "0", "--num_partitions", "2"]


def _prose(seed: int, sentences: int) -> str:
    generator = random.Random(seed)
    words = ["".join(generator.choices("abcdefghijklmnop", k=generator.randint(2, 8))) for _ in range(2000)]
    lines = [" ".join(generator.choices(words, k=12)).capitalize() + "." for _ in range(sentences)]
    return " ".join(lines)


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lossy")
    (folder / "good.txt").write_text(_prose(1, 100))
    (folder / "more.txt").write_text(_prose(2, 100))
    # One file has 40 lines of code and a sentence, the other only numbers.
    code = "\n\n".join(f'|style="width:{n}px; padding:0;"| {n}' for n in range(40))
    (folder / "code.txt").write_text(f"{code}\n\nIt was a wet day in May.")
    (folder / "numbers.txt").write_text(" ".join(str(n) for n in range(500)))
    return folder


def test_an_input_that_is_mostly_lost_is_named_with_the_rules(lossy, tmp_path, capsys):
    code, numbers = str(lossy / "code.txt"), str(lossy / "numbers.txt")
    argv = ["corpus", "--input", str(lossy / "good.txt"), str(lossy / "more.txt"), code, numbers]
    assert cli.main([*argv, "--output", str(tmp_path / "data"), *_OPTIONS]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "cleaning removed" in line]
    assert len(lines) == 2
    assert f"--input {code}: cleaning removed 98% of the text: 98% by residual_markup" in lines[0]
    assert f"--input {numbers}: cleaning removed 100% of the text: 100% by digits" in lines[1]
    assert all("; see rejected/" in line for line in lines)
    inputs = json.loads((tmp_path / "data/corpus.json").read_text())["counts"]["inputs"]
    assert inputs[numbers]["bytes_lost"] == {"digits": (lossy / "numbers.txt").stat().st_size}
    assert inputs[code]["bytes"] == len("It was a wet day in May.")


def test_a_file_among_many_that_is_mostly_lost_is_named(lossy, tmp_path, capsys):
    argv = ["corpus", "--input", str(lossy / "*.txt"), "--output", str(tmp_path / "data"), *_OPTIONS]
    assert cli.main(argv) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "cleaning removed" in line]
    assert [line.split(":")[0].split()[-1] for line in lines] == [f"{lossy}/numbers.txt", f"{lossy}/code.txt"]


def test_duplicates_are_counted_too():
    counts = {"inputs": {"a": {"bytes": 40, "bytes_lost": {"duplicate": 50, "digits": 10}}}}
    (line,) = loss_warnings(counts, "out/rejected/")
    assert line.startswith(
        "--input a: cleaning removed 60% of the text: 50% by duplicate, 10% by digits; see out/rejected/"
    )


def test_text_that_is_kept_is_not_counted_as_removed():
    counts = {
        "inputs": {"a": {"bytes": 1, "bytes_lost": {"digits": 999}}, "b": {"bytes": 0, "bytes_lost": {"digits": 9}}}
    }
    lines = loss_warnings(counts, "out/rejected/")
    assert ["more than 99% of the text" in line for line in lines] == [True, False]
    assert "removed 100% of the text" in lines[1]


def test_decoded_entities_are_not_counted_as_removed():
    lost: Counter[str] = Counter()
    text = "".join(f"&#{ord(letter)};" for letter in "Добрый день всем")
    assert clean_paragraphs([text], CleaningOptions(), Counter(), None, lost) == ["Добрый день всем"]
    assert not lost.total()


def test_the_remedy_names_only_rules_that_can_be_skipped():
    counts = {"inputs": {"a": {"bytes": 10, "bytes_lost": {"duplicate": 90}}}}
    assert loss_warnings(counts, "d/rejected/") == [
        "--input a: cleaning removed 90% of the text: 90% by duplicate; see d/rejected/"
    ]
    counts["inputs"]["a"]["bytes_lost"] = {"residual_markup": 90}
    assert "; see d/rejected/; if this is not intended, use --skip_rules" in loss_warnings(counts, "d/rejected/")[0]


def test_text_that_a_reader_removes_is_counted_and_a_license_does_not_warn(tmp_path, capsys):
    start, end = (f"*** {mark} OF THIS PROJECT GUTENBERG EBOOK A TALE ***" for mark in ("START", "END"))
    title = "The Project Gutenberg EBook of A Tale, by Nobody"
    license_text = "\n\n".join(["Small print."] * 1500)
    parts = [title, start, "Produced by Somebody", "\n\n" + _prose(1, 200), end, license_text]
    (tmp_path / "book.txt").write_text("\n\n".join(parts))
    argv = ["corpus", "--input", str(tmp_path / "book.txt"), "--output", str(tmp_path / "data"), *_OPTIONS]
    assert cli.main(argv) == 0
    assert "cleaning removed" not in capsys.readouterr().err
    (counts,) = json.loads((tmp_path / "data/corpus.json").read_text())["counts"]["inputs"].values()
    lost = {"license": len(title + start + end) + 12 * 1500, "notes": len("Produced by Somebody")}
    assert counts["bytes_lost"] == lost
