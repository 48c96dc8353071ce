"""Fine-tuning against what transformers made of the same weights and rows, update by update."""

import json
from pathlib import Path

import numpy as np
import pytest
from trajectories import CASES, COURSES, Trajectory, our_trajectory

VERSIONS, *RECORDED = json.loads((Path(__file__).parents[2] / "fixtures" / "finetuning.json").read_text())
BY_NAME = {f"{recorded['case']}-{recorded['optimizer']}": recorded for recorded in RECORDED}


def test_every_head_is_recorded():
    assert BY_NAME.keys() == {f"{case}-{course}" for case in CASES for course in COURSES}
    assert VERSIONS.keys() == {"torch", "transformers"}


@pytest.mark.parametrize(
    ("name", "micro_steps"),
    [*((name, 1) for name in BY_NAME), ("token_classification-bert_adam", 2)],
)
def test_losses_and_answers_are_those_of_transformers(name, micro_steps):
    recorded = BY_NAME[name]
    case = CASES[recorded["case"]]
    theirs = Trajectory(recorded["losses"], [np.array(logits) for logits in recorded["logits"]])
    ours = our_trajectory(
        case, COURSES[recorded["optimizer"]], case.rows(), case.answered(), gradient_accumulation_steps=micro_steps
    )
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-4)
    assert max(ours.differences(theirs, case)) < 1e-4
    assert ours.predictions(case) == theirs.predictions(case)
