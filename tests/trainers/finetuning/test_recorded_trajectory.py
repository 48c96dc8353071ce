"""Test fine-tuning step by step against recorded runs of transformers with the same weights and rows."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import with_slow
from tests.trainers.finetuning.trajectories import CASES, COURSES, RECORDED, Trajectory, our_trajectory

FIXTURE = Path(__file__).parents[2] / "fixtures" / "finetuning.json"


@pytest.mark.parametrize(
    ("name", "optimizer", "micro_steps"),
    # Labeled tokens are distributed unevenly over micro-batches.
    with_slow(
        [*((name, optimizer, 1) for name, optimizer in RECORDED), ("token_classification", "bert_adam", 2)],
        # Heads that differ from the others only in the loss, which test_finetuning_objective.py tests; the optimizer
        # that tests/trainers/optimization compares; a step of one micro-batch.
        [
            *((name, "bert_adam", 1) for name in ("multi_label", "multiple_choice", "regression")),
            ("classification", "adamw", 1),
            ("token_classification", "bert_adam", 1),
        ],
    ),
)
def test_losses_and_answers_are_those_of_transformers(name, optimizer, micro_steps):
    recorded = json.loads(FIXTURE.read_text(encoding="utf-8"))["trajectories"][f"{name}, {optimizer}"]
    theirs = Trajectory(recorded["losses"], [np.array(logits) for logits in recorded["logits"]])
    case = CASES[name]
    ours = our_trajectory(
        case, COURSES[optimizer], case.rows(), case.answered(), gradient_accumulation_steps=micro_steps
    )
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)
    assert max(ours.differences(theirs, case)) < 1e-4
    assert ours.predictions(case) == theirs.predictions(case)
