"""Tests of the fields of contaminated documents in `rejected/*.jsonl`, and of the folder in the printed summary."""

import json
import re
from pathlib import Path

import pytest

import beambert

QUESTION = "Which of the many rivers of the northern plain flows past the old town of bricks?"
ANSWER = "It is the slow one, with seven bridges and a mill, that turns to the west behind the hills."
OTHERS = "\n".join(f"Line {name} of a document that is in no evaluation file at all." for name in ("one", "two"))


@pytest.fixture
def evaluation(tmp_path) -> list[Path]:
    (tmp_path / "dev.json").write_text(json.dumps({"data": [{"question": QUESTION}]}))
    (tmp_path / "dev.tsv").write_text(f"0\t{ANSWER}\n")
    return [tmp_path / "dev.json", tmp_path / "dev.tsv"]


def corpus(folder: Path, texts: dict[str, str], *flags: object) -> list[dict]:
    """Build a corpus and return the lines of its `rejected/*.jsonl`."""
    path = folder / "text.jsonl"
    path.write_text("".join(json.dumps({"title": title, "text": text}) + "\n" for title, text in texts.items()))
    argv = ["corpus", "--input", path, "--output", folder / "out", "--vocab_size", 60, "--validation_fraction", 0]
    assert beambert.main([str(word) for word in [*argv, *flags, "--direct_num_workers", 1]]) == 0
    paths = sorted((folder / "out").glob("rejected/*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


@pytest.mark.parametrize("action", ["drop", "report"])
def test_a_contaminated_document_names_file_and_words(tmp_path, evaluation, capsys, action):
    texts = {
        "asks": f"{OTHERS}\nSomebody asked: {QUESTION.upper()}",
        "answers": f"{ANSWER} {OTHERS}",
        "both": f"{ANSWER}\n{QUESTION}",
        "neither": f"{OTHERS}\nNothing else.",
        "more": f"{OTHERS}\nNothing but this.",
    }
    lines = corpus(tmp_path, texts, "--decontaminate", *evaluation, "--decontaminate_action", action)
    reason = "contaminated" if action == "drop" else "contaminated, kept"
    found = {line["title"]: line for line in lines if line["reason"] == reason}
    expected = {"asks": (0, QUESTION), "answers": (1, ANSWER), "both": (1, ANSWER)}
    assert found.keys() == expected.keys()
    for title, (number, text) in expected.items():
        assert found[title]["evaluation_file"] == str(evaluation[number])
        assert found[title]["matching_words"].split() == words(text)[:13]
    assert f"  rejected    {tmp_path}/out/rejected/" in capsys.readouterr().out


def test_other_rules_have_no_fields_of_contamination(tmp_path, evaluation):
    texts = {"a": OTHERS, "b": OTHERS, "c": f"{OTHERS}\nNothing else.", "d": "12 34 56 78 90 " * 20}
    lines = corpus(tmp_path, texts, "--decontaminate", *evaluation)
    assert {line["reason"] for line in lines} >= {"duplicate"}
    assert not any(line.keys() & {"evaluation_file", "matching_words"} for line in lines)


def test_the_summary_does_not_name_an_empty_folder(tmp_path, capsys):
    assert corpus(tmp_path, {"a": OTHERS, "b": f"{OTHERS}\nNothing else."}) == []
    assert "rejected    " not in capsys.readouterr().out
