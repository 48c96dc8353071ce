"""List published scores, for comparison with the scores of a run.

Metrics have the names and units of eval_results.txt: fractions for GLUE, NER and SWAG, percent for SQuAD, as its
official scripts print them.
"""

from collections.abc import Mapping
from typing import NamedTuple

# Metrics of the official SQuAD scripts, in percent.
IN_PERCENT = frozenset(
    {"exact_match", "f1", "exact", "best_exact", "best_f1"}
    | {f"{part}_{metric}" for part in ("HasAns", "NoAns") for metric in ("exact", "f1")}
)


class Published(NamedTuple):
    """Published scores and their source.

    Attributes:
        model: the fine-tuned model.
        split: the evaluated split.
        scores: scores by metric.
        source: the publication.
    """

    model: str
    split: str
    scores: Mapping[str, float]
    source: str


_PAPER = "Devlin et al. 2018"
_GLUE_TEST = f"{_PAPER}, table 1, by the GLUE server"
_ABLATION = f"{_PAPER}, table 5"
_MULTILINGUAL = "multilingual.md of google-research/bert"
# BERT base, cased, by the run_glue example of transformers, the best known figures for the dev splits.
_RERUN = "run_glue example of transformers"


def _glue(test: Mapping[str, float], ablation: Mapping[str, float], rerun: Mapping[str, float]) -> list[Published]:
    """Return the entries of a GLUE task, without those that have no scores."""
    lines = [
        Published("BERT base", "test", test, _GLUE_TEST),
        Published("BERT base", "dev", ablation, _ABLATION),
        Published("BERT base, cased", "dev", rerun, _RERUN),
    ]
    return [line for line in lines if line.scores]


_README = "README of google-research/bert"
_BY_TASK: dict[str, list[Published]] = {
    "cola": _glue({"eval_matthews": 0.521}, {}, {"eval_matthews": 0.565}),
    "sst2": _glue({"eval_accuracy": 0.935}, {"eval_accuracy": 0.927}, {"eval_accuracy": 0.923}),
    "mrpc": [
        *_glue({"eval_f1": 0.889}, {"eval_accuracy": 0.867}, {"eval_accuracy": 0.841, "eval_f1": 0.889}),
        Published("BERT base, uncased", "dev", {"eval_accuracy": 0.8456}, f"{_README}, 84 to 88 by seed"),
    ],
    "stsb": _glue({"eval_spearman": 0.858}, {}, {"eval_pearson": 0.886, "eval_spearman": 0.885}),
    "qqp": _glue({"eval_f1": 0.712}, {}, {"eval_accuracy": 0.907, "eval_f1": 0.875}),
    "mnli": _glue(
        {"eval_accuracy": 0.846, "eval_mismatched_accuracy": 0.834},
        {"eval_accuracy": 0.844},
        {"eval_accuracy": 0.839, "eval_mismatched_accuracy": 0.841},
    ),
    "qnli": _glue({"eval_accuracy": 0.905}, {"eval_accuracy": 0.884}, {"eval_accuracy": 0.907}),
    "rte": _glue({"eval_accuracy": 0.664}, {}, {"eval_accuracy": 0.657}),
    "wnli": [Published("majority class", "test", {"eval_accuracy": 0.651}, f"{_PAPER}, appendix B.1")],
    "xnli": [
        Published("BERT base, Chinese", "test, Chinese", {"eval_accuracy": 0.772}, _MULTILINGUAL),
        Published("BERT base, multilingual cased", "test, Chinese", {"eval_accuracy": 0.766}, _MULTILINGUAL),
        Published("BERT base, multilingual cased", "test, German", {"eval_accuracy": 0.759}, _MULTILINGUAL),
        Published("BERT base, multilingual cased", "test, English", {"eval_accuracy": 0.819}, _MULTILINGUAL),
    ],
    "squad": [
        Published("BERT base", "dev", {"exact_match": 80.8, "f1": 88.5}, f"{_PAPER}, table 2"),
        Published("BERT base, uncased", "dev", {"exact_match": 81.25, "f1": 88.41}, _README),
    ],
    "squad2": [
        # The paper has no scores of base.
        Published("BERT large", "dev", {"exact": 78.7, "f1": 81.9}, f"{_PAPER}, table 3"),
    ],
    "ner": [
        Published("BERT base, with document context", "test", {"eval_f1": 0.924}, f"{_PAPER}, table 7"),
        Published("BERT base, with document context", "dev", {"eval_f1": 0.964}, f"{_PAPER}, table 7"),
        Published("BERT base, feature-based, last four layers", "dev", {"eval_f1": 0.961}, f"{_PAPER}, table 7"),
    ],
    "swag": [Published("BERT base", "dev", {"eval_accuracy": 0.816}, f"{_PAPER}, table 4")],
}


def published(task: str, metrics: Mapping[str, float]) -> list[Published]:
    """Return the published scores of a task, for the metrics of a run.

    Args:
        task: name of the task, such as "mrpc".
        metrics: the run's metrics; they distinguish SQuAD 2.0 from 1.1.
    """
    if task == "squad" and "exact" in metrics:
        task = "squad2"
    return [line for line in _BY_TASK.get(task, []) if line.scores.keys() & metrics.keys()]
