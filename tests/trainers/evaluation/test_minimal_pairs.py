"""Test reading the layouts of minimal pairs, and sampling pairs."""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from beambert.trainers.errors import TaskDataError
from beambert.trainers.evaluation.input_files import find_files
from beambert.trainers.evaluation.minimal_pairs import MinimalPair, read_pairs, sample_pairs


def read(path, layout=None):
    return read_pairs("--pairs", [str(path)], layout)


def blimp_line(**changes):
    record = {"sentence_good": "she runs", "sentence_bad": "she run", "field": "morphology", "UID": "agreement_1"}
    record |= {"linguistics_term": "subject_verb_agreement", "pairID": "0", "simple_LM_method": True}
    return json.dumps({name: value for name, value in (record | changes).items() if value != "absent"}) + "\n"


def test_blimp_takes_the_paradigm_and_the_phenomenon(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        "\ufeff"
        + blimp_line()
        + "\n"
        + blimp_line(linguistics_term="s-selection", UID="animate")
        + blimp_line(linguistics_term="absent", UID=None)
        + blimp_line(linguistics_term="absent", field="absent").replace("\n", "\r\n"),
        encoding="utf-8",
    )
    assert read(path) == [
        MinimalPair("she runs", "she run", "agreement_1", "subject_verb_agreement", str(path), 1),
        MinimalPair("she runs", "she run", "animate", "argument_structure", str(path), 3),
        MinimalPair("she runs", "she run", "a", "morphology", str(path), 4),
        MinimalPair("she runs", "she run", "agreement_1", "", str(path), 5),
    ]


def test_zorro_has_the_bad_sentence_first(tmp_path):
    path = tmp_path / "agreement_subject_verb-across_relative_clause.txt"
    path.write_text("the dog run .\nthe dog runs .\nbad two\ngood\u2028two\n\n", encoding="utf-8")
    paradigm = "agreement_subject_verb-across_relative_clause"
    assert read(path) == [
        MinimalPair("the dog runs .", "the dog run .", paradigm, "agreement_subject_verb", str(path), 1),
        MinimalPair("good\u2028two", "bad two", paradigm, "agreement_subject_verb", str(path), 3),
    ]


def test_tsv_has_the_good_sentence_first(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text('Good\tBad\tparadigm\tfield\na "b\tc\nd\te\tp\nf\tg\tp\tq\n', encoding="utf-8")
    assert [pair[:4] for pair in read(path)] == [
        ('a "b', "c", "mine", ""),
        ("d", "e", "p", ""),
        ("f", "g", "p", "q"),
    ]


@pytest.mark.parametrize(
    "header",
    [
        "sentence_good\tsentence_bad",
        "Good sentence\tBad sentence\tUID",
        "good\tbad\tcategory\tfield",
        "Grammatical\tUngrammatical",
        " acceptable sentences\tunacceptable sentences",
    ],
)
def test_tsv_with_other_column_names(tmp_path, header):
    path = tmp_path / "mine.tsv"
    path.write_text(f"{header}\na\tb\n", encoding="utf-8")
    assert [pair[:2] for pair in read(path)] == [("a", "b")]


def test_sentences_that_begin_like_a_header_are_a_pair(tmp_path):
    path = tmp_path / "mine.tsv"
    for row in ("Good dogs run.\tBad dogs runs.", "good\tgoodest", "good\tbadly\tword_form"):
        path.write_text(f"{row}\n", encoding="utf-8")
        assert ["\t".join(pair[:2]) for pair in read(path)] == ["\t".join(row.split("\t")[:2])]


def test_a_file_under_two_spellings_is_read_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a\tb\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("a.tsv")
    paths = ["a.tsv", str(tmp_path / "a.tsv"), "./*.tsv", "link", str(tmp_path)]
    assert find_files("--pairs", paths, [".tsv"]) == [Path("a.tsv")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "one\ntwo\nthree\n", "a.txt has 3 lines, an odd number"),
        ("a.txt", "one\n\ntwo\nthree\n", "a.txt, line 1: a sentence is empty"),
        ("a.tsv", "one\n", "a.tsv, line 1 has 1 columns"),
        ("a.tsv", "a\tb\tc\td\te\n", "a.tsv, line 1 has 5 columns"),
        ("a.tsv", "a\tb\na\t \n", "a.tsv, line 2: a sentence is empty"),
        ("a.tsv", "bad\tgood\nb\ta\n", "a.tsv, line 1 is a header with the columns bad, good: must be good, bad"),
        ("a.tsv", "Sentence_bad\tsentence_good\tUID\nb\ta\tp\n", "a.tsv, line 1 is a header"),
        ("a.tsv", "uid\tgood\tbad\np\ta\tb\n", "a.tsv, line 1 is a header"),
        ("a.tsv", "wrong\tright\tParadigm\nb\ta\tp\n", "a.tsv, line 1 is a header"),
        ("a.jsonl", "{}\n", "a.jsonl, line 1: .*sentence_good"),
        ("a.jsonl", "[1]\n", "a.jsonl, line 1: "),
        ("a.jsonl", blimp_line() + blimp_line(sentence_bad=None), "a.jsonl, line 2: sentence_bad"),
        ("a.jsonl", blimp_line()[:-9], "a.jsonl, line 1: "),
        ("a.jsonl", "", "has no minimal pairs"),
        ("a.csv", "a,b\n", "set it with --pairs_layout"),
        ("a.txt", "a\nb\n".encode("utf-16"), "is UTF-16"),
        ("a.txt", b"a\n\xff\n", "line 2: byte 0xff is not UTF-8"),
    ],
)
def test_mistakes_name_file_and_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TaskDataError, match=message):
        read(path)


def test_a_layout_may_be_set(tmp_path):
    path = tmp_path / "pairs.data"
    path.write_text("a\tb\n", encoding="utf-8")
    assert read(path, "tsv")[0].good == "a"
    path.write_text("a\nb\n", encoding="utf-8")
    assert read(path, "zorro")[0].good == "b"


def test_directories_and_patterns(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "__MACOSX").mkdir()
    for name in ("data/b.jsonl", "a.jsonl", "data/._b.jsonl", "__MACOSX/c.jsonl", "readme.md"):
        (tmp_path / name).write_text(blimp_line(), encoding="utf-8")
    assert [pair.path.removeprefix(f"{tmp_path}/") for pair in read(tmp_path)] == ["a.jsonl", "data/b.jsonl"]
    (tmp_path / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(TaskDataError, match=r"has \.jsonl and \.txt files: give a pattern such as \*\.jsonl"):
        read(tmp_path)
    assert len(read(tmp_path, "blimp")) == 2
    assert [pair.good for pair in read(tmp_path, "zorro")] == ["two"]
    assert len(read_pairs("--pairs", [f"{tmp_path}/*/*.jsonl", f"{tmp_path}/data/b.jsonl"])) == 2
    for path, message in (
        (tmp_path / "none", "does not exist"),
        (tmp_path / "*.xml", "matches no file"),
        (tmp_path / "data/__MACOSX", "does not exist"),
    ):
        with pytest.raises(TaskDataError, match=message):
            read(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskDataError, match=r"is an empty directory, but no \.jsonl, \.txt or \.tsv file"):
        read(tmp_path / "empty")


@pytest.mark.skipif(sys.platform == "darwin", reason="the filesystem requires UTF-8 names")
def test_names_that_are_not_utf8_are_escaped_in_paradigms(tmp_path):
    zorro, blimp = (os.fsencode(tmp_path) + name for name in (b"/f\xe9ld-caf\xe9.txt", b"/caf\xe9.jsonl"))
    for path, content in ((zorro, "bad\ngood\n"), (blimp, blimp_line(UID=None))):
        Path(os.fsdecode(path)).write_text(content, encoding="utf-8")
    (tmp_path / "caf\u00e9.tsv").write_text("a\tb\n", encoding="utf-8")
    names = [pair[2:4] for pair in read_pairs("--pairs", [f"{tmp_path}/*"])]
    assert sorted(names) == [
        ("caf\\xe9", "subject_verb_agreement"),
        ("caf\u00e9", ""),
        ("f\\xe9ld-caf\\xe9", "f\\xe9ld"),
    ]


def test_a_sample_is_even_and_depends_on_the_sentences_alone():
    sizes = {"a": 50, "b": 3, "c": 50}
    pairs = [
        MinimalPair(f"good {name} {n}", f"bad {name} {n}", name, "", "file", n)
        for name, size in sizes.items()
        for n in range(size)
    ]
    sample = sample_pairs(pairs, 21)
    assert Counter(pair.paradigm for pair in sample) == {"a": 9, "b": 3, "c": 9}
    assert sample == [pair for pair in pairs if pair in sample]
    assert set(sample_pairs(pairs[::-1], 21)) == set(sample)
    assert set(sample_pairs(pairs, 20)) < set(sample)
    assert {pair.line for pair in sample if pair.paradigm == "a"} != set(range(9))
    assert sample_pairs(pairs, None) == sample_pairs(pairs, 1000) == pairs


def test_blimp_has_67_paradigms_in_12_fields(shared_data, tmp_path):
    import tarfile

    from beambert.trainers.evaluation.pair_scores import published_accuracies

    with tarfile.open(shared_data / "blimp" / "blimp.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    pairs = read(tmp_path)
    groups = {(pair.field, pair.paradigm) for pair in pairs}
    assert (len(pairs), len(groups)) == (67_000, 67)
    assert published_accuracies({field for field, _ in groups}, 67)[0] == "BLiMP"
