"""Test `beambert finetune`: invalid flags, resuming, and the model in the output directory."""

import dataclasses
import json
import os
import random
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from beambert import cli
from beambert.bert_model.checkpoints import native, tf1
from beambert.bert_model.finetuning_models import BertForTask
from beambert.common.typed_json import read
from beambert.trainers.checkpoints import checkpoint_manager
from beambert.trainers.checkpoints.checkpoint_manager import best
from beambert.trainers.finetuning import finetuning_run
from beambert.trainers.monitoring.metrics_jsonl import TIMING_FIELDS
from beambert.trainers.monitoring.training_monitor import TrainingMonitor
from beambert.trainers.training_run import Outcome
from tests.forked import run
from tests.pages import parsed
from tests.trainers.finetuning.conftest import arguments
from tests.trainers.finetuning.task_files import write_pairs
from tests.trainers.finetuning.tasks.squad_examples import write_squad
from tests.trainers.random_models import CONFIG, VOCABULARY, write_model


def results(output):
    return json.loads((output / "eval_results.json").read_text())


def test_default_trains_and_evaluates(finetune, tmp_path, capsys):
    assert finetune() == 0
    output = tmp_path / "output"
    names = {"eval_accuracy", "eval_accuracy_majority_class", "eval_loss", "loss", "global_step"}
    assert results(output).keys() == names
    assert results(output)["global_step"] == 12
    assert not list(output.glob("*test*"))
    assert "on 24 examples of rte for 12 steps of batch size 4" in capsys.readouterr().out
    record = native.load(output)
    assert (record.task, record.labels, record.max_seq_length) == (
        "classification",
        ("entailment", "not_entailment"),
        48,
    )
    assert record.metrics["eval_accuracy"] == results(output)["eval_accuracy"]
    assert "initialized output_weights" in (output / "init_checkpoint.txt").read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--doc_stride", "64"], "--doc_stride is a flag of squad, not of rte: omit it"),
        (["--model", "tiny"], "give one of them"),
        (["--max_seq_length", "65"], "invalid --max_seq_length 65: must be 8 to 64"),
        (["--train_batch_size", "100"], "24 training examples are less than one batch of --train_batch_size 100"),
        (["--class_weights", "maybe=2"], "unknown label 'maybe'; rte has entailment, not_entailment"),
        (["--best_metric", "speed"], "invalid --best_metric speed: must end with one of loss"),
        (["--tpu_name", "x", "--strategy", "single"], "invalid --tpu_name with --strategy single"),
        (["--train_batch_size", "6", "--gradient_accumulation_steps", "4"], "must be a multiple of 4"),
        (
            ["--eval_steps", "4", "--best_metric", "eval_f1"],
            "invalid --best_metric eval_f1: not a metric of the evaluation",
        ),
    ],
)
def test_mistakes_are_one_line(finetune, tmp_path, capsys, flags, said):
    assert finetune(*flags) == 1
    *before, line = capsys.readouterr().err.splitlines()
    assert line.startswith("beambert finetune: error: ")
    assert said in line
    assert all("exceed --max_seq_length" in warning for warning in before)


def test_missing_inputs_are_named(rte, initial, tmp_path, capsys):
    def said(*flags):
        assert cli.main(["finetune", "rte", "--data_dir", str(rte), "--output", str(tmp_path / "o"), *flags]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "--init_checkpoint is missing: give a pretrained model" in said()
    remedy = "train one with --do_train, or give a fine-tuned model with --init_checkpoint"
    assert f"contains no model to evaluate: {remedy}" in said("--do_eval")
    assert f"contains no model to predict with: {remedy}" in said("--do_predict")
    assert f"contains no model to evaluate or predict with: {remedy}" in said("--do_eval", "--do_predict")
    assert "requires --vocab_file" in said("--do_train", "--model", "tiny")
    assert "without --do_train" not in said("--do_train", "--init_checkpoint", str(tmp_path / "nothing"))
    # A pretrained model has no head to evaluate.
    assert "is a model for pretraining" in said("--do_eval", "--init_checkpoint", str(initial))
    assert not (tmp_path / "o").exists() or not list((tmp_path / "o").glob("*.json"))
    with pytest.raises(SystemExit):
        cli.main(["finetune", "rta", "--output", "o"])
    assert "invalid choice: 'rta'" in capsys.readouterr().err


def test_random_weights_instead_of_a_checkpoint(rte, tmp_path):
    model, vocabulary = tmp_path / "model.json", tmp_path / "vocab.txt"
    model.write_text(CONFIG.to_json(), encoding="utf-8")
    vocabulary.write_bytes(VOCABULARY.to_bytes())
    output = tmp_path / "output"
    given = ["finetune", "rte", "--data_dir", str(rte), "--model", str(model), "--vocab_file", str(vocabulary)]
    assert cli.main([*given, "--output", str(output), "--train_batch_size", "8", "--max_seq_length", "32"]) == 0
    assert results(output)["global_step"] == 9
    assert not (output / "init_checkpoint.txt").exists()


def test_output_of_another_run_is_refused(finetune, rte, initial, tmp_path, capsys):
    assert finetune() == 0
    output = tmp_path / "output"
    capsys.readouterr()

    def said(*flags, task="rte"):
        code = cli.main(["finetune", task, "--data_dir", str(rte), "--output", str(output), *flags])
        captured = capsys.readouterr()
        assert code == 1, captured.out
        return captured.err

    assert "contains a run of rte, not of wnli" in said("--do_eval", task="wnli")
    assert "--seed (12345 before, 1 now)" in said("--do_train", "--train_batch_size", "4", "--seed", "1")
    assert "the batch size at step 0 (4 before, 8 now)" in said("--do_train", "--train_batch_size", "8")
    given = ["--do_train", "--train_batch_size", "4", "--num_train_epochs", "2"]
    assert "the data at step 0" in said(*given, "--max_seq_length", "16")
    # Omitted flags keep their recorded values, so this is the same run, which is complete.
    assert cli.main(["finetune", "rte", "--data_dir", str(rte), "--output", str(output), *given]) == 0
    assert "is already trained to step 12; raise --num_train_epochs to continue" in capsys.readouterr().out
    # With other options no step follows, and the record stays that of the steps.
    record = (output / "run.json").read_bytes()
    shorter = [*given[:3], "--num_train_epochs", "1", "--learning_rate", "0.5", "--do_eval"]
    assert cli.main(["finetune", "rte", "--data_dir", str(rte), "--output", str(output), *shorter]) == 0
    said = capsys.readouterr()
    assert "is already trained to step 12" in said.out
    assert "step 12/12" in said.out + said.err
    assert (output / "run.json").read_bytes() == record
    pretraining = write_model(tmp_path / "converted")
    assert cli.main(["finetune", "rte", "--data_dir", str(rte), "--output", str(pretraining)]) == 1
    assert "contains a converted model (beambert.json)" in capsys.readouterr().err


def stopped(argv, step):
    """Run beambert, and send SIGTERM to this process after the given step."""
    update = TrainingMonitor.update

    def updated(self, made, *arguments, **named):
        result = update(self, made, *arguments, **named)
        if made == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingMonitor, "update", updated)
        return cli.main(argv)


def weights(output, step):
    return [
        (output / f"checkpoints/model.ckpt-{step}.{kind}").read_bytes() for kind in ("index", "data-00000-of-00001")
    ]


def test_resumed_run_writes_the_same_bytes(rte, initial, tmp_path):
    given = ["finetune", "rte", "--data_dir", str(rte), "--init_checkpoint", str(initial), "--max_seq_length", "48"]
    given += ["--train_batch_size", "4", "--num_train_epochs", "2.5", "--eval_steps", "4", "--do_train", "--do_eval"]
    outputs = [tmp_path / "straight", tmp_path / "stopped"]
    assert cli.main([*given, "--output", str(outputs[0])]) == 0
    for step in (3, 8):
        assert stopped([*given, "--output", str(outputs[1])], step) == 143
        (saved,) = checkpoint_manager.checkpoints(outputs[1] / "checkpoints")[-1:]
        assert saved.step == step
    assert cli.main([*given, "--output", str(outputs[1])]) == 0
    assert weights(outputs[0], 15) == weights(outputs[1], 15)
    assert results(outputs[0]) == results(outputs[1])
    lines = []
    for output in outputs:
        records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
        lines.append([{k: v for k, v in record.items() if k not in TIMING_FIELDS} for record in records])
    assert lines[0] == lines[1]


def test_other_threads_do_not_change_the_initial_head(finetune, tmp_path, monkeypatch):
    """Threads share the generator of `random`: uploads to a bucket draw from it."""

    def built(*arguments, **named):
        random.random()
        return BertForTask(*arguments, **named)

    for output in ("first", "second"):
        assert finetune("--num_train_epochs", "1", "--do_train") == 0
        (tmp_path / "output").rename(tmp_path / output)
        monkeypatch.setattr(finetuning_run, "BertForTask", built)
    assert weights(tmp_path / "first", 6) == weights(tmp_path / "second", 6)


@pytest.mark.slow
def test_devices_share_the_evaluation(rte, initial, tmp_path):
    for devices in (1, 3):
        output = tmp_path / f"devices{devices}"
        given = ["finetune", "rte", "--data_dir", str(rte), "--init_checkpoint", str(write(initial, tmp_path))]
        given += ["--output", str(output), "--max_seq_length", "48", "--cpu_devices", str(devices)]
        given += ["--eval_batch_size", str(5 + devices), "--train_batch_size", "6", "--num_train_epochs", "1"]
        log = tmp_path / "log"
        flags = ["--do_train", "--do_eval", "--do_predict"]
        assert run(log, cli.main, [*given, *flags]) == 0, log.read_text()
    one, three = tmp_path / "devices1", tmp_path / "devices3"
    assert results(three) == pytest.approx(results(one), rel=1e-4)
    first, second = (np.loadtxt(output / "test_results.tsv", delimiter="\t") for output in (one, three))
    assert first.shape == (24, 2)
    np.testing.assert_allclose(first, second, rtol=1e-3)


def write(initial, tmp_path):
    """Write a model without dropout, since dropout differs by device, and return its directory."""
    directory = tmp_path / "without_dropout"
    if not directory.exists():
        write_model(directory)
        config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        (directory / native.CONFIG_FILE_NAME).write_text(config.to_json(), encoding="utf-8")
    return directory


def scored(monkeypatch, values):
    """Replace eval_accuracy of the evaluations by these values, in order; the last value is repeated."""
    queue = list(values)
    metrics = finetuning_run.FinetuningRun._metrics

    def found(self, split, logits):
        value = queue.pop(0) if len(queue) > 1 else queue[0]
        return {**metrics(self, split, logits), "eval_accuracy": value}

    monkeypatch.setattr(finetuning_run.FinetuningRun, "_metrics", found)


def test_early_stopping_ends_training_and_selects_the_best_checkpoint(finetune, tmp_path, monkeypatch, capsys):
    scored(monkeypatch, [0.5, 0.7, 0.6, 0.7, 0.65])
    assert finetune("--early_stopping", "2", "--eval_steps", "2", "--num_train_epochs", "20") == 0
    output = tmp_path / "output"
    # Step 4 is the best: step 6 is worse, and step 8 has the same value, which is not an improvement.
    assert [checkpoint.step for checkpoint in checkpoint_manager.checkpoints(output / "checkpoints")][-1] == 8
    assert best(output / "checkpoints").step == 4
    said = capsys.readouterr().out
    assert "Stopped early at step 8: no better eval_accuracy in 2 evaluations" in said
    assert "step 4, which becomes the model" in said
    assert results(output)["global_step"] == 4
    assert native.load(output).steps == 4
    assert native.model_checkpoint(output).name == "model.ckpt-4"
    logged = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged if line["split"] == "validation"] == [2, 4, 6, 8]
    # The same command does not train further.
    assert finetune("--early_stopping", "2", "--eval_steps", "2", "--num_train_epochs", "20") == 0
    assert checkpoint_manager.checkpoints(output / "checkpoints")[-1].step == 8


def test_last_checkpoint_is_the_model_without_evaluations_during_training(finetune, tmp_path):
    assert finetune("--save_checkpoints_steps", "5") == 0
    assert native.load(tmp_path / "output").steps == 12
    assert native.model_checkpoint(tmp_path / "output").name == "model.ckpt-12"


def test_a_fine_tuned_model_is_scored_or_trained_further(finetune, rte, tmp_path, capsys):
    assert finetune() == 0
    output = tmp_path / "output"
    given = ["finetune", "rte", "--data_dir", str(rte), "--init_checkpoint", str(output), "--max_seq_length", "48"]
    assert cli.main([*given, "--output", str(tmp_path / "scored"), "--do_eval", "--do_predict"]) == 0
    again = results(tmp_path / "scored")
    assert {**again, "global_step": 12} == results(output)
    assert not (tmp_path / "scored" / "beambert.json").exists()
    capsys.readouterr()
    assert cli.main([*given, "--output", str(tmp_path / "more"), "--train_batch_size", "8"]) == 0
    # A head with the same labels is kept.
    assert "initialized" not in capsys.readouterr().out
    # A head with other labels cannot be evaluated, and is initialized again for training.
    other = tmp_path / "three"
    other.mkdir()
    labels = ["neutral", "entailment", "contradiction"]
    write_pairs(other, ("sentence1", "sentence2"), labels, ("train", "dev_matched", "dev_mismatched"))
    given = ["finetune", "mnli", "--data_dir", str(other), "--init_checkpoint", str(output), "--train_batch_size", "8"]
    assert cli.main([*given, "--output", str(tmp_path / "mnli"), "--do_eval"]) == 1
    said = capsys.readouterr().err
    assert "the labels of the model (entailment, not_entailment) are not those of mnli" in said
    assert cli.main([*given, "--output", str(tmp_path / "mnli"), "--do_train", "--do_eval"]) == 0
    assert "initialized 2: output_weights, output_bias" in capsys.readouterr().out
    assert "eval_mismatched_loss" in results(tmp_path / "mnli")


def test_multi_label_model_stays_multi_label(table, initial, tmp_path, capsys):
    output = tmp_path / "output"
    given = ["finetune", "csv", "--data_dir", str(table), "--output", str(output), "--max_seq_length", "48"]
    flags = ["--problem", "multi_label", "--label_column", "topics", "--label_separator", "|"]
    start = ["--init_checkpoint", str(initial), "--train_batch_size", "8", "--num_train_epochs", "1"]
    assert cli.main([*given, *flags, *start, "--do_train", "--do_predict"]) == 0
    before = (output / "predictions.tsv").read_bytes()
    assert native.load(output).multi_label
    (output / "predictions.tsv").unlink()
    assert cli.main([*given, "--do_predict"]) == 0
    assert (output / "predictions.tsv").read_bytes() == before
    capsys.readouterr()
    one = ["--problem", "classification", "--label_column", "stars"]
    again = ["finetune", "csv", "--data_dir", str(table), "--init_checkpoint", str(output), *one]
    assert cli.main([*again, "--output", str(tmp_path / "other"), "--do_eval"]) == 1
    assert "error" in capsys.readouterr().err


def test_a_new_regression_head_begins_at_the_mean_of_the_targets(table, initial, tmp_path):
    """Check the first bias of a new head, and that the head of a fine-tuned model is kept."""
    flags = ["--problem", "regression", "--label_column", "score", "--learning_rate", "1e-12"]
    biases = []
    for name, model in (("first", initial), ("second", tmp_path / "first")):
        assert cli.main(arguments("csv", table, model, tmp_path / name, *flags)) == 0
        step = checkpoint_manager.checkpoints(tmp_path / name / "checkpoints")[-1].step
        biases.append(tf1.read(tmp_path / f"{name}/checkpoints/model.ckpt-{step}")["output_bias"].read())
        train = table / "train.csv"
        train.write_text(train.read_text().replace(",4\n", ",9\n"))
    scores = [int(line.rpartition(",")[2]) for line in (table / "dev.csv").read_text().splitlines()[1:]]
    np.testing.assert_allclose(biases, [[np.mean(scores)]] * 2, atol=1e-6)
    # The rows of a regression are in random order by default, those of other tasks grouped.
    assert json.loads((tmp_path / "first/run.json").read_text())["options"]["group_by_length"] is False


def test_class_weights_change_what_is_learnt(real_backend, finetune, tmp_path):
    assert finetune("--class_weights", "entailment=0", "--learning_rate", "0.01") == 0
    head = tf1.read(tmp_path / "output/checkpoints/model.ckpt-12")["output_bias"].read()
    assert head[1] > head[0] + 0.01


def test_lone_surrogate_in_squad_leaves_a_report_with_answers(initial, tmp_path):
    text = "The ferry \ud83d left the island before noon."
    question = {"id": "q", "question": "who left?", "answers": [{"text": "ferry", "answer_start": 4}]}
    for name in ("train.json", "dev.json"):
        write_squad(tmp_path / name, (text, [{**question, "id": f"q{number}"} for number in range(8)]))
    output = tmp_path / "output"
    given = ["finetune", "squad", "--data_dir", str(tmp_path), "--output", str(output), "--max_seq_length", "48"]
    assert cli.main([*given, "--init_checkpoint", str(initial), "--train_batch_size", "8"]) == 0
    details = read(output / "evaluation.json", dict)["splits"]["dev"]
    assert details["answers"][0]["context"] == text.replace("\ud83d", "?")
    assert "The ferry ? left" in "".join(parsed((output / "report.html").read_text(encoding="utf-8")).text)


def test_summary_has_counts_as_integers(capsys):
    results = {"f1": 81.23456, "total": 11873, "global_step": 21990}
    run = SimpleNamespace(output=Path("output"))
    finetuning_run.FinetuningRun.print_results(run, Outcome(None, results))
    assert "eval_results.txt: f1 81.23, global_step 21990, total 11873" in capsys.readouterr().out
