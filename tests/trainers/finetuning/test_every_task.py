"""Test `beambert finetune` for every task: from data files to predictions, and the model in the output directory."""

import json

import pytest

from beambert import cli
from beambert.bert_model.checkpoints import native
from beambert.trainers.checkpoints.checkpoint_manager import lower_is_better
from beambert.trainers.finetuning.tasks.task_names import TASKS
from tests.conftest import with_slow
from tests.trainers.finetuning.conftest import ONE_LAYER
from tests.trainers.finetuning.task_files import write_task
from tests.trainers.random_models import write_model

RESULTS = {
    "cola": {"eval_matthews", "eval_accuracy"},
    "mrpc": {"eval_accuracy", "eval_f1"},
    "qqp": {"eval_accuracy", "eval_f1"},
    "stsb": {"eval_pearson", "eval_spearman"},
    "mnli": {"eval_accuracy", "eval_mismatched_accuracy"},
    "squad": {"exact_match", "f1"},
    "ner": {"eval_f1", "eval_precision", "eval_recall"},
}
ANSWERS = {
    "cola": "CoLA.tsv",
    "sst2": "SST-2.tsv",
    "mrpc": "MRPC.tsv",
    "stsb": "STS-B.tsv",
    "qqp": "QQP.tsv",
    "mnli": "MNLI-mm.tsv",
    "qnli": "QNLI.tsv",
    "rte": "RTE.tsv",
    "wnli": "WNLI.tsv",
    "xnli": "predictions.tsv",
    "csv": "predictions.tsv",
    "swag": "test_results.tsv",
    "squad": "nbest_predictions.json",
}
QUESTIONS = {
    "squad": "'who left? ||| The ferry left the island.'",
    "swag": "a ||| b ||| c",
    **dict.fromkeys(("mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "xnli"), "the ferry ||| left"),
}


# Tasks that are read and evaluated by the same code as other tasks.
SLOW_TASKS = ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "wnli", "xnli")


@pytest.mark.parametrize("task", with_slow(TASKS, SLOW_TASKS))
def test_task_trains_evaluates_and_predicts(task, tmp_path, shared_data, capsys):
    flags = write_task(task, tmp_path / "data", shared_data)
    initial = write_model(tmp_path / "initial", config=ONE_LAYER)
    output = tmp_path / "output"
    command = ["finetune", task, "--data_dir", str(tmp_path / "data"), "--output", str(output)]
    command += ["--max_seq_length", "64", *flags]
    first = ["--init_checkpoint", str(initial), "--do_train", "--do_eval", "--do_predict"]
    assert cli.main([*command, *first, "--num_train_epochs", "1", "--train_batch_size", "8"]) == 0
    said = capsys.readouterr()
    assert "initialized 2" in said.out
    results = json.loads((output / "eval_results.json").read_text())
    assert results.keys() >= RESULTS.get(task, {"eval_accuracy"}) | {"global_step"}
    text = (output / "eval_results.txt").read_text()
    assert text == "".join(f"{name} = {value}\n" for name, value in sorted(results.items()))
    answers = [path.name for path in output.iterdir()]
    assert ANSWERS.get(task, "test_predictions.txt") in answers
    assert json.loads((output / "evaluation.json").read_text())["task"] == task
    assert f"Fine-tuning: {task}" in (output / "report.html").read_text()
    record = native.load(output)
    assert record.steps == results["global_step"]
    options = json.loads((output / "run.json").read_text())["options"]
    assert options["task"] == task
    assert lower_is_better(options["best_metric"]) is False
    # The output directory contains everything that evaluation and prediction require.
    (tmp_path / "initial").rename(tmp_path / "gone")
    before = {name: (output / name).read_bytes() for name in ("eval_results.txt", ANSWERS.get(task, "vocab.txt"))}
    assert cli.main([*command, "--do_eval", "--do_predict"]) == 0
    assert {name: (output / name).read_bytes() for name in before} == before
    assert "Not the run's own development examples" not in capsys.readouterr().out
    assert cli.main(["predict", str(output), QUESTIONS.get(task, "the ferry left")]) == 0
    assert capsys.readouterr().out.strip()
