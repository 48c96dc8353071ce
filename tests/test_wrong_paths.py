"""Test that wrong paths and texts without [MASK] are errors before a command imports TensorFlow."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

MODEL = ROOT / "tests/fixtures/hugging_face/classification"
MASKED = ROOT / "tests/fixtures/hugging_face/pretraining_erf"
# A program that runs commands in a process that cannot import TensorFlow. It prints exit code and messages of each.
CHILD = """
import contextlib, io, json, sys

def _is_asked():
    # importlib.util.find_spec, which imports nothing.
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib.util":
            return True
        frame = frame.f_back
    return False

class TensorFlowImported(BaseException):
    pass

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "keras") and not _is_asked():
            raise TensorFlowImported

sys.meta_path.insert(0, Refusing())
from beambert import cli

results = []
for argv in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(argv)
        except SystemExit as stop:
            code = stop.code
        except TensorFlowImported:
            code = "TensorFlow"
    results.append([code, err.getvalue()])
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with wrong paths for a model (a dataset, a corpus, an empty folder, files), and files of a task."""
    folder = tmp_path_factory.mktemp("places")
    for name in ("dataset", "corpus", "task", "empty"):
        (folder / name).mkdir()
    for name in ("dataset", "corpus"):
        (folder / name / f"{name}.json").write_text("{}", encoding="utf-8")
    for name in ("train", "dev"):
        (folder / "task" / f"{name}.csv").write_text("text,label\na,0\nb,1\n", encoding="utf-8")
    (folder / "bad.zip").write_bytes(b"no archive")
    (folder / "text.txt").write_text("a text\n", encoding="utf-8")
    return folder


def models(folder: Path) -> list[tuple[list[str], str]]:
    """Return every command that takes a model with every wrong path, and the required parts of the message."""
    commands = [
        ["predict", "{}", "a text"],
        ["features", "--init_checkpoint", "{}", "--input_file", f"{folder}/text.txt", "--output_file", "f.npz"],
        ["export", "{}", f"{folder}/new"],
        ["fill-mask", "{}", "a [MASK]"],
        ["convert", "{}", f"{folder}/new", "--to", "tf1"],
        ["extend-vocab", "{}", "--input", f"{folder}/text.txt", "--num_tokens", "1", "--output", f"{folder}/new"],
        ["finetune", "csv", "--data_dir", f"{folder}/task", "--init_checkpoint", "{}", "--output", f"{folder}/run"],
        ["tune", "csv", "--data_dir", f"{folder}/task", "--init_checkpoint", "{}", "--output", f"{folder}/runs"],
    ]
    wrong = {
        "dataset": "is a dataset (dataset.json)",
        "corpus": "is a corpus (corpus.json)",
        "empty": "is an empty directory",
        "nowhere": "does not exist",
        "text.txt": "is a file",
        "bad.zip": "is not a complete zip archive",
    }
    return [
        ([word.format(f"{folder}/{name}") for word in command], f"{folder}/{name}|{says}")
        for command in commands
        for name, says in wrong.items()
    ]


def others(folder: Path) -> list[tuple[list[str], str]]:
    """Return commands with other wrong paths or with texts without [MASK], and the required parts of the message."""
    model, new = str(MODEL), f"{folder}/new"
    features = ["features", "--output_file", f"{folder}/f.npz", "--init_checkpoint", str(MASKED)]
    tuned = ["--init_checkpoint", model, "--output", new]
    cases = [
        (["fill-mask", str(MASKED), "a [MASK]", "no mask here"], "invalid TEXT 'no mask here': [MASK] is missing"),
        (["predict", model, "--input_file", f"{folder}/nowhere"], "--input_file|does not exist"),
        (["predict", model, "--input_file", f"{folder}/corpus"], "--input_file|is a corpus (corpus.json)"),
        ([*features, "--input_file", f"{folder}/nowhere"], "--input_file|does not exist"),
        ([*features, "--input_file", f"{folder}/dataset"], "--input_file|is a dataset (dataset.json)"),
        ([*features, "--input_file", f"{folder}/empty"], "--input_file|is an empty directory"),
        (["finetune", "rte", "--data_dir", f"{folder}/dataset", *tuned], "--data_dir|is a dataset (dataset.json)"),
        (["finetune", "csv", "--data_dir", f"{folder}/empty", *tuned], "--data_dir|is an empty directory"),
        (["finetune", "ner", "--data_dir", f"{folder}/corpus", *tuned], "--data_dir|is a corpus (corpus.json)"),
        (["tune", "rte", "--data_dir", f"{folder}/nowhere", *tuned], "--data_dir|does not exist"),
        # The model has the classes, but the files are missing.
        (["finetune", "csv", "--do_eval", "--data_dir", f"{folder}/empty", *tuned], "--data_dir|is an empty directory"),
        (["pretrain", "--data", f"{folder}/nowhere", "--output", new], f"{folder}/nowhere"),
        (["pretrain", "--data", f"{folder}/corpus", "--output", new], f"{folder}/corpus"),
        (["pretrain", "--data", f"{folder}/empty", "--output", new], f"{folder}/empty"),
    ]
    for command in (
        ["predict", model, "a text"],
        [*features, "--input_file", f"{folder}/text.txt"],
        ["export", model, new],
        ["fill-mask", str(MASKED), "a [MASK]"],
        ["convert", model, new, "--to", "tf1"],
        ["finetune", "csv", "--data_dir", f"{folder}/task", *tuned],
    ):
        cases.append(([*command, "--vocab_file", f"{folder}/nowhere"], f"{folder}/nowhere"))
        cases.append(([*command, "--bert_config_file", f"{folder}/nowhere"], f"{folder}/nowhere"))
    return cases


@pytest.mark.slow
@pytest.mark.parametrize("cases", [models, others])
def test_mistakes_are_found_before_tensorflow_is_imported(folder, cases):
    expected = cases(folder)
    argv = json.dumps([argv for argv, _ in expected])
    child = subprocess.run([sys.executable, "-c", CHILD], input=argv, capture_output=True, text=True, cwd=folder)
    assert child.returncode == 0, child.stderr
    wrong = []
    for (argv, says), (code, err) in zip(expected, json.loads(child.stdout), strict=True):
        if code != 1 or err.count("\n") != 1 or not all(part in err for part in says.split("|")):
            wrong.append((" ".join(argv), code, err, says))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_wrong_checkpoint_to_pretrain_from(folder):
    data = folder / "data"
    from tests.trainers.pretraining_shards import write_dataset

    write_dataset(data)
    argv = ["pretrain", "--data", str(data), "--output", str(folder / "run"), "--num_train_steps", "4"]
    expected = [
        ([*argv, "--init_checkpoint", f"{folder}/{name}"], says)
        for name, says in (("nowhere", "does not exist"), ("dataset", "is a dataset"), ("empty", "is an empty"))
    ]
    given = json.dumps([argv for argv, _ in expected])
    child = subprocess.run([sys.executable, "-c", CHILD], input=given, capture_output=True, text=True, cwd=folder)
    for (_, says), (code, err) in zip(expected, json.loads(child.stdout), strict=True):
        assert (code, err.count("\n")) == (1, 1)
        assert says in err


def test_a_right_path_is_not_refused(folder):
    commands = [["predict", str(MODEL), "a text"], ["fill-mask", str(MASKED), "a [MASK]"]]
    child = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(commands), capture_output=True, text=True, cwd=folder
    )
    assert [code for code, _ in json.loads(child.stdout)] == ["TensorFlow", "TensorFlow"]
