"""Test the levels of a run: recorded before the first step, kept when it resumes, and shown next to its loss."""

import json
import re

import pytest

from beambert.pipelines import dataset as manifest
from beambert.trainers.commands import pretrain
from beambert.trainers.metrics import baseline_record
from beambert.trainers.monitoring import metrics_jsonl
from beambert.trainers.pretraining.baselines import baselines_of
from beambert.trainers.pretraining.plan import read_vocabulary
from beambert.trainers.run_report.run_report import write_report
from tests.pages import assert_harmless, parsed

pytestmark = pytest.mark.usefixtures("numpy_backend")

TRAIN = ("--eval_steps", "2", "--save_checkpoints_steps", "2")


def lines_of(output, split="train"):
    return [line for line in metrics_jsonl.read(output / metrics_jsonl.FILE_NAME) if line["split"] == split]


def test_levels_are_recorded_shown_and_kept(options, tmp_path, capsys):
    output = tmp_path / "output"
    assert pretrain.run(options(*TRAIN)) == 0
    printed = capsys.readouterr().out
    record = baseline_record.load(output)
    assert list(record.levels) == ["bigram", "unchanged", "unigram"]
    assert record.text.pairs == 10
    assert len(re.findall(r"^step \d/6  validation  ", printed, re.MULTILINE)) == 3
    assert re.search(r"^Levels       passed: ", printed, re.MULTILINE)
    for line in lines_of(output):
        assert line["update_ratio"] >= 0
        assert 0 < line["weight_rms"] < 1
    page = (output / "report.html").read_text(encoding="utf-8")
    assert_harmless(page)
    section = page.partition('<section id="levels">')[2].partition("</section>")[0]
    for name, level in record.levels.items():
        assert f"<td>{name}</td>" in section
        assert f"{level.loss:.3f}" in section
        # The figures of loss and accuracy show the level.
        assert len(re.findall(rf'class="level-name" [^>]*>{name} [\d.]+<', page)) == 2

    # A resumed run keeps the recorded levels, even if they no longer match its data.
    path = output / baseline_record.FILE_NAME
    content = json.loads(path.read_text(encoding="utf-8"))
    content["levels"] = {"unigram": {"loss": 99.0, "accuracy": 0.5}}
    path.write_text(json.dumps(content), encoding="utf-8")
    assert pretrain.run(options(*TRAIN, "--num_train_steps", "8")) == 0
    printed = capsys.readouterr().out
    assert "step 8/8" in printed
    assert "passed: unigram at step" in printed
    assert baseline_record.load(output).levels["unigram"].loss == 99.0
    # An evaluation without training names the level too.
    assert pretrain.run(options("--do_eval", "--num_train_steps", "8")) == 0
    assert "passed: unigram at step" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"format": "beambert-baselines", "format_version": 2}'])
def test_a_corrupt_record_is_loaded_as_none(tmp_path, content):
    (tmp_path / baseline_record.FILE_NAME).write_bytes(content)
    assert baseline_record.load(tmp_path) is None


def test_runs_of_older_versions(options, tmp_path, capsys):
    output = tmp_path / "output"
    assert pretrain.run(options("--num_train_steps", "2", "--do_train")) == 0
    (output / baseline_record.FILE_NAME).unlink()
    lines = [
        {name: value for name, value in line.items() if name not in ("update_ratio", "weight_rms")}
        for line in metrics_jsonl.read(output / metrics_jsonl.FILE_NAME)
    ]
    (output / metrics_jsonl.FILE_NAME).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    page = write_report(output).read_text(encoding="utf-8")
    assert "levels" not in parsed(page).ids
    capsys.readouterr()
    # The levels are computed when the run resumes.
    assert pretrain.run(options("--num_train_steps", "4", "--do_train")) == 0
    assert "\nLevels       passed: " in capsys.readouterr().out
    assert baseline_record.load(output) is not None


def test_levels_follow_the_objective(data):
    dataset = manifest.load(data)
    vocabulary = read_vocabulary(data, dataset)
    both = baselines_of(data, dataset, vocabulary, causal=False, next_sentence=True)
    causal = baselines_of(data, dataset, vocabulary, causal=True, next_sentence=False)
    assert both.levels["unigram"] == causal.levels["unigram"]
    assert both.levels["bigram"] != causal.levels["bigram"]
    assert (both.text.pairs, causal.text.pairs) == (10, 0)
