"""Test fine-tuned models with other files and tasks, early stopping, and resuming with recorded options."""

import json

import pytest

from beambert import cli
from beambert.bert_model.checkpoints import native
from beambert.trainers.checkpoints.checkpoint_manager import BEST_FILE_NAME
from tests.trainers.finetuning.task_files import write_pairs


def write_reviews(path, count, word):
    """Write rows with one of two labels."""
    rows = [f"{word} {number} goats,{'good' if number % 2 else 'bad'}" for number in range(count)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("review,stars\n" + "\n".join(rows) + "\n")


def test_other_files_are_read_with_the_options_of_training(initial, tmp_path):
    """Check that the columns are those of training, and that the recorded --dev_fraction does not affect a dev file."""
    write_reviews(tmp_path / "old" / "train.csv", 60, "old")
    write_reviews(tmp_path / "new" / "dev.csv", 7, "new")
    output = tmp_path / "output"
    command = ["finetune", "csv", "--output", str(output), "--data_dir"]
    first = ["--text_column", "review", "--label_column", "stars", "--dev_fraction", "0.2", "--num_train_epochs", "1"]
    first += ["--init_checkpoint", str(initial)]
    assert cli.main([*command, str(tmp_path / "old"), *first]) == 0
    assert cli.main([*command, str(tmp_path / "new"), "--do_eval"]) == 0
    confusion = json.loads((output / "evaluation.json").read_text())["splits"]["dev"]["confusion"]
    assert sum(map(sum, confusion["counts"])) == 7
    # With the data directory of training, dev is the same fraction of train as before.
    assert cli.main([*command, str(tmp_path / "old"), "--do_eval"]) == 0


def test_flags_override_recorded_options_also_with_their_defaults(initial, tmp_path):
    write_reviews(tmp_path / "old" / "train.csv", 60, "old")
    output = tmp_path / "output"
    command = ["finetune", "csv", "--output", str(output), "--data_dir"]
    first = ["--text_column", "review", "--label_column", "stars", "--dev_fraction", "0.2", "--num_train_epochs", "1"]
    first += ["--init_checkpoint", str(initial)]
    assert cli.main([*command, str(tmp_path / "old"), *first]) == 0
    rows = [f"new {number},{'good' if number % 2 else 'bad'},bad" for number in range(8)]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "dev.csv").write_text("review,label,stars\n" + "\n".join(rows) + "\n")

    def counts_of_true_labels(*flags):
        assert cli.main([*command, str(tmp_path / "new"), "--do_eval", *flags]) == 0
        confusion = json.loads((output / "evaluation.json").read_text())["splits"]["dev"]["confusion"]
        return list(map(sum, confusion["counts"]))

    assert sorted(counts_of_true_labels()) == [0, 8]
    assert counts_of_true_labels("--label_column", "label") == [4, 4]
    assert counts_of_true_labels("--label_column=label") == [4, 4]
    assert "given_options" not in json.loads((output / "run.json").read_text())["options"]


@pytest.mark.parametrize("evaluated_in_training", [True, False])
def test_evaluation_on_other_files_leaves_the_history_of_the_run(evaluated_in_training, initial, tmp_path, capsys):
    """Check that only an evaluation on the run's own development examples is in metrics.jsonl and the model card."""
    for name, word in (("train.csv", "old"), ("dev.csv", "old")):
        write_reviews(tmp_path / "old" / name, 32, word)
    write_reviews(tmp_path / "new" / "dev.csv", 7, "new")
    output = tmp_path / "output"
    command = ["finetune", "csv", "--output", str(output), "--text_column", "review", "--label_column", "stars"]
    first = ["--num_train_epochs", "1", "--train_batch_size", "8", "--do_train"]
    first += ["--init_checkpoint", str(initial), "--data_dir", str(tmp_path / "old")]
    assert cli.main([*command, *first, *(["--do_eval"] if evaluated_in_training else [])]) == 0
    again = [*command, "--do_eval", "--data_dir"]
    # Without an evaluation, files of the same paths are the run's own.
    assert cli.main([*again, str(tmp_path / "old")]) == 0
    names = ("metrics.jsonl", "beambert.json", "README.md")
    before = {name: (output / name).read_bytes() for name in names}
    assert b'"validation"' in before["metrics.jsonl"]
    own = json.loads((output / "eval_results.json").read_text())
    assert native.load(output).metrics == {name: own[name] for name in own if name != "global_step"}
    capsys.readouterr()

    assert cli.main([*again, str(tmp_path / "new")]) == 0
    assert {name: (output / name).read_bytes() for name in names} == before
    assert json.loads((output / "eval_results.json").read_text()) != own
    assert "Not the run's own development examples" in capsys.readouterr().out
    assert cli.main([*again, str(tmp_path / "old"), "--max_eval_samples", "8"]) == 0
    assert {name: (output / name).read_bytes() for name in names} == before
    if evaluated_in_training:
        # The examples are compared, not their paths.
        (tmp_path / "old").rename(tmp_path / "moved")
        capsys.readouterr()
        assert cli.main([*again, str(tmp_path / "moved")]) == 0
        assert "Not the run's own development examples" not in capsys.readouterr().out


def test_early_stopping_without_do_eval_selects_the_best_checkpoint(initial, tmp_path):
    write_reviews(tmp_path / "data" / "train.csv", 32, "old")
    write_reviews(tmp_path / "data" / "dev.csv", 8, "new")
    output = tmp_path / "output"
    command = ["finetune", "csv", "--data_dir", str(tmp_path / "data"), "--output", str(output)]
    columns = ["--text_column", "review", "--label_column", "stars"]
    # With a negligible learning rate, no evaluation is better than the first.
    course = ["--do_train", "--early_stopping", "2", "--num_train_epochs", "6", "--learning_rate", "1e-12"]
    flags = ["--init_checkpoint", str(initial), "--train_batch_size", "8"]
    assert cli.main([*command, *columns, *course, *flags]) == 0
    best = json.loads((output / "checkpoints" / BEST_FILE_NAME).read_text())["step"]
    assert native.load(output).steps == best == 4
    assert (output / "eval_results.json").is_file()


def test_missing_data_dir_is_a_one_line_error(tmp_path, capsys):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    flags = ["--output", str(tmp_path / "output"), "--model", "tiny", "--vocab_file", str(vocabulary)]
    for task in ("mrpc", "ner", "swag", "csv", "squad"):
        assert cli.main(["finetune", task, *flags]) == 1
        error = capsys.readouterr().err.strip().splitlines()
        assert len(error) == 1, task
        assert "--data_dir" in error[0], task


def test_numeric_labels_of_another_task_are_refused(table, initial, tmp_path, capsys):
    """Check that the labels 0 and 1 of one task are not accepted as those of another."""
    for name in ("train", "dev"):
        text = (table / f"{name}.csv").read_text().replace("good", "1").replace("bad", "0")
        (table / f"{name}.csv").write_text(text)
    first = ["finetune", "csv", "--data_dir", str(table), "--label_column", "stars", "--train_batch_size", "8"]
    first += ["--num_train_epochs", "1", "--max_seq_length", "32"]
    assert cli.main([*first, "--init_checkpoint", str(initial), "--output", str(tmp_path / "first")]) == 0
    again = [*first, "--init_checkpoint", str(tmp_path / "first"), "--do_eval"]
    assert cli.main([*again, "--output", str(tmp_path / "again")]) == 0
    other = ["finetune", "wnli", "--data_dir", str(tmp_path), "--init_checkpoint", str(tmp_path / "first")]
    write_pairs(tmp_path, ("sentence1", "sentence2"), ["0", "1"], ("train", "dev"))
    capsys.readouterr()
    assert cli.main([*other, "--output", str(tmp_path / "other"), "--do_eval"]) == 1
    assert "is a model for 0, 1, while wnli is classification" in capsys.readouterr().err


def test_resuming_keeps_the_order_of_rows(initial, tmp_path, capsys):
    write_reviews(tmp_path / "data" / "train.csv", 32, "old")
    columns = ["--text_column", "review", "--label_column", "stars", "--train_batch_size", "8", "--do_train"]
    command = ["finetune", "csv", "--data_dir", str(tmp_path / "data"), *columns]
    command += ["--init_checkpoint", str(initial), "--output"]

    grouped = tmp_path / "grouped"
    assert cli.main([*command, str(grouped), "--num_train_epochs", "1"]) == 0
    assert json.loads((grouped / "run.json").read_text())["options"]["group_by_length"] is True
    capsys.readouterr()
    assert cli.main([*command, str(grouped), "--num_train_epochs", "2", "--group_by_length", "false"]) == 1
    assert "differs in --group_by_length (True before, False now)" in capsys.readouterr().err
