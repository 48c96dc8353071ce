"""A fine-tuned model meets other files, and the best of its checkpoints is the model."""

import json

from random_models import write_model

import beambert
from bert_model import native
from trainers.best_checkpoint import FILE_NAME


def write_reviews(path, count, word):
    """Rows with one of two labels."""
    rows = [f"{word} {number} goats,{'good' if number % 2 else 'bad'}" for number in range(count)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("review,stars\n" + "\n".join(rows) + "\n")


def test_other_files_are_read_as_those_of_training_were(tmp_path):
    """The columns stay those of the training; that its dev rows were a share of train does not concern a dev file."""
    write_reviews(tmp_path / "old" / "train.csv", 60, "old")
    write_reviews(tmp_path / "new" / "dev.csv", 7, "new")
    output = tmp_path / "output"
    command = ["finetune", "csv", "--output", str(output), "--data_dir"]
    first = ["--text_column", "review", "--label_column", "stars", "--dev_share", "0.2", "--num_train_epochs", "1"]
    initial = ["--init_checkpoint", str(write_model(tmp_path / "initial"))]
    assert beambert.main([*command, str(tmp_path / "old"), *first, *initial]) == 0
    assert beambert.main([*command, str(tmp_path / "new"), "--do_eval"]) == 0
    confusion = json.loads((output / "evaluation.json").read_text())["splits"]["dev"]["confusion"]
    assert sum(map(sum, confusion["counts"])) == 7
    # In its own directory the share is taken as before.
    assert beambert.main([*command, str(tmp_path / "old"), "--do_eval"]) == 0


def test_early_stopping_chooses_the_model_though_no_evaluation_was_asked_for(tmp_path):
    write_reviews(tmp_path / "data" / "train.csv", 32, "old")
    write_reviews(tmp_path / "data" / "dev.csv", 8, "new")
    output = tmp_path / "output"
    command = ["finetune", "csv", "--data_dir", str(tmp_path / "data"), "--output", str(output)]
    columns = ["--text_column", "review", "--label_column", "stars"]
    # Without a learning rate to speak of no evaluation is better than the first.
    course = ["--do_train", "--early_stopping", "2", "--num_train_epochs", "6", "--learning_rate", "1e-12"]
    initial = ["--init_checkpoint", str(write_model(tmp_path / "initial"))]
    assert beambert.main([*command, *columns, *course, *initial, "--train_batch_size", "8"]) == 0
    best = json.loads((output / "checkpoints" / FILE_NAME).read_text())["step"]
    assert native.load(output).steps == best == 4
    assert (output / "eval_results.json").is_file()


def test_a_missing_directory_of_files_is_one_line(tmp_path, capsys):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    flags = ["--output", str(tmp_path / "output"), "--model", "tiny", "--vocab_file", str(vocabulary)]
    for task in ("mrpc", "ner", "swag", "csv", "squad"):
        assert beambert.main(["finetune", task, *flags]) == 1
        error = capsys.readouterr().err.strip().splitlines()
        assert len(error) == 1, task
        assert "--data_dir" in error[0], task
