"""Render the sections of a fine-tuning report: published scores, confusion matrix, errors.

The content is `evaluation.json`: `{"task": "mrpc", "splits": {"dev": {...}}}`, with the details of each split from a
`FinetuningTask`. Malformed content is omitted.
"""

from collections.abc import Callable, Mapping
from typing import Any

from beambert.pipelines.reporting.tables import table
from beambert.trainers.metrics.score_warnings import without_advice
from beambert.trainers.run_report.published_scores import IN_PERCENT, published
from beambert.trainers.run_report.task_examples import answers, choices, entities, errors
from beambert.trainers.run_report.task_tables import by_class, by_type, confusion, regression, warnings_of_confusion

# (id, title, HTML).
Section = tuple[str, str, str]
Details = Mapping[str, Any]


def sections(evaluation: Details, results: Mapping[str, Any]) -> list[Section]:
    """Return the sections of all splits.

    Args:
        evaluation: content of evaluation.json; {} without the file.
        results: content of eval_results.json.
    """
    parts = [("published", "Published scores", _valid_section(beside_published, str(evaluation.get("task")), results))]
    splits = _splits(evaluation)
    for split, details in splits.items():
        # The name of a split comes from a file and may not be a valid HTML id.
        number, suffix = ("", "") if len(splits) == 1 else (f"-{len(parts)}", f", {split}")
        parts += [
            (f"{name}{number}", f"{title}{suffix}", _valid_section(write, details[key]))
            for name, title, key, write in _SECTIONS
            if key in details
        ]
        if "by_type" not in details and "confusion" in details:
            parts.append((f"classes{number}", f"Classes{suffix}", _valid_section(by_class, details["confusion"])))
    return [section for section in parts if section[2]]


def warnings_of_details(evaluation: Details) -> list[str]:
    """Return warnings about the input and the predictions, one line each.

    Where many tokens are [UNK], only these warnings have a remedy.
    """
    unknown, warnings = [], []
    for split, details in _splits(evaluation).items():
        unknown += [line for line in (details.get("unknown_tokens"),) if isinstance(line, str)]
        lines = details.get("warnings")
        warnings += [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
        warnings += _valid_list(warnings_of_confusion, split, details.get("confusion"))
    return [*unknown, *map(without_advice, warnings)] if unknown else warnings


def _splits(evaluation: Details) -> dict[str, Details]:
    splits = evaluation.get("splits")
    if not isinstance(splits, dict):
        return {}
    return {name: details for name, details in splits.items() if isinstance(details, dict)}


def _valid_section(write: Callable[..., str], *content: Any) -> str:
    """Return the result of `write` for content from a file; "" if the content is malformed."""
    try:
        return write(*content)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return ""


def _valid_list(write: Callable[..., list[str]], *content: Any) -> list[str]:
    """Return the result of `write` for content from a file; empty if the content is malformed."""
    try:
        return write(*content)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return []


def in_percent(name: str, value: float) -> str:
    """Return a metric in percent, and a correlation times 100, as in papers."""
    return f"{value:.1f}" if name in IN_PERCENT else f"{100 * value:.1f}"


def beside_published(task: str, results: Mapping[str, Any]) -> str:
    """Return a table of this run's scores and of published scores; "" without published scores."""
    ours = {name: value for name, value in results.items() if isinstance(value, int | float)}
    lines = published(task, ours)
    if not lines:
        return ""
    names = [name for name in ours if any(name in line.scores for line in lines)]
    rows = [("this run", "dev", *(in_percent(name, ours[name]) for name in names), "")]
    for line in lines:
        scores = [in_percent(name, line.scores[name]) if name in line.scores else "" for name in names]
        rows.append((line.model, line.split, *scores, line.source))
    header = ("model", "split", *(metric_label(name) for name in names), "source")
    note = "Percent; correlations times 100. Scores on small datasets vary by several points between seeds"
    if any(line.split.startswith("test") for line in lines):
        note += ", and scores on the test split are often lower than on the dev split"
    return f"<p>{note}.</p>{table(header, rows)}"


def metric_label(name: str) -> str:
    """Return the label of a task's metric."""
    name = name.removeprefix("eval_")
    if name in _METRICS:
        return _METRICS[name]
    # F1 of an entity type, such as "f1_LOC".
    return f"F1, {name.removeprefix('f1_')}" if name.startswith("f1_") else name.replace("_", " ")


_METRICS = {
    "accuracy": "accuracy",
    "mismatched_accuracy": "accuracy, mismatched",
    "mismatched_loss": "loss, mismatched",
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "exact_match": "exact match",
    "exact": "exact match",
    "HasAns_exact": "exact match, answerable",
    "HasAns_f1": "F1, answerable",
    "NoAns_exact": "exact match, unanswerable",
    "NoAns_f1": "F1, unanswerable",
    "best_exact": "exact match at the best threshold",
    "best_f1": "F1 at the best threshold",
    "best_exact_thresh": "best threshold for exact match",
    "best_f1_thresh": "best threshold for F1",
}


_SECTIONS: tuple[tuple[str, str, str, Callable[[Any], str]], ...] = (
    ("confusion", "Confusion matrix", "confusion", confusion),
    ("types", "Entity types", "by_type", by_type),
    ("regression", "Predictions and labels", "regression", regression),
    ("errors", "Errors", "errors", errors),
    ("choices", "Errors", "choices", choices),
    ("answers", "Answers", "answers", answers),
    ("entities", "Entities", "entities", entities),
)
