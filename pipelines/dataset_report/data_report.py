"""Render `report.html` of a dataset, to check the training data before training.

The file is self-contained, has no scripts, and is deterministic: it has no dates or machine names.
"""

import itertools
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from beambert.pipelines.dataset import Dataset
from beambert.pipelines.dataset_report.data_warnings import expected_actions, expected_masked
from beambert.pipelines.examples import inspection
from beambert.pipelines.examples.example_reader import read_examples
from beambert.pipelines.examples.inspection import InstanceText
from beambert.pipelines.examples.statistics import Statistics, document_bin_start
from beambert.pipelines.examples.train_eval_overlap import DOCUMENT_SHARE, MAX_SENTENCES, SENTENCE_CHARACTERS, Overlap
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.reporting import rendering
from beambert.reporting.numbers import percent, share
from beambert.reporting.plots import histogram, logarithmic_histogram, rank_plot, waterfall
from beambert.tokenizer.vocabulary import Vocabulary

FILE_NAME = "report.html"
_MAX_ROWS = 20
_TOP_TOKENS = 60
_SAMPLES = 8
# Longer sentences are in the last bin of the plot.
_LONGEST_SENTENCE = 150
# Steps and batch size of the BERT paper, appendix A.2.
_PUBLISHED_STEPS, _PUBLISHED_BATCH = 1_000_000, 256


def read_samples(path: str, vocab: Vocabulary) -> list[InstanceText]:
    """Return the first instances of a shard."""
    examples = (inspection.decode(features, len(vocab)) for features in read_examples(path))
    texts = (text for example in examples for text in inspection.as_text(example, vocab))
    return list(itertools.islice(texts, _SAMPLES))


def render(
    manifest: Dataset,
    options: PretrainingDataOptions,
    train: Statistics,
    validation: Statistics,
    vocab: Vocabulary,
    samples: list[InstanceText],
) -> str:
    """Return the page as HTML.

    Args:
        manifest: the dataset; its counts include those of the corpus, "overlap" and "warnings".
        options: options of the examples.
        train, validation: statistics of the splits.
        vocab: the vocabulary.
        samples: sample instances of the training data.
    """
    return rendering.render(
        "data_report.html",
        title="Pretraining data",
        options=options,
        counts=manifest.counts,
        train=train,
        validation=validation,
        vocab_size=len(vocab),
        tokens=_tokens(train, vocab),
        largest_shares=_largest_shares,
        samples=samples,
        labels=inspection.LABELS.get(options.objective),
        **_sources(manifest.counts, options.language_factors),
        **_plots(train, validation, options),
        **_masks(train, options, vocab),
        **_duplicates(manifest, train, options.dupe_factor),
        **_provenance(manifest),
    )


def _sources(counts: Mapping[str, Any], language_factors: Mapping[str, float]) -> dict[str, Any]:
    languages = counts.get("languages", {})
    words = sum(size["words"] for size in languages.values())
    rejected = counts.get("documents_rejected", {})
    lost: Counter[str] = Counter()
    for size in counts.get("inputs", {}).values():
        lost.update(size.get("bytes_lost", {}))
    rules = sorted(rejected.keys() | lost.keys(), key=lambda rule: (-lost[rule], -rejected.get(rule, 0), rule))
    read_bytes = counts.get("bytes", 0) + lost.total()
    return {
        "waterfalls": [
            waterfall(counts.get("documents_read", 0), rejected, "documents"),
            waterfall(read_bytes, lost, "bytes of text"),
        ],
        "losses": [(rule, rejected.get(rule, 0), lost[rule], share(lost[rule], read_bytes)) for rule in rules],
        "domains": _domains(counts.get("domains", {})),
        "qualities": [(name, *_part(size)) for name, size in sorted(counts.get("qualities", {}).items())],
        **_quality_model(counts.get("quality_model")),
        "rejected_samples": sorted(counts.get("samples", {}).items()),
        "inputs": [
            (
                name,
                size.get("documents", 0),
                sum(size.get("rejected", {}).values()),
                *(size.get(unit, 0) for unit in ("sentences", "words", "characters")),
            )
            for name, size in _largest(counts.get("inputs", {}))
        ],
        "languages": [
            (
                name or "unknown",
                size["documents"],
                size["words"],
                share(size["words"], words),
                f"{language_factors.get(name, 1.0):.3g}",
            )
            for name, size in _largest(languages)
        ],
    }


def _quality_model(report: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the validation of the quality model, with the rows of its tables; None without a model."""
    if not report:
        return {"quality_model": None}
    calibration = [
        (f"{number / 5:.1f} to {number / 5 + 0.2:.1f}", row[0], f"{row[1]:.3f}", f"{row[2]:.3f}")
        for number, row in enumerate(report["calibration"])
        if row
    ]
    thresholds = [(f"{threshold}", percent(good), percent(bad)) for threshold, good, bad in report["thresholds"]]
    return {"quality_model": {**report, "calibration": calibration, "thresholds": thresholds}}


def _part(size: Mapping[str, int]) -> tuple[int, int, int]:
    """Return documents kept, documents rejected and bytes kept."""
    return size.get("documents", 0), size.get("rejected", 0), size.get("bytes", 0)


def _domains(sizes: Mapping[str, Mapping[str, int]]) -> list[tuple[str | int, ...]]:
    """Return the domains with the most documents read, and the sum of the others."""
    rows = sorted(
        ((name, *_part(size)) for name, size in sizes.items() if name), key=lambda row: (-row[1] - row[2], row)
    )
    rest = [row[1:] for row in rows[_MAX_ROWS:]] + [_part(sizes[name]) for name in sizes if not name]
    others: list[tuple[str | int, ...]] = [("other domains", *map(sum, zip(*rest, strict=True)))] if rest else []
    return [*rows[:_MAX_ROWS], *others]


def _largest(sizes: Mapping[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the entries with the most words, with the others summed up in one."""
    ordered = sorted(sizes.items(), key=lambda item: (-item[1].get("words", 0), item[0]))
    rest = [size for _, size in ordered[_MAX_ROWS:]]
    if not rest:
        return ordered
    total: dict[str, Any] = {
        unit: sum(size.get(unit, 0) for size in rest) for unit in ("documents", "sentences", "words", "characters")
    }
    total["rejected"] = {"": sum(sum(size.get("rejected", {}).values()) for size in rest)}
    return [*ordered[:_MAX_ROWS], (f"{len(rest):,} more", total)]


def _largest_shares(counts: Mapping[str, int], whole: int) -> list[tuple[str | int, ...]]:
    """Return the counts by descending size, with their shares of a whole."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(name, count, share(count, whole)) for name, count in ordered]


def _plots(train: Statistics, validation: Statistics, options: PretrainingDataOptions) -> dict[str, Any]:
    def lengths(name: str) -> dict[str, np.ndarray]:
        return {"training": getattr(train, name), "validation": getattr(validation, name)}

    sentences = {
        split: np.append(counts[:_LONGEST_SENTENCE], counts[_LONGEST_SENTENCE:].sum())
        for split, counts in lengths("sentence_lengths").items()
    }
    documents = lengths("document_lengths")
    edges = document_bin_start(np.arange(max(map(len, documents.values())) + 1))
    plots = [histogram(lengths("instance_lengths"), "tokens per instance", "instances")]
    if options.pack or len(options.row_lengths) > 1:
        plots.append(histogram(lengths("row_lengths"), "tokens per example", "examples"))
    if options.objective != "mlm":
        plots.append(histogram({"A": train.a_lengths, "B": train.b_lengths}, "tokens per segment", "instances"))
    return {
        "text_plots": [
            histogram(sentences, f"tokens per sentence (last bin: {_LONGEST_SENTENCE} or more)", "sentences"),
            logarithmic_histogram(documents, edges, "tokens per document", "documents"),
        ],
        "example_plots": plots,
    }


def _tokens(train: Statistics, vocab: Vocabulary) -> dict[str, Any] | None:
    """Return the use of the vocabulary in the training text; None without text."""
    counts = train.piece_counts
    if not counts.sum():
        return None
    order = np.argsort(-counts, kind="stable")
    return {
        "size": len(counts),
        "unseen": np.count_nonzero(counts == 0),
        "rare": np.count_nonzero((counts > 0) & (counts < 10)),
        "continuing": counts[[token.startswith("##") for token in vocab.tokens]].sum(),
        "plot": rank_plot(counts, "token rank", "occurrences"),
        "top": [(vocab.tokens[i], counts[i]) for i in order[:_TOP_TOKENS] if counts[i]],
    }


def _masks(train: Statistics, options: PretrainingDataOptions, vocab: Vocabulary) -> dict[str, Any]:
    if options.masking == "dynamic":
        return {}
    return {
        "expected": expected_actions(options, len(vocab.text_ids())),
        "expected_masked": expected_masked(train, options),
        "mask_plot": histogram({"training": train.masked_in_row}, "masked tokens per example", "examples"),
    }


def _duplicates(manifest: Dataset, train: Statistics, copies: int) -> dict[str, Any]:
    sentences = documents = "not searched"
    sampled = None
    if "overlap" in manifest.counts:
        overlap = Overlap(**manifest.counts["overlap"])
        sentences = f"{overlap.sentences_found:,} of {overlap.sentences:,}"
        documents = f"{overlap.documents_found:,} of {overlap.documents:,}"
        sampled = MAX_SENTENCES if overlap.sentences >= MAX_SENTENCES else None
    digests = [shard.sha256 for shard in manifest.shards if shard.examples]
    examples_per_copy = train.rows / copies
    epochs = _PUBLISHED_STEPS * _PUBLISHED_BATCH / max(examples_per_copy, 1)
    return {
        "searches_near": manifest.options.get("corpus", {}).get("near_duplicates"),
        "sampled_sentences": sampled,
        "overlap_characters": SENTENCE_CHARACTERS,
        "overlap_share": f"{DOCUMENT_SHARE:.0%}",
        "overlap_sentences": sentences,
        "overlap_documents": documents,
        "equal_shards": f"{len(digests) - len(set(digests)):,} of {len(digests):,}",
        "examples_per_copy": f"{examples_per_copy:,.0f}",
        "published_steps": f"epochs in {_PUBLISHED_STEPS:,} steps of batch size {_PUBLISHED_BATCH}, as for BERT",
        "epochs": f"{epochs:,.1f} ({epochs / copies:,.1f} per copy)",
    }


def _provenance(manifest: Dataset) -> dict[str, Any]:
    return {
        "example_options": _options({name: value for name, value in manifest.options.items() if name != "corpus"}),
        "corpus_options": _options(manifest.options.get("corpus", {})),
        "shards": [
            (shard.name, shard.examples, shard.bytes, shard.sha256[:12]) for shard in manifest.shards[:_MAX_ROWS]
        ],
        "more_shards": max(0, len(manifest.shards) - _MAX_ROWS),
        "versions": sorted(manifest.versions.items()),
    }


def _options(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True))
        for name, value in sorted(options.items())
    ]
