"""Test `beambert predict` with single texts on a model for pairs, and with pairs on a model for single texts."""

import dataclasses

import numpy as np
import pytest

from beambert import cli
from beambert.bert_model.checkpoints import native
from beambert.trainers.commands import predict as predict_command
from beambert.trainers.finetuning.finetuning_task import Rows
from tests.trainers.finetuning.conftest import ONE_LAYER
from tests.trainers.random_models import write_model

SINGLE, PAIR = "the ferry left", "the ferry left ||| nobody stayed"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A directory of models that differ in the recorded `text_pairs` and in other evidence of pairs in their files."""
    folder = tmp_path_factory.mktemp("models")
    for name, task, labels, pairs in (
        ("pairs", "classification", ("0", "1"), True),
        ("score of pairs", "regression", None, True),
        ("texts", "classification", ("0", "1"), False),
        ("mixed", "classification", ("0", "1"), None),
        ("elsewhere", "classification", ("Entailment", "neutral", "contradiction"), None),
    ):
        path = write_model(folder / name, task, labels, config=ONE_LAYER)
        record = dataclasses.replace(native.load(path), text_pairs=pairs)
        (path / native.FILE_NAME).write_text(record.to_json(), encoding="utf-8")
    return folder


def predict(capsys, path, *argv):
    code = cli.main(["predict", str(path), *argv])
    return code, capsys.readouterr()


@pytest.mark.parametrize("name", ["pairs", "score of pairs"])
def test_model_for_pairs_refuses_single_texts(models, capsys, name, tmp_path):
    code, said = predict(capsys, models / name, PAIR, SINGLE)
    assert (code, said.err.count("\n")) == (1, 1)
    assert "'the ferry left' is a single text" in said.err
    assert "was fine-tuned on pairs: write 'a text ||| another'" in said.err
    (tmp_path / "texts.txt").write_text(f"{PAIR}\n{SINGLE}\n", encoding="utf-8")
    out = tmp_path / "answers.txt"
    code, said = predict(capsys, models / name, "--input_file", str(tmp_path / "texts.txt"), "--output_file", str(out))
    assert code == 1
    assert "texts.txt, line 2 is a single text" in said.err
    assert not out.exists()
    assert predict(capsys, models / name, PAIR)[0] == 0


def test_an_empty_last_line_is_an_error_before_the_first_prediction(models, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(predict_command, "LINES_A_CHUNK", 2)
    (tmp_path / "texts.txt").write_text(f"{PAIR}\n" * 3 + "\n", encoding="utf-8")
    code, said = predict(capsys, models / "pairs", "--input_file", str(tmp_path / "texts.txt"))
    assert (code, said.out) == (1, "")
    assert "texts.txt, line 4 is empty, and" in said.err
    assert "was fine-tuned on pairs" in said.err
    # A single text may be empty.
    (tmp_path / "texts.txt").write_text(f"{SINGLE}\n" * 3 + "\n", encoding="utf-8")
    code, said = predict(capsys, models / "texts", "--input_file", str(tmp_path / "texts.txt"), "--json")
    assert (code, said.out.count("\n")) == (0, 4)


def test_model_for_single_texts_refuses_pairs(models, capsys):
    code, said = predict(capsys, models / "texts", PAIR)
    assert (code, said.err.count("\n")) == (1, 1)
    assert "is a pair of texts" in said.err
    assert "was fine-tuned on single texts" in said.err
    assert predict(capsys, models / "texts", SINGLE)[0] == 0


@pytest.mark.parametrize(
    ("name", "texts", "warned"),
    [
        ("elsewhere", [SINGLE, PAIR], "1 of 2 inputs are single texts, but"),
        ("elsewhere", [PAIR], None),
        ("mixed", [SINGLE, PAIR], None),
    ],
)
def test_inputs_of_the_wrong_kind_only_warn_without_a_record(models, capsys, monkeypatch, name, texts, warned):
    code, said = predict(capsys, models / name, *texts)
    assert code == 0
    assert said.out.count("%") == len(texts) * (3 if name == "elsewhere" else 2)
    assert (f"warning: {warned}" in said.err) if warned else (said.err == "")


def test_fine_tuning_records_text_pairs(finetune, tmp_path, capsys):
    assert finetune("--do_train") == 0
    output = tmp_path / "output"
    assert native.load(output).text_pairs is True
    assert "| Input | pairs of texts |" in (output / "README.md").read_text(encoding="utf-8")
    assert predict(capsys, output, SINGLE)[0] == 1
    assert finetune("--do_eval") == 0
    assert native.load(output).text_pairs is True
    # Conversion preserves the field.
    assert cli.main(["convert", str(output), str(tmp_path / "again"), "--to", "native"]) == 0
    assert native.load(tmp_path / "again").text_pairs is True


@pytest.mark.parametrize(
    ("segments", "expected"),
    [([[0, 0, 1], [0, 1]], True), ([[0, 0], [0]], False), ([[0, 1], [0, 0]], None), ([], None)],
)
def test_pairs_are_seen_in_rows(segments, expected):
    values = np.array([value for row in segments for value in row], np.int32)
    splits = np.cumsum([0, *map(len, segments)])
    assert Rows(values, values, splits, {}).are_pairs() is expected
