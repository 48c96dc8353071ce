"""Tests that the commands which run a model reject one that computes NaN, in one line and without an output."""

import shlex

import pytest

from beambert import cli
from tests.trainers.random_models import write_model

LABELS = ("no", "yes")


@pytest.mark.parametrize(
    ("task", "weight", "command"),
    [
        ("pretraining", "bert/encoder/layer_1/output/dense/kernel", "evaluate MODEL --texts texts.txt --output out"),
        # The logit of a single token is NaN, and that of all other tokens is finite.
        ("pretraining", "cls/predictions/output_bias", "evaluate MODEL --pairs pairs.tsv --output out"),
        ("pretraining", "cls/predictions/output_bias", "fill-mask MODEL 'all [MASK]'"),
        (
            "pretraining",
            "bert/embeddings/LayerNorm/gamma",
            "features --init_checkpoint MODEL --input_file texts.txt --output_file out.jsonl --max_seq_length 32",
        ),
        ("classification", "output_bias", "predict MODEL --input_file texts.txt --output_file out --json"),
        ("regression", "bert/pooler/dense/bias", "predict MODEL human --json"),
        ("span", "cls/squad/output_bias", "predict MODEL 'human ||| rights'"),
    ],
)
def test_a_model_that_computes_nan(tmp_path, monkeypatch, capsys, task, weight, command):
    monkeypatch.chdir(tmp_path)
    labels = LABELS if task == "classification" else None
    write_model(tmp_path / "MODEL", task, labels, nan_in=weight)
    (tmp_path / "texts.txt").write_text("all human rights\n", encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("all human rights\tall rights human\n", encoding="utf-8")
    assert cli.main(shlex.split(command)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    message = "MODEL computes NaN: its weights are not finite; use a checkpoint from before the weights became NaN\n"
    assert captured.err.splitlines(keepends=True)[-1].endswith(message)
    assert not list(tmp_path.glob("out*"))
