"""Render where a pretraining run stands: the levels of its text, when it passed each, and a reference run."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from beambert.pipelines.reporting.tables import percent, short, table
from beambert.trainers.metrics.ngram_baselines import BIGRAM, UNCHANGED, UNIGRAM
from beambert.trainers.metrics.reference_curves import reference_at, reference_of
from beambert.trainers.metrics.standing import in_order, passed_at, standing
from beambert.trainers.run_report.finished_run import Run

_MEANINGS = {
    UNIGRAM: "token frequencies",
    UNCHANGED: "token frequencies, and the masked positions left unchanged",
    BIGRAM: "the same, with the left and the right neighbor",
}


def levels_section(run: Run) -> str:
    """Return the section as HTML; "" for runs without `baselines.json`."""
    if not run.levels:
        return ""
    splits = {"training": passed_at(run.train, run.levels), "validation": passed_at(run.validation, run.levels)}
    rows = [
        (
            name,
            _MEANINGS.get(name, ""),
            f"{run.levels[name].loss:.3f}",
            f"{run.levels[name].accuracy:.3f}",
            *(f"step {steps[name]:,}" if name in steps else "not yet" for steps in splits.values()),
        )
        for name in in_order(run.levels)
    ]
    header = ("level", "predicts from", "masked-LM loss", "accuracy", *(f"passed, {split}" for split in splits))
    return _standing(run) + _plateau(run, splits) + table(header, rows) + _reference(run)


def _standing(run: Run) -> str:
    parts = [
        f"{split} {now} at step {lines[-1]['step']:,}"
        for split, lines in (("validation", run.validation), ("training", run.train))
        if lines and (now := standing(lines[-1], run.levels))
    ]
    return f"<p>{escape('; '.join(parts).capitalize())}.</p>" if parts else ""


def _plateau(run: Run, splits: Mapping[str, Mapping[str, int]]) -> str:
    """Return a sentence about the step at which each split left the plateau; "" without that level."""
    if UNCHANGED not in run.levels:
        return ""
    left = [f"{split} at step {steps[UNCHANGED]:,}" for split, steps in splits.items() if UNCHANGED in steps]
    return f"<p>The plateau was left by {' and '.join(left)}.</p>" if left else "<p>The plateau was not left.</p>"


def _reference(run: Run) -> str:
    """Return a sentence about the reference run of the same size at the same number of tokens."""
    reference, last = reference_of(run.config), _last(run.validation) or _last(run.train)
    if reference is None or last is None or not isinstance(last.get("tokens"), int | float):
        return ""
    point = reference_at(reference, last["tokens"])
    if point is None:
        return ""
    return (
        f"<p>The reference run of {escape(reference.model)} after {short(point.tokens)} tokens: masked-LM loss "
        f"{point.loss:.3f}, accuracy {percent(point.accuracy)}. It was trained on {escape(reference.data)}, so compare "
        "losses only for a similar vocabulary.</p>"
    )


def _last(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return lines[-1] if lines else None
