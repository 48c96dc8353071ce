"""Test that the diagnosis names the fault that was put into a small run, and no other."""

import pytest

from beambert.pipelines import dataset as manifest
from beambert.trainers.metrics.diagnosis import (
    LABELS,
    LEARNING_RATE,
    ONE_CLASS,
    REPETITION,
    VOCABULARY,
    findings_of_text,
)
from beambert.trainers.pretraining.baselines import baselines_of
from beambert.trainers.pretraining.plan import read_vocabulary
from tests.trainers.pretraining.diagnosed_runs import GOOD, pretrained
from tests.trainers.pretraining.toy_language import Language, write_language

TEXT_FAULTS = {
    "repeated lines": REPETITION,
    "shuffled labels": LABELS,
    "no masks": LABELS,
    "one class": ONE_CLASS,
    "large vocabulary": VOCABULARY,
}


def language_with(fault):
    return Language(unused=200) if fault == "large vocabulary" else Language()


def findings(directory):
    dataset = manifest.load(directory)
    vocabulary = read_vocabulary(directory, dataset)
    record = baselines_of(directory, dataset, vocabulary, causal=False, next_sentence=True)
    return findings_of_text(record.text, {name: level.loss for name, level in record.levels.items()})


@pytest.mark.parametrize(("fault", "cause"), TEXT_FAULTS.items())
def test_a_fault_of_the_text_is_named_before_the_first_step(tmp_path, fault, cause):
    write_language(tmp_path / "data", language_with(fault), fault)
    assert [finding.cause for finding in findings(tmp_path / "data")] == [cause]


@pytest.mark.parametrize(("seed", "words", "successors"), [(1, 40, 2), (2, 80, 3), (3, 160, 5)])
def test_no_alarm_on_healthy_text(tmp_path, seed, words, successors):
    language = Language(seed, words, successors)
    write_language(tmp_path / "data", language)
    assert findings(tmp_path / "data") == []


@pytest.mark.slow
def test_a_learning_rate_that_is_too_high(tmp_path, capsys):
    language = Language()
    write_language(tmp_path / "data", language)
    flags = (*GOOD, "--learning_rate", "0.1", "--num_warmup_steps", "60", "--num_train_steps", "150")
    result = pretrained(tmp_path, tmp_path / "data", language.model(), *flags)
    assert result.is_stuck
    assert result.causes == [LEARNING_RATE]
    # Printed once during the run, and once in the summary after the last checkpoint.
    printed = capsys.readouterr().err
    assert printed.count("warning: The learning rate is too high") == 2
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "The learning rate is too high" in report
    assert "No warnings." not in report


@pytest.mark.usefixtures("numpy_backend")
def test_a_fault_of_the_text_is_in_the_summary_of_a_run(tmp_path, capsys):
    write_language(tmp_path / "data", Language(), "one class")
    flags = [flag for flag in GOOD if flag != "--no_next_sentence"]
    result = pretrained(tmp_path, tmp_path / "data", Language().model(32), *flags, "--num_train_steps", "10")
    assert ONE_CLASS in result.causes
    # Printed before the first step and in the summary.
    assert capsys.readouterr().err.count("warning: ") >= 2
