"""Tests of cleaning by `beambert corpus`: dropped text, its list and counts, and invalid flags."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from beambert import cli
from beambert.pipelines.commands import corpus_run
from beambert.pipelines.errors import DatasetError
from tests.every_output import corpus_rows, rejected

SMALL = ["--vocab_size", "90", "--validation_fraction", "0", "--num_partitions", "2"]
FIRST = "The quick brown fox of the north jumps over the lazy dog of the south every day"


@pytest.fixture
def texts(tmp_path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    lines = [
        {"text": f"{FIRST}.[1]\nHistory[edit]\n* * *\nRead more\nIt is number 0."},
        {"text": "An article about R&amp;D in the west.\nRead more\nIt tells of many things."},
        {"text": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21"},
        {"text": "The last one stays whole. Nothing is wrong with it."},
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pyarrow.parquet.write_table(pyarrow.table({"text": ["A row of a table. It has two sentences."]}), folder / "b")
    return folder


def corpus(texts: Path, output: Path, *flags: str) -> tuple[dict, list[dict], list[str]]:
    argv = ["corpus", "--input", f"{texts}/*", "--output", str(output), *SMALL, *flags]
    assert cli.main(argv) == 0
    counts = json.loads((output / "corpus.json").read_text())["counts"]
    sentences = [sentence for document in corpus_rows(output) for sentence in document["sentences"]]
    return counts, rejected(output), sentences


def test_what_is_dropped_is_counted_and_listed(texts, tmp_path):
    counts, lines, sentences = corpus(texts, tmp_path / "out")
    assert counts["documents_read"] == 5
    assert counts["documents_rejected"] == {"digits": 1}
    assert counts["paragraphs_cleaned"] == {
        "boilerplate": 2,
        "editorial_marks": 2,
        "no_letters": 1,
        "residual_markup": 1,
    }
    assert sorted((line["reason"], line["text"][:9]) for line in lines) == [
        ("boilerplate", "Read more"),
        ("boilerplate", "Read more"),
        ("digits", "1 2 3 4 5"),
        ("no_letters", "* * *"),
    ]
    assert all(len(line["id"]) == 32 and line["source"].endswith("a.jsonl") for line in lines)
    assert FIRST + "." in sentences
    assert "An article about R&D in the west." in sentences
    assert "It has two sentences." in sentences


def test_skipped_rules_and_thresholds(texts, tmp_path, capsys):
    skipped = "boilerplate,digits,non_letters,no_letters"
    counts, _, sentences = corpus(texts, tmp_path / "out", "--skip_rules", skipped)
    assert "Read more" in sentences
    assert counts["documents_rejected"] == {}
    # The summary does not name an empty folder.
    assert "rejected    " not in capsys.readouterr().out
    counts, _, _ = corpus(texts, tmp_path / "more", "--min_words", "11")
    assert counts["documents_rejected"] == {"digits": 1, "too_short": 2}


def test_a_job_does_not_resume_with_other_code_of_a_filter(texts, tmp_path, monkeypatch):
    work_of_jobs = []

    def stop(output, content, name):
        work_of_jobs.append(content)
        raise DatasetError("stopped before the job")

    monkeypatch.setattr(corpus_run, "work_directory", stop)
    monkeypatch.syspath_prepend(tmp_path)
    for limit in (3, 3, 4):
        (tmp_path / "filters_of_a_user.py").write_text(f"def is_short(document): return len(document.text) < {limit}\n")
        argv = ["corpus", "--input", f"{texts}/*", "--output", f"{tmp_path}/out", *SMALL]
        assert cli.main([*argv, "--filter", "filters_of_a_user:is_short"]) == 1
    assert work_of_jobs[0] == work_of_jobs[1] != work_of_jobs[2]


def test_decontamination(texts, tmp_path, capsys):
    evaluation = tmp_path / "dev.tsv"
    evaluation.write_text(f"id\ttext\n1\t{FIRST.upper()}\n")
    counts, lines, sentences = corpus(texts, tmp_path / "out", "--decontaminate", str(evaluation))
    assert counts["documents_rejected"] == {"contaminated": 1, "digits": 1}
    assert "It is number 0." not in sentences
    found = {line["reason"]: (line.get("evaluation_file"), line.get("matching_words")) for line in lines}
    assert found["contaminated"] == (str(evaluation), " ".join(FIRST.lower().split()[:13]))
    assert found["digits"] == (None, None)
    flags = ["--decontaminate", str(evaluation), "--decontaminate_action", "report"]
    counts, lines, sentences = corpus(texts, tmp_path / "report", *flags)
    assert counts["documents_rejected"] == {"digits": 1}
    assert counts["documents_reported"] == {"contaminated": 1}
    assert (
        f"reported    {tmp_path}/report/rejected/  documents kept, by rule: 1 contaminated" in capsys.readouterr().out
    )
    assert [line["text"][: len(FIRST)] for line in lines if line["reason"] == "contaminated, kept"] == [FIRST]
    assert "It is number 0." in sentences


@pytest.mark.parametrize("has_vocabulary", [True, False], ids=["vocab_file", "learned"])
def test_an_error_without_training_documents_names_only_lists_that_exist(tmp_path, capsys, has_vocabulary):
    (tmp_path / "header.csv").write_text("id,text\n")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    argv = ["corpus", "--input", str(tmp_path / "header.csv"), "--output", str(tmp_path / "out")]
    assert cli.main([*argv, *(["--vocab_file", str(tmp_path / "vocab.txt")] if has_vocabulary else [])]) == 1
    assert not (tmp_path / "out" / "rejected").exists()
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--validation_fraction" in error
    assert ("the training split has no words" in error) is not has_vocabulary
    assert not (tmp_path / "out" / "corpus.json").exists()
    assert not list(tmp_path.rglob("*.tmp"))
    assert "rejected/*.jsonl" not in error.replace("any rejected/*.jsonl", "")


def test_language(texts, tmp_path):
    pytest.importorskip("py3langid", reason="the extra [clean] is not installed")
    german = (
        "Der Hund lief durch den Wald und suchte seinen Herrn, der lange fort gewesen war. Es wurde dunkel, niemand "
        "kam ihm entgegen. Erst am Morgen fand er das kleine Haus am Fluss wieder, in dem die Kinder noch schliefen."
    )
    (texts / "c.jsonl").write_text(json.dumps({"text": german}))
    counts, _, _ = corpus(texts, tmp_path / "out", "--identify_language")
    assert counts["documents_rejected"] == {"digits": 1, "language": 1}
