"""Render the sections of the data report about the corpus: sources, text, vocabulary."""

from html import escape
from typing import Any

import numpy as np

from beambert.pipelines.examples.statistics import document_bin_start
from beambert.pipelines.reporting.figures import figures, histogram, logarithmic_histogram, rank_plot
from beambert.pipelines.reporting.report_content import ROWS_SHOWN, Report
from beambert.pipelines.reporting.tables import quotient, share, table

_TOP_TOKENS = 60


def sources(report: Report) -> str:
    """Return the HTML of the section on input files, rejected documents and languages."""
    counts = report.manifest.counts
    read, documents = counts.get("documents_read", 0), counts.get("documents", {})
    rejected = counts.get("documents_rejected", {})
    content = [
        f"<p>{read:,} documents read: {documents.get('train', 0):,} in the training split, "
        f"{documents.get('validation', 0):,} in the validation split, {sum(rejected.values()):,} rejected.</p>",
        "<h3>Inputs</h3>",
        table(
            ("input", "documents", "rejected", "sentences", "words", "characters"),
            [
                (
                    name,
                    f"{size.get('documents', 0):,}",
                    f"{sum(size.get('rejected', {}).values()):,}",
                    f"{size.get('sentences', 0):,}",
                    f"{size.get('words', 0):,}",
                    f"{size.get('characters', 0):,}",
                )
                for name, size in _largest(counts.get("inputs", {}), "words")
            ],
        ),
        "<h3>Rejected documents by rule</h3>",
        _count_table(rejected, "rule", "documents", read, "No documents were rejected."),
        "<h3>Cleaned paragraphs by rule</h3>",
        _count_table(counts.get("paragraphs_cleaned", {}), "rule", "paragraphs", 0, "No paragraphs were changed."),
    ]
    reported = counts.get("documents_reported", {})
    if reported:
        content += ["<h3>Reported documents by rule (kept)</h3>", _count_table(reported, "rule", "documents", read, "")]
    languages = counts.get("languages", {})
    words = sum(size["words"] for size in languages.values())
    content += [
        "<h3>Languages</h3>",
        table(
            ("language", "documents", "words", "share of words", "sampling factor"),
            [
                (
                    name or "unknown",
                    f"{size['documents']:,}",
                    f"{size['words']:,}",
                    share(size["words"], words),
                    f"{report.options.language_factors.get(name, 1.0):.3g}",
                )
                for name, size in _largest(languages, "words")
            ],
        ),
    ]
    return "".join(content)


def text(report: Report) -> str:
    """Return the HTML of the section on the lengths of documents and sentences."""
    train, validation = report.statistics["train"], report.statistics["validation"]
    both = {"training": train, "validation": validation}
    bins = max(len(train.document_lengths), len(validation.document_lengths))
    plots = [
        histogram(
            {name: _clipped(split.sentence_lengths, 150) for name, split in both.items()},
            "tokens per sentence (last bin: 150 or more)",
            "sentences",
        ),
        logarithmic_histogram(
            {name: split.document_lengths for name, split in both.items()},
            document_bin_start(np.arange(bins + 1)),
            "tokens per document",
            "documents",
        ),
    ]
    rows = [
        (
            name,
            f"{split.documents:,}",
            f"{split.sentences:,}",
            f"{split.tokens:,}",
            quotient(split.sentences, split.documents),
            quotient(split.tokens, split.sentences),
        )
        for name, split in both.items()
    ]
    header = ("split", "documents", "sentences", "tokens", "sentences per document", "tokens per sentence")
    return table(header, rows) + figures(plots)


def vocabulary(report: Report) -> str:
    """Return the HTML of the section on the vocabulary."""
    train = report.statistics["train"]
    counts = train.piece_counts
    if not counts.sum():
        return "<p>The training split has no text.</p>"
    order = np.argsort(-counts, kind="stable")
    seen, rare = int(np.count_nonzero(counts)), int(np.count_nonzero((counts > 0) & (counts < 10)))
    continuing = np.array([token.startswith("##") for token in report.tokens])
    top = "".join(
        f"<li>{escape(report.tokens[i])} <span class='soft'>{share(int(counts[i]), train.tokens)}</span></li>"
        for i in order[:_TOP_TOKENS]
        if counts[i]
    )
    rows = [
        ("vocabulary size", f"{len(counts):,}", ""),
        (
            "tokens that never occur in the training text",
            f"{len(counts) - seen:,}",
            share(len(counts) - seen, len(counts)),
        ),
        ("tokens with 1 to 9 occurrences", f"{rare:,}", share(rare, len(counts))),
        ("[UNK] in the training text", f"{train.unknown_tokens:,}", share(train.unknown_tokens, train.tokens)),
        (
            "[UNK] in the validation text",
            f"{report.statistics['validation'].unknown_tokens:,}",
            share(report.statistics["validation"].unknown_tokens, report.statistics["validation"].tokens),
        ),
        (
            "continuation tokens (##) in the training text",
            f"{int(counts[continuing].sum()):,}",
            share(counts[continuing].sum(), train.tokens),
        ),
    ]
    return (
        table(("", "count", "share"), rows)
        + figures([rank_plot(counts, "token rank", "occurrences")])
        + f"<h3>Most frequent tokens</h3><ul class='tokens'>{top}</ul>"
    )


def _largest(sizes: dict[str, dict[str, Any]], unit: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the largest entries, with the others summed up in one."""
    ordered = sorted(sizes.items(), key=lambda item: (-item[1].get(unit, 0), item[0]))
    rest = ordered[ROWS_SHOWN:]
    if not rest:
        return ordered
    names = ("documents", "sentences", "words", "characters")
    total: dict[str, Any] = {name: sum(size.get(name, 0) for _, size in rest) for name in names}
    total["rejected"] = {"": sum(sum(size.get("rejected", {}).values()) for _, size in rest)}
    return [*ordered[:ROWS_SHOWN], (f"{len(rest):,} more", total)]


def _count_table(counts: dict[str, int], name: str, header: str, of: int, if_empty: str) -> str:
    """Return a table of counts by descending size, with shares of `of` unless it is 0."""
    if not counts:
        return f"<p>{if_empty}</p>"
    rows = []
    for key, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        rows.append((key, f"{number:,}", *([share(number, of)] if of else [])))
    return table((name, header, *(["share"] if of else [])), rows)


def _clipped(counts: np.ndarray, most: int) -> np.ndarray:
    """Return a histogram by value with all values of `most` or more in the last bin."""
    if len(counts) <= most:
        return counts
    return np.append(counts[:most], counts[most:].sum())
