"""Test the diagnosis on recorded facts of real runs, and on facts near each limit."""

import json
from dataclasses import replace

import pytest

from beambert.common.typed_json import convert
from beambert.trainers.metrics.baseline_record import BaselineRecord
from beambert.trainers.metrics.diagnosis import (
    LABELS,
    LEARNING_RATE,
    ONE_CLASS,
    REPETITION,
    TOO_FEW,
    VOCABULARY,
    WARMUP,
    RunFacts,
    Update,
    findings_of_run,
    findings_of_text,
    is_on_plateau,
)
from beambert.trainers.metrics.text_measures import TextMeasures
from beambert.trainers.run_report.run_facts import facts_of
from tests.conftest import ROOT

# Runs of 2026-11-24 on sentences of SST-2 (vocabulary 1,000, two layers of 64 units) and on German novels. Runs of
# 2026-11-25 on Wikipedia (vocabulary 8,000, four layers of 256 units).
RECORDED = json.loads((ROOT / "tests/fixtures/diagnosed_runs.json").read_text(encoding="utf-8"))
# Measures like those of English Wikipedia.
TEXT = TextMeasures(
    tokens=938_832,
    repeated=0.006,
    rare_vocabulary=0.08,
    predictions=14_110,
    masked=0.8073,
    expected_masked=0.8,
    unchanged=0.0979,
    expected_unchanged=0.1,
    most_frequent_label=0.048,
    pairs=8192,
    labeled_1=0.53,
)
LEVELS = {"unigram": 6.99, "unchanged": 6.41, "bigram": 4.85}


def recorded_facts(name):
    run = RECORDED[name]
    return facts_of(run["options"], {}, convert(run["baselines"], BaselineRecord), run["lines"])


def causes(findings):
    return [finding.cause for finding in findings]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_runs(name):
    expected = RECORDED[name]["cause"]
    assert causes(findings_of_run(recorded_facts(name))) == ([expected] if expected else [])


def test_a_run_with_initial_weights_has_their_vocabulary():
    run = next(iter(RECORDED.values()))
    for path, expected in ((None, False), ("uncased_L-12", True)):
        assert facts_of({**run["options"], "init_checkpoint": path}, {}, None, []).is_pretrained is expected


@pytest.mark.parametrize("name", RECORDED)
def test_no_alarm_in_the_first_half_of_a_recorded_run(name):
    run = RECORDED[name]
    baselines = convert(run["baselines"], BaselineRecord)
    for count in range(len(run["lines"])):
        findings = findings_of_run(facts_of(run["options"], {}, baselines, run["lines"][:count]))
        step = run["lines"][count - 1]["step"] if count else 0
        if step < run["options"]["num_train_steps"] / 2:
            assert findings == []
        # An unfinished run may still leave the plateau.
        assert TOO_FEW not in causes(findings)


def facts(**changes):
    """Return the facts of a run that ends on the plateau after ordinary updates."""
    updates = [Update(100 * step, 0.01, 2e-4, 8e-4) for step in range(1, 21)]
    losses = [(100 * step, 6.41) for step in range(1, 21)]
    fields = {"step": 2000, "num_train_steps": 2000, "num_warmup_steps": 200, "learning_rate": 1e-3}
    fields |= {"initial_rms": 0.02, "losses": losses, "updates": updates, "levels": LEVELS, "text": TEXT}
    return RunFacts(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [TOO_FEW]),
        ({"step": 1900}, []),
        # Like the run of mini in the documentation. The limit is a twentieth of the way to the level of neighbors.
        ({"losses": [(100 * step, 6.36) for step in range(1, 21)]}, [TOO_FEW]),
        ({"losses": [(100 * step, 6.30) for step in range(1, 21)]}, []),
        ({"losses": [(100, 9.0), (2000, 9.0)]}, []),
        ({"levels": {}}, []),
        ({"levels": {"unigram": 6.99, "bigram": 4.85}}, []),
        ({"levels": {"unigram": 6.40, "bigram": 4.85}}, [TOO_FEW]),
        ({"levels": {"unigram": 6.40}}, [TOO_FEW]),
        ({"levels": {"unigram": 6.42}}, []),
        ({"text": None}, [TOO_FEW]),
        ({"updates": []}, [TOO_FEW]),
        # Without bias correction, the first updates are longer than the learning rate.
        ({"updates": [Update(100, 0.1, 2.5e-3, 8e-4)]}, [WARMUP]),
        ({"updates": [Update(100, 0.1, 2.3e-3, 8e-4)]}, [TOO_FEW]),
        ({"updates": [Update(100, 0.1, 2.5e-3, 5e-3)], "learning_rate": 5e-3}, [LEARNING_RATE]),
        ({"updates": [Update(100, 0.1, 2.5e-3, 2e-3)], "learning_rate": 1e-2}, [LEARNING_RATE]),
        # Training that has collapsed: Adam's steps are a small fraction of the learning rate.
        ({"updates": [Update(100 * step, 0.01, 5e-5, 8e-4) for step in range(1, 21)]}, [LEARNING_RATE]),
        ({"updates": [Update(100 * step, 0.01, 9e-5, 8e-4) for step in range(1, 21)]}, [TOO_FEW]),
        # Only the first half has steps of usual length, or only some later steps are short.
        (
            {"updates": [Update(100 * step, 0.01, 2e-4 if step <= 10 else 5e-5, 8e-4) for step in range(1, 21)]},
            [LEARNING_RATE],
        ),
        (
            {"updates": [Update(100 * step, 0.01, 5e-5 if step > 16 else 2e-4, 8e-4) for step in range(1, 21)]},
            [TOO_FEW],
        ),
        ({"updates": [Update(100 * step, 0.01, 0.0, 0.0) for step in range(1, 21)]}, [TOO_FEW]),
        # The weights of a pretrained model are larger, so its updates may be larger too.
        ({"updates": [Update(100, 0.1, 2.5e-3, 8e-4)], "initial_rms": 0.04}, [TOO_FEW]),
        ({"updates": [Update(100, 0.1, 2.5e-3, 8e-4)], "step": 900}, []),
        # A fault of the text has precedence over causes of the optimizer.
        ({"text": replace(TEXT, repeated=0.5)}, [REPETITION]),
        ({"text": replace(TEXT, rare_vocabulary=0.9)}, [VOCABULARY]),
        # A pretrained model on the text of a domain: many tokens of its vocabulary are rare there.
        ({"text": replace(TEXT, rare_vocabulary=0.9), "is_pretrained": True, "step": 900}, []),
        ({"text": replace(TEXT, repeated=0.5), "is_pretrained": True}, [REPETITION]),
    ],
)
def test_causes_of_a_run(changes, expected):
    assert causes(findings_of_run(facts(**changes))) == expected


@pytest.mark.parametrize(
    ("changes", "levels", "expected"),
    [
        ({}, {}, []),
        ({"repeated": 0.29}, {}, []),
        ({"repeated": 0.31}, {}, [REPETITION]),
        ({"rare_vocabulary": 0.49}, {}, []),
        ({"rare_vocabulary": 0.51}, {}, [VOCABULARY]),
        ({"labeled_1": 0.0}, {}, [ONE_CLASS]),
        ({"labeled_1": 1.0}, {}, [ONE_CLASS]),
        ({"labeled_1": 0.01}, {}, []),
        ({"labeled_1": 0.0, "pairs": 20}, {}, []),
        ({"masked": 0.0}, {}, [LABELS]),
        ({"masked": 0.39, "expected_masked": 0.4}, {}, []),
        ({"unchanged": 0.001}, {}, [LABELS]),
        ({"unchanged": 0.0, "expected_unchanged": 0.0}, {}, []),
        ({"most_frequent_label": 0.9}, {}, [LABELS]),
        ({"predictions": 0}, {}, [LABELS]),
        # A small sample is not significant.
        ({"predictions": 20, "masked": 0.0}, {}, []),
        ({"tokens": 9000, "rare_vocabulary": 1.0, "repeated": 1.0}, {}, []),
        # Neighbors do not lower the loss: the labels belong to another text.
        ({}, {"bigram": 6.45}, [LABELS]),
        ({}, {"bigram": 6.2}, []),
    ],
)
def test_causes_of_a_text(changes, levels, expected):
    text = replace(TEXT, **changes)
    assert causes(findings_of_text(text, {**LEVELS, **levels})) == expected


def test_a_finding_has_figure_and_remedy():
    (finding,) = findings_of_run(facts(updates=[Update(100, 0.05, 4e-3, 0.04)], learning_rate=0.04))
    assert str(finding) == (
        "The learning rate is too high: at step 100 an update had 5.0% of the length of the weights, and 20% of that "
        "of the initial weights. Train again with a --learning_rate below 0.04, such as 0.008."
    )
    assert is_on_plateau(facts())
