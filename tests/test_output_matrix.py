"""Test every command that writes on every kind of existing output: it is refused or resumed, never altered."""

import hashlib
import json
import shutil

import pytest

from beambert import cli
from tests.every_output import FOREIGN, command_of, tree_of

# The kinds of output that each command resumes. All others are refused.
RESUMED = {
    "build": {"dataset", "corpus"},
    "corpus": {"dataset", "corpus"},
    "pretraining-data": set(),
    "pretrain": {"run"},
    "finetune": {"finetuned"},
    "seeds": {"runs"},
    "tune": set(),
    "convert native": set(),
    "convert tf1": set(),
    "convert huggingface": set(),
    "extend-vocab": set(),
    "export": set(),
    "vocab": set(),
    "predict": set(),
    "features": set(),
    "evaluate": set(),
}
DIRECTORIES = ("dataset", "corpus", "run", "finetuned", "runs", "converted", "hugging_face", "tf1", "foreign")
# Files that a resumed run with nothing left to do may write again.
REPORTS = (
    "report.html",
    "metrics.jsonl",
    "logs",
    "run.json",
    "eval_results",
    "evaluation.json",
    "README.md",
    "features",
)


# One command of each kind meets every output; the others meet what they resume, and a directory of other files.
EVERY_OUTPUT = ("corpus", "finetune", "convert tf1", "vocab")
MEETINGS = [
    (command, there)
    for command, resumed in RESUMED.items()
    for there in DIRECTORIES
    if command in EVERY_OUTPUT or there in {*resumed, "foreign"}
]


@pytest.mark.parametrize(("command", "there"), MEETINGS)
def test_an_existing_output_is_refused_or_resumed_and_never_altered(command, there, outputs, tmp_path, capsys):
    output = tmp_path / there
    shutil.copytree(outputs / there, output)
    resumed = there in RESUMED[command]
    before = tree_of(output, REPORTS if resumed else ())
    capsys.readouterr()
    code = cli.main(command_of(command, outputs, output))
    said = capsys.readouterr().err
    after = tree_of(output, REPORTS if resumed else ())
    if resumed:
        assert code == 0, said
        assert {name: after.get(name) for name in before} == before
    else:
        assert after == before
        assert code == 1, said
        assert said.startswith(f"beambert {command.split()[0].replace('seeds', 'finetune')}: error: ")
        assert said.count("\n") == 1
        assert str(output) in said


@pytest.mark.parametrize("command", RESUMED)
def test_a_file_in_the_way_is_left_alone(command, outputs, tmp_path, capsys):
    path = tmp_path / "mine.txt"
    path.write_text("mine", encoding="utf-8")
    assert cli.main(command_of(command, outputs, path)) == 1
    assert str(path) in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("corpus", name) for name in FOREIGN),
        *((command, "README.md") for command in ("build", "pretraining-data", "pretrain", "finetune", "seeds", "tune")),
    ],
)
def test_a_directory_with_one_foreign_file_is_refused(command, name, outputs, tmp_path, capsys):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FOREIGN[name], encoding="utf-8")
    assert cli.main(command_of(command, outputs, tmp_path)) == 1
    assert f"contains {name.partition('/')[0]}, which beambert" in capsys.readouterr().err
    assert tree_of(tmp_path) == {name: hashlib.sha256(FOREIGN[name].encode()).hexdigest()}


@pytest.mark.parametrize("name", ["report.html", "shards/train.tfrecord"])
def test_a_foreign_file_in_a_corpus_is_not_replaced_by_its_dataset(name, outputs, tmp_path, capsys):
    corpus = tmp_path / "corpus"
    shutil.copytree(outputs / "corpus", corpus)
    (corpus / name).parent.mkdir(exist_ok=True)
    (corpus / name).write_text("mine", encoding="utf-8")
    before = tree_of(corpus)
    command = ["pretraining-data", "--input", str(corpus), "--output", str(corpus), "--dupe_factor", "1"]
    assert cli.main(command) == 1
    assert (
        f"contains {name.partition('/')[0]}, which beambert pretraining-data did not write" in capsys.readouterr().err
    )
    assert tree_of(corpus) == before
    shutil.rmtree((corpus / name).parent) if "/" in name else (corpus / name).unlink()
    # Without the foreign file, the corpus becomes a dataset. A file whose name no command uses is tolerated.
    (corpus / "notes.txt").write_text("mine", encoding="utf-8")
    assert cli.main(command) == 0
    assert (corpus / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_hidden_files_and_lost_and_found_are_ignored(outputs, tmp_path):
    names = (".gitkeep", ".git/config", "lost+found/x")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine", encoding="utf-8")
    assert cli.main(command_of("corpus", outputs, tmp_path)) == 0
    assert all((tmp_path / name).read_text(encoding="utf-8") == "mine" for name in names)


def test_a_glob_pattern_as_output_is_refused(outputs, tmp_path, capsys):
    shutil.copytree(outputs / "dataset", tmp_path / "data1")
    before = tree_of(tmp_path)
    for command in ("build", "corpus", "pretraining-data"):
        assert cli.main(command_of(command, outputs, tmp_path / "data?")) == 1
        assert "a glob pattern; give a directory without the characters" in capsys.readouterr().err
    assert tree_of(tmp_path) == before


def test_what_a_command_writes_is_not_its_input(outputs, tmp_path, monkeypatch):
    text = (outputs / "inputs" / "text.txt").read_text(encoding="utf-8")
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "text.txt").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = ["corpus", "--input", "**/*", "*", "--input_format", "sentences", "--vocab_size", "60", "--output", "out"]
    # The second time, the pattern would match the corpus.
    assert cli.main(command) == 0
    before = tree_of(tmp_path / "out")
    assert cli.main(command) == 0
    assert tree_of(tmp_path / "out") == before
    files = json.loads((tmp_path / "out" / "corpus.json").read_text(encoding="utf-8"))["files"]
    assert [file[0] for file in files] == [str(tmp_path / name) for name in ("folder/text.txt", "text.txt")]


def test_an_error_about_a_model_in_place_of_data_does_not_advise_to_build_there(outputs, tmp_path, capsys):
    run = outputs / "run"
    command = ["pretrain", "--data", str(run), "--output", str(tmp_path / "new"), "--num_train_steps", "2"]
    assert cli.main(command) == 1
    said = capsys.readouterr().err
    assert f"{run} contains a training run (run.json), not a dataset" in said
    assert "--output" not in said


@pytest.mark.slow
def test_the_output_of_an_evaluation_alone_is_accepted_again(outputs, tmp_path):
    command = command_of("finetune", outputs, tmp_path / "scores")
    command[command.index(str(outputs / "run"))] = str(outputs / "finetuned")
    for flags in (["--do_eval"], ["--do_eval"], ["--do_train"]):
        assert cli.main([*command, *flags]) == 0


def test_a_run_that_ended_at_its_first_file_is_resumed(outputs, tmp_path):
    output = tmp_path / "new"
    output.mkdir()
    shutil.copy(outputs / "run/run.json", output)
    assert cli.main(command_of("pretrain", outputs, output)) == 0
    assert json.loads((output / "eval_results.json").read_text(encoding="utf-8"))["global_step"] == 2


def test_a_mistake_in_the_flags_leaves_no_directory(outputs, tmp_path):
    command = command_of("corpus", outputs, tmp_path / "new")
    command[command.index("60")] = "6000"
    assert cli.main(["build", *command[1:], "--max_predictions_per_seq", "129"]) == 1
    assert not (tmp_path / "new").exists()
    # The result of reading the input is kept for the same command with other values.
    assert cli.main(command) == 1
    command[command.index("6000")] = "60"
    assert cli.main(command) == 0


def test_the_current_directory_is_not_replaced(outputs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in ("convert tf1", "export"):
        assert cli.main([*command_of(command, outputs, tmp_path)[:-1], "."]) == 1
        assert ". is the current directory; use a new directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "there", "name"),
    [
        ("build", "dataset", "shards"),
        ("corpus", "corpus", "corpus"),
        ("corpus", "corpus", "vocab.txt"),
        ("pretrain", "run", "checkpoints"),
        ("finetune", "finetuned", "metrics.jsonl"),
        ("seeds", "runs", "seed-*/metrics.jsonl"),
    ],
)
def test_an_output_with_a_link_is_refused(command, there, name, outputs, tmp_path, capsys):
    """A link would lead to files outside the output. The output itself may be a link."""
    output, outside = tmp_path / there, tmp_path / "outside"
    shutil.copytree(outputs / there, tmp_path / "real")
    output.symlink_to("real")
    link = min(output.glob(name))
    link.rename(outside)
    link.symlink_to(outside)
    before = tree_of(tmp_path)
    assert cli.main(command_of(command, outputs, output)) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
    assert f"{output} contains the symbolic link {link.relative_to(output)}; " in line
    assert tree_of(tmp_path) == before
