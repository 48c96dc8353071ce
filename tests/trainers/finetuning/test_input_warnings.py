"""Tests of the warnings about texts from which a model learns nothing: empty ones, and those of [UNK]."""

import json
from html import unescape

from beambert import cli
from tests.trainers.finetuning.conftest import arguments
from tests.trainers.finetuning.tasks.squad_examples import write_squad


def run(tmp_path, initial, capsys, task, *flags):
    """Run `beambert finetune`, and return its warnings."""
    capsys.readouterr()
    assert cli.main(arguments(task, tmp_path, initial, tmp_path / "output", *flags)) == 0
    return [line.removeprefix("warning: ") for line in capsys.readouterr().err.splitlines()]


def test_unknown_words_are_the_first_warning_and_in_the_report(initial, tmp_path, capsys):
    for name in ("train", "dev"):
        rows = "".join(f"zoo qi {'quiz' if number % 2 else 'qua'}\t{number % 3 % 2}\n" for number in range(24))
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + rows, encoding="utf-8")
    warnings = run(tmp_path, initial, capsys, "csv")
    expected = [
        f"100.0% of the tokens of the {split} split are [UNK], such as 'zoo': the vocabulary lacks these words; use a "
        "model for the language of the text, or add words with beambert extend-vocab"
        for split in ("train", "dev")
    ]
    # Before training, and as the first lines of the summary.
    assert warnings[:2] == expected
    assert warnings[2:4] == sorted(expected)
    # Another seed does not help.
    assert "The model predicts the label" in warnings[4]
    assert not any("--seed" in line for line in warnings)
    report = (tmp_path / "output/report.html").read_text(encoding="utf-8")
    assert "100.0% of the tokens of the train split are [UNK]" in report
    assert "--seed" not in report.split("<h2", 2)[1]


def test_empty_texts_are_counted_with_the_first(initial, tmp_path, capsys):
    header, rows = "text\ttext_pair\tlabel\n", [f"a human\tall rights\t{number % 2}\n" for number in range(24)]
    for number, text in ((3, "\tall"), (7, "all\t \u200b"), (9, "\x01\tall")):
        rows[number] = f"{text}\t{number % 2}\n"
    (tmp_path / "train.tsv").write_text(header + "".join(rows), encoding="utf-8")
    (tmp_path / "dev.tsv").write_text(header + "".join(rows[:3]), encoding="utf-8")
    empty = (
        "3 of 24 train examples have an empty text, the first in train.tsv, row 4 (line 5); add the text or remove the "
        "rows"
    )
    assert empty in run(tmp_path, initial, capsys, "csv")
    # A second empty text does not make the rows a mixture of texts and pairs.
    assert json.loads((tmp_path / "output/beambert.json").read_text(encoding="utf-8"))["text_pairs"] is True
    # From the cache.
    warnings = run(tmp_path, initial, capsys, "csv")
    assert warnings.count(empty) == 1
    report = unescape((tmp_path / "output/report.html").read_text(encoding="utf-8"))
    assert all(f"<li>{warning}</li>" in report for warning in warnings)


def test_empty_choices_are_counted(initial, tmp_path, capsys):
    rows = [{"context": "a", "choices": ["all", "human"], "label": number % 2} for number in range(8)]
    rows[2]["choices"][1] = " "
    rows[5]["context"] = ""
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert (
        "2 of 8 train examples have an empty context or choice, the first in train.jsonl, row 3 (line 3); add the text "
        "or remove the rows"
    ) in run(tmp_path, initial, capsys, "swag")


def test_empty_questions_and_contexts_are_counted(initial, tmp_path, capsys):
    questions = [{"id": f"q{n}", "question": "who?" if n != 2 else " ", "answers": []} for n in range(6)]
    nothing = [{"id": "r", "question": "who?", "answers": []}]
    for name in ("train-v2.0.json", "dev-v2.0.json"):
        write_squad(tmp_path / name, ("all human rights", questions), ("\u200b", nothing))
    assert (
        "2 of 7 train questions are empty or have an empty context, the first is train-v2.0.json, question q2; add the "
        "text or remove the questions"
    ) in run(tmp_path, initial, capsys, "squad", "--version_2_with_negative")


def test_words_without_tokens_are_counted(initial, tmp_path, capsys):
    sentence = "all O\nhuman B-X\nrights O\n\n"
    for name in ("train.txt", "dev.txt"):
        (tmp_path / name).write_text(sentence * 3 + "\u200b O\nall O\n\n" + sentence, encoding="utf-8")
    assert (
        "1 of 14 train words have no tokens and are in no row, the first in train.txt, line 13; check its characters"
    ) in run(tmp_path, initial, capsys, "ner")
