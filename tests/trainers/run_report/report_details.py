"""Return details of every kind of fine-tuning task for tests of reports, with a given text in every text field."""

import numpy as np


def confusion(labels, seed=0):
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 9, (len(labels), len(labels))) + np.diag(generator.integers(20, 90, len(labels)))
    return {"labels": list(labels), "counts": counts.tolist()}


def mistakes(text, count=14, pair=True):
    return [
        {
            "location": f"dev.tsv, row {number} {text[:20]}",
            "text": f"{text} ({number})",
            "text_pair": f"the other {text}" if pair else None,
            "label": "paraphrase",
            "prediction": f"other {text[:80]}",
            "probability": 0.999 - number / 100,
        }
        for number in range(count)
    ]


def choices(text, count=3):
    return [
        {
            "location": f"val.csv, row {number}",
            "text": text,
            "choices": [f"first {text}", "second", f"third {text}", "fourth"],
            "label": number % 4,
            "prediction": (number + 1) % 4,
            "probability": 0.7,
        }
        for number in range(count)
    ]


def answers(text):
    context = f"{'Before. ' * 60}{text} The tower was built in 1889 by Eiffel's company. {text}{' After.' * 80}"
    year, name = context.index("1889"), context.index("Eiffel")
    common = {"location": "dev.json, question 56be", "question": f"When was it built? {text}", "context": context}
    return [
        {
            **common,
            "answers": [[year, year + 4], [year - 3, year + 4]],
            "prediction": [year, name + 6],
            "text": context[year : name + 6],
            "probability": 0.9,
            "exact": False,
        },
        {**common, "answers": [], "prediction": [name, name + 6], "text": "Eiffel", "probability": 0.8, "exact": False},
        {**common, "answers": [[0, 6]], "prediction": None, "text": "", "probability": 0.7, "exact": False},
        {
            **common,
            "answers": [[year, year + 4]],
            "prediction": [year, year + 4],
            "text": "1889",
            "probability": 0.6,
            "exact": True,
        },
        {**common, "answers": [], "prediction": None, "text": "", "probability": 0.5, "exact": True},
    ]


def entities(text):
    words = ["Angela", "Merkel", "visited", text, "Paris", "in", "May", "with", "the", "EU", "."]
    kinds = ["PER", "LOC", "MISC", "ORG", "DATE", "EVENT", f"TYPE {text[:70]}"]
    return [
        {
            "location": "valid.txt, sentence 3 (line 17)",
            "words": words,
            "labels": [[0, 2, "PER"], [4, 5, "LOC"], [9, 10, "ORG"]],
            "predictions": [[0, 1, "PER"], [3, 5, "MISC"], [9, 10, "ORG"]],
        },
        {
            "location": "valid.txt, sentence 4",
            "words": words[:3],
            "labels": [[0, 2, "PER"]],
            "predictions": [[0, 2, "PER"]],
        },
        {
            "location": "valid.txt, sentence 5",
            "words": words,
            "labels": [[place, place + 1, kind] for place, kind in enumerate(kinds)],
            "predictions": [],
        },
    ]


def by_type(names):
    return [
        {"type": name, "precision": 0.9 - i / 100, "recall": 0.8, "f1": 0.85, "count": 1000 - i}
        for i, name in enumerate(names)
    ]


def regression(count=300, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.uniform(0, 5, count)
    predictions = np.clip(labels + generator.normal(0, 0.6, count), -0.5, 5.5)
    return {"points": np.stack([labels, predictions], axis=1).tolist()}


def evaluations(text):
    """Return the contents of evaluation.json and eval_results.json for every kind of task, by name."""
    two, hundred = ("not_paraphrase", "paraphrase"), [f"label {i} {text[:90]}" for i in range(100)]
    three = ("entailment", "neutral", "contradiction")
    loss = {"eval_loss": 0.5, "loss": 0.5, "global_step": 343}
    stsb = [{**mistake, "label": "4.75", "prediction": "1.2"} for mistake in mistakes(text, 5)]
    for mistake in stsb:
        del mistake["probability"]
    return {
        "mrpc": (
            {"task": "mrpc", "splits": {"dev": {"confusion": confusion(two), "errors": mistakes(text)}}},
            {"eval_accuracy": 0.8456, "eval_f1": 0.8873, **loss},
        ),
        "mnli": (
            {
                "task": "mnli",
                "splits": {
                    split: {"confusion": confusion(three, seed), "errors": mistakes(text, 4)}
                    for seed, split in enumerate(("dev", "dev_mismatched"))
                },
            },
            {"eval_accuracy": 0.8391, "eval_mismatched_accuracy": 0.841, **loss},
        ),
        "many": (
            {"task": "csv", "splits": {"dev": {"confusion": confusion(hundred), "errors": mistakes(text, 3, False)}}},
            {"eval_accuracy": 0.6, "eval_macro_f1": 0.55, **loss},
        ),
        "twenty": (
            {"task": "csv", "splits": {"dev": {"confusion": confusion([*hundred[:19], text])}}},
            {"eval_accuracy": 0.6, **loss},
        ),
        "stsb": (
            {"task": "stsb", "splits": {"dev": {"regression": regression(), "errors": stsb}}},
            {"eval_pearson": 0.886, "eval_spearman": 0.881, **loss},
        ),
        "swag": (
            {"task": "swag", "splits": {"dev": {"choices": choices(text)}}},
            {"eval_accuracy": 0.801, **loss},
        ),
        "squad": (
            {"task": "squad", "splits": {"dev": {"answers": answers(text)}}},
            {"exact_match": 81.2488, "f1": 88.4125, "total": 10570, **loss},
        ),
        "squad2": (
            {"task": "squad", "splits": {"dev": {"answers": answers(text)}}},
            {"exact": 71.25, "f1": 74.41, "HasAns_f1": 77.1, "best_f1_thresh": -1.5, "total": 11873, **loss},
        ),
        "ner": (
            {
                "task": "ner",
                "splits": {"dev": {"entities": entities(text), "by_type": by_type(["LOC", "ORG", text])}},
            },
            {"eval_f1": 0.951, "eval_precision": 0.95, "eval_recall": 0.952, **loss},
        ),
    }
