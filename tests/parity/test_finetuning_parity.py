"""Fine-tuning beside that of transformers: the same weights, rows and optimizer, dropout off.

The tolerance is relative. What was measured is printed: -s shows it.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "trainers" / "finetuning"))

from torch_finetuning import converted_model, their_trajectory
from trajectories import CASES, COURSES, TINY, our_trajectory, write_weights

# Of the first loss, and of all losses and logits after it.
FIRST, LATER = 1e-6, 1e-4


def assert_same_course(what, case, ours, theirs):
    first = abs(ours.losses[0] / theirs.losses[0] - 1)
    losses = np.abs(np.array(ours.losses) / theirs.losses - 1).max()
    logits = max(ours.differences(theirs, case))
    size = max(np.abs(their).max() for their in theirs.logits)
    print(
        f"\n{what:<45} loss {theirs.losses[0]:.4f} to {theirs.losses[-1]:.4f}; relative difference of the first "
        f"{first:.1e}, of all {losses:.1e}; logits up to {size:.2f}, largest |difference| {logits:.1e}"
    )
    assert first < FIRST
    assert losses < LATER
    assert logits < LATER * max(size, 1.0)
    assert ours.predictions(case) == theirs.predictions(case)


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("name", CASES)
def test_every_head_trains_as_in_transformers(tmp_path, name, course):
    case, course = CASES[name], COURSES[course]
    rows, answered = case.rows(), case.answered()
    native = write_weights(tmp_path / "native", TINY, case)
    model = converted_model(native, tmp_path / "huggingface", case)
    theirs = their_trajectory(model, case, course, rows, answered)
    ours = our_trajectory(case, course, rows, answered)
    assert_same_course(f"{name}, {course.optimizer}", case, ours, theirs)
