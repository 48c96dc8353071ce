import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.trainers.checkpoints.checkpoint_manager import BestCheckpoint, best, lower_is_better, record_if_improved
from beambert.trainers.errors import TrainingError


@pytest.fixture
def directory(tmp_path):
    """A directory with empty index files of checkpoints 1 to 9; the tests do not depend on their content."""
    for step in range(1, 10):
        (tmp_path / f"model.ckpt-{step}.index").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("metric", "lower"),
    [
        ("loss", True),
        ("masked_lm_loss", True),
        ("mean_squared_error", True),
        ("masked_lm_accuracy", False),
        ("f1", False),
        ("macro_f1", False),
        ("exact_match", False),
        ("pearson", False),
    ],
)
def test_the_last_word_of_a_metric_determines_whether_lower_is_better(directory, metric, lower):
    assert lower_is_better(metric) is lower
    assert record_if_improved(directory, 1, metric, 0.5)
    assert record_if_improved(directory, 2, metric, 0.4) is lower
    assert record_if_improved(directory, 3, metric, 0.6) is not lower
    assert best(directory) == (2 if lower else 3, metric, 0.4 if lower else 0.6)


@pytest.mark.parametrize("metric", ["learning_rate", "glossary", "floss", "accuracy_of_words", ""])
def test_other_metrics_are_refused(directory, metric):
    with pytest.raises(TrainingError, match=f"invalid --best_metric {metric}: must end with one of .* accuracy"):
        record_if_improved(directory, 1, metric, 0.5)
    assert best(directory) is None


def test_evaluations_on_other_data_are_not_compared(directory):
    assert record_if_improved(directory, 2, "loss", 0.5)
    assert record_if_improved(directory, 4, "loss", 0.4)
    # Training on other data began at step 4, and the first evaluation on it is the best one.
    assert record_if_improved(directory, 6, "loss", 0.9, data_step=4)
    assert not record_if_improved(directory, 8, "loss", 0.95, data_step=4)
    assert best(directory) == (6, "loss", 0.9)
    assert record_if_improved(directory, 9, "loss", 0.8, data_step=4)


@given(values=st.lists(st.floats(), max_size=9))
@settings(max_examples=50, deadline=None)
def test_the_best_is_the_first_of_the_lowest(tmp_path_factory, values):
    directory = tmp_path_factory.mktemp("best")
    for step, value in enumerate(values):
        (directory / f"model.ckpt-{step}.index").touch()
        record_if_improved(directory, step, "loss", value)
    finite = [value for value in values if abs(value) < float("inf")]
    expected = BestCheckpoint(values.index(min(finite)), "loss", min(finite)) if finite else None
    assert best(directory) == expected
    # Steps that are evaluated again after a resume do not change the result.
    for step, value in enumerate(values):
        record_if_improved(directory, step, "loss", value)
    assert best(directory) == expected


def test_a_removed_best_checkpoint_and_another_metric_are_ignored(directory):
    assert record_if_improved(directory, 3, "loss", 0.1)
    assert not record_if_improved(directory, 4, "loss", 0.2)
    (directory / "model.ckpt-3.index").unlink()
    assert best(directory) is None
    assert record_if_improved(directory, 4, "loss", 0.2)
    assert record_if_improved(directory, 5, "masked_lm_accuracy", 0.01)
    assert json.loads((directory / "best.json").read_text()) == {
        "step": 5,
        "metric": "masked_lm_accuracy",
        "value": 0.01,
    }
    assert {path.name for path in directory.iterdir() if "ckpt" not in path.name} == {"best.json"}


def test_a_damaged_record_is_named(directory):
    for damage in ("", "{", "[1]", '{"step": 1}', '{"step": "x", "metric": "loss", "value": 1}'):
        (directory / "best.json").write_text(damage)
        with pytest.raises(TrainingError, match=r"best.json: .*remove it"):
            best(directory)
