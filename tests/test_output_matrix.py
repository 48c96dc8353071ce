"""Every command that writes, against every kind of output that may be in its way: refused or resumed, never altered."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

import beambert

FOREIGN = {
    "README.md": "# My project\n",
    "vocab.txt": "mine\n",
    "report.html": "<p>mine</p>\n",
    "corpus/mine-of-mine.parquet": "mine",
    "shards/train.tfrecord": "mine",
    "unfinished/essay.txt": "mine",
    "build.lock": "mine",
}
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


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A folder with one output of each kind, by name, and `inputs` for the commands."""
    folder = tmp_path_factory.mktemp("outputs")
    inputs = folder / "inputs"
    inputs.mkdir()
    documents = "\n".join(f"Day {n} was wet and cold.\nThe river rose {n} feet that day.\n" for n in range(30))
    (inputs / "text.txt").write_text(documents, encoding="utf-8")
    (inputs / "new_words.txt").write_text("Riverday roseriver riverday.\n", encoding="utf-8")
    (inputs / "lines.txt").write_text("The river rose.\nDay 3 was wet.\n", encoding="utf-8")
    (inputs / "RTE").mkdir()
    rows = "".join(f"{n}\tDay {n} was wet.\tIt rained.\t{'not_' * (n % 2)}entailment\n" for n in range(8))
    for name in ("train", "dev"):
        header = "index\tsentence1\tsentence2\tlabel\n"
        (inputs / "RTE" / f"{name}.tsv").write_text(header + rows, encoding="utf-8")
    for name in ("dataset", "corpus", "run", "converted", "hugging_face", "tf1", "finetuned", "runs"):
        assert beambert.main(command_of(MADE_BY[name], folder, folder / name)) == 0, name
    for name, text in FOREIGN.items():
        path = folder / "foreign" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


MADE_BY = {
    "dataset": "build",
    "corpus": "corpus",
    "run": "pretrain",
    "finetuned": "finetune",
    "runs": "seeds",
    "converted": "convert native",
    "hugging_face": "convert huggingface",
    "tf1": "convert tf1",
}


def command_of(command: str, folder: Path, output: Path) -> list[str]:
    """Return the command line of a command that writes `output`."""
    inputs = folder / "inputs"
    text = ["--input", str(inputs / "text.txt"), "--input_format", "sentences", "--vocab_size", "60"]
    finetune = ["rte", "--data_dir", str(inputs / "RTE"), "--init_checkpoint", str(folder / "run")]
    finetune += ["--max_seq_length", "32"]
    train = [*finetune, "--train_batch_size", "4", "--num_train_epochs", "1"]
    return {
        "build": ["build", *text, "--validation_fraction", "0.2", "--dupe_factor", "1", "--output"],
        "corpus": ["corpus", *text, "--validation_fraction", "0.2", "--output"],
        "pretraining-data": ["pretraining-data", "--dupe_factor", "1", "--input", str(folder / "corpus"), "--output"],
        "vocab": ["vocab", *text, "--output"],
        "pretrain": [
            *["pretrain", "--data", str(folder / "dataset"), "--model", "tiny", "--num_train_steps", "2"],
            *["--train_batch_size", "4", "--output"],
        ],
        "finetune": ["finetune", *train, "--output"],
        "seeds": ["finetune", *train, "--seeds", "2", "--output"],
        "tune": [
            *["tune", *finetune, "--train_batch_sizes", "4", "--learning_rates", "1e-4", "--epochs", "1", "--output"]
        ],
        "predict": ["predict", str(folder / "finetuned"), "a ||| b", "--output_file"],
        "features": [
            *[
                "features",
                "--init_checkpoint",
                str(folder / "run"),
                "--input_file",
                str(inputs / "lines.txt"),
                "--layers=-1",
            ],
            "--output_file",
        ],
        "evaluate": ["evaluate", str(folder / "run"), "--texts", str(inputs / "lines.txt"), "--output"],
        "export": ["export", str(folder / "run")],
        "extend-vocab": [
            *["extend-vocab", str(folder / "run"), "--input", str(inputs / "new_words.txt"), "--num_tokens", "1"],
            *["--min_count", "1", "--output"],
        ],
        "convert native": ["convert", "--to", "native", str(folder / "run")],
        "convert tf1": ["convert", "--to", "tf1", str(folder / "run")],
        "convert huggingface": ["convert", "--to", "huggingface", str(folder / "run")],
    }[command] + [str(output)]


def tree_of(path: Path, leave: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the SHA-256 of every file below a path, or of the file itself; those that start with `leave` are left."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    names = {str(file.relative_to(path)): file for file in files}
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in sorted(names.items())
        if not name.startswith(leave) and not any(f"/{left}" in name for left in leave)
    }


@pytest.mark.parametrize("there", DIRECTORIES)
@pytest.mark.parametrize("command", RESUMED)
def test_what_is_there_is_refused_or_resumed_and_never_altered(command, there, outputs, tmp_path, capsys):
    output = tmp_path / there
    shutil.copytree(outputs / there, output)
    resumed = there in RESUMED[command]
    before = tree_of(output, REPORTS if resumed else ())
    capsys.readouterr()
    code = beambert.main(command_of(command, outputs, output))
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
    assert beambert.main(command_of(command, outputs, path)) == 1
    assert str(path) in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("command", ["build", "corpus", "pretraining-data", "pretrain", "finetune", "seeds", "tune"])
@pytest.mark.parametrize("name", FOREIGN)
def test_one_file_of_a_person_is_enough(command, name, outputs, tmp_path, capsys):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FOREIGN[name], encoding="utf-8")
    assert beambert.main(command_of(command, outputs, tmp_path)) == 1
    assert f"contains {name.partition('/')[0]}, which beambert" in capsys.readouterr().err
    assert tree_of(tmp_path) == {name: hashlib.sha256(FOREIGN[name].encode()).hexdigest()}


@pytest.mark.parametrize("name", ["report.html", "shards/train.tfrecord"])
def test_a_file_of_a_person_in_a_corpus_is_not_replaced_by_its_dataset(name, outputs, tmp_path, capsys):
    corpus = tmp_path / "corpus"
    shutil.copytree(outputs / "corpus", corpus)
    (corpus / name).parent.mkdir(exist_ok=True)
    (corpus / name).write_text("mine", encoding="utf-8")
    before = tree_of(corpus)
    command = ["pretraining-data", "--input", str(corpus), "--output", str(corpus), "--dupe_factor", "1"]
    assert beambert.main(command) == 1
    assert (
        f"contains {name.partition('/')[0]}, which beambert pretraining-data did not write" in capsys.readouterr().err
    )
    assert tree_of(corpus) == before
    shutil.rmtree((corpus / name).parent) if "/" in name else (corpus / name).unlink()
    # Without it, the corpus becomes a dataset; a file that no command writes does no harm.
    (corpus / "notes.txt").write_text("mine", encoding="utf-8")
    assert beambert.main(command) == 0
    assert (corpus / "notes.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("name", [".gitkeep", ".git/config", "lost+found/x"])
def test_hidden_files_and_lost_and_found_are_ignored(name, outputs, tmp_path):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine", encoding="utf-8")
    assert beambert.main(command_of("corpus", outputs, tmp_path)) == 0
    assert (tmp_path / name).read_text(encoding="utf-8") == "mine"


def test_a_pattern_is_no_output(outputs, tmp_path, capsys):
    shutil.copytree(outputs / "dataset", tmp_path / "data1")
    before = tree_of(tmp_path)
    for command in ("build", "corpus", "pretraining-data"):
        assert beambert.main(command_of(command, outputs, tmp_path / "data?")) == 1
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
    assert beambert.main(command) == 0
    before = tree_of(tmp_path / "out")
    assert beambert.main(command) == 0
    assert tree_of(tmp_path / "out") == before
    files = json.loads((tmp_path / "out" / "corpus.json").read_text(encoding="utf-8"))["files"]
    assert [file[0] for file in files] == [str(tmp_path / name) for name in ("folder/text.txt", "text.txt")]


def test_an_error_about_a_model_in_place_of_data_does_not_advise_to_build_there(outputs, tmp_path, capsys):
    run = outputs / "run"
    command = ["pretrain", "--data", str(run), "--output", str(tmp_path / "new"), "--num_train_steps", "2"]
    assert beambert.main(command) == 1
    said = capsys.readouterr().err
    assert f"{run} contains a training run (run.json), not a dataset" in said
    assert "--output" not in said


def test_an_evaluation_alone_knows_its_own_output(outputs, tmp_path):
    command = command_of("finetune", outputs, tmp_path / "scores")
    command[command.index(str(outputs / "run"))] = str(outputs / "finetuned")
    for flags in (["--do_eval"], ["--do_eval"], ["--do_train"]):
        assert beambert.main([*command, *flags]) == 0


@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_a_run_that_ended_at_its_first_file_is_resumed(command, outputs, tmp_path):
    output = tmp_path / "new"
    output.mkdir()
    shutil.copy(outputs / {"pretrain": "run", "finetune": "finetuned"}[command] / "run.json", output)
    assert beambert.main(command_of(command, outputs, output)) == 0
    assert json.loads((output / "eval_results.json").read_text(encoding="utf-8"))["global_step"] == 2


def test_a_mistake_in_the_flags_leaves_no_directory(outputs, tmp_path):
    command = command_of("corpus", outputs, tmp_path / "new")
    command[command.index("60")] = "6000"
    assert beambert.main(["build", *command[1:], "--max_seq_length", "4"]) == 1
    assert not (tmp_path / "new").exists()
    # What was read is kept for the same command with other values.
    assert beambert.main(command) == 1
    command[command.index("6000")] = "60"
    assert beambert.main(command) == 0


def test_the_current_directory_is_not_replaced(outputs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in ("convert tf1", "export"):
        assert beambert.main([*command_of(command, outputs, tmp_path)[:-1], "."]) == 1
        assert ". is the current directory; use a new directory" in capsys.readouterr().err
