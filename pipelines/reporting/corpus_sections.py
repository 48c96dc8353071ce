"""The report's sections on the text that the training data is made from: sources, text, vocabulary."""

from html import escape
from typing import Any

import numpy as np

from pipelines.examples.statistics import document_bin_start
from pipelines.reporting.figures import figures, histogram, logarithmic_histogram, rank_plot
from pipelines.reporting.report_content import ROWS_SHOWN, Report
from pipelines.reporting.tables import quotient, share, table

_TOP_TOKENS = 60


def sources(report: Report) -> str:
    """Return the section on the inputs as HTML."""
    counts = report.manifest.counts
    read, documents = counts.get("documents_read", 0), counts.get("documents", {})
    rejected = counts.get("documents_rejected", {})
    content = [
        f"<p>{read:,} documents were read: {documents.get('train', 0):,} to train on, "
        f"{documents.get('validation', 0):,} in the validation split, {sum(rejected.values()):,} rejected.</p>",
        "<h3>Inputs</h3>",
        table(
            ("input", "documents kept", "rejected", "sentences", "words", "characters"),
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
        "<h3>Documents rejected</h3>",
        _count_table(rejected, "reason", "documents", read, "No document was rejected."),
        "<h3>Paragraphs cleaned</h3>",
        _count_table(counts.get("paragraphs_cleaned", {}), "rule", "paragraphs", 0, "No rule changed a paragraph."),
    ]
    reported = counts.get("documents_reported", {})
    if reported:
        content += ["<h3>Reported, but kept</h3>", _count_table(reported, "rule", "documents", read, "")]
    languages = counts.get("languages", {})
    words = sum(size["words"] for size in languages.values())
    content += [
        "<h3>Languages</h3>",
        table(
            ("language", "documents", "words", "share of words", "seen this often"),
            [
                (
                    name or "not known",
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
    """Return the section on the lengths of documents and sentences as HTML."""
    train, validation = report.statistics["train"], report.statistics["validation"]
    both = {"training": train, "validation": validation}
    bins = max(len(train.document_lengths), len(validation.document_lengths))
    plots = [
        histogram(
            {name: _clipped(split.sentence_lengths, 150) for name, split in both.items()},
            "tokens in a sentence (150: or more)",
            "sentences",
        ),
        logarithmic_histogram(
            {name: split.document_lengths for name, split in both.items()},
            document_bin_start(np.arange(bins + 1)),
            "tokens in a document",
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
    header = ("text", "documents", "sentences", "tokens", "sentences a document", "tokens a sentence")
    return table(header, rows) + figures(plots)


def vocabulary(report: Report) -> str:
    """Return the section on the vocabulary as HTML."""
    train = report.statistics["train"]
    counts = train.piece_counts
    if not counts.sum():
        return "<p>There is no text.</p>"
    order = np.argsort(-counts, kind="stable")
    seen, rare = int(np.count_nonzero(counts)), int(np.count_nonzero((counts > 0) & (counts < 10)))
    continuing = np.array([token.startswith("##") for token in report.tokens])
    top = "".join(
        f"<li>{escape(report.tokens[i])} <span class='soft'>{share(int(counts[i]), train.tokens)}</span></li>"
        for i in order[:_TOP_TOKENS]
        if counts[i]
    )
    rows = [
        ("tokens", f"{len(counts):,}", ""),
        ("never seen in training text", f"{len(counts) - seen:,}", share(len(counts) - seen, len(counts))),
        ("seen less than 10 times", f"{rare:,}", share(rare, len(counts))),
        ("[UNK] among training tokens", f"{train.unknown_tokens:,}", share(train.unknown_tokens, train.tokens)),
        (
            "[UNK] among validation tokens",
            f"{report.statistics['validation'].unknown_tokens:,}",
            share(report.statistics["validation"].unknown_tokens, report.statistics["validation"].tokens),
        ),
        (
            "tokens that continue a word",
            f"{int(counts[continuing].sum()):,}",
            share(counts[continuing].sum(), train.tokens),
        ),
    ]
    return (
        table(("", "number", "share"), rows)
        + figures([rank_plot(counts, "rank of the token", "occurrences")])
        + f"<h3>The most frequent tokens</h3><ul class='pieces'>{top}</ul>"
    )


def _largest(sizes: dict[str, dict[str, Any]], unit: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the first of a group by size, and the sum of the others as one."""
    ordered = sorted(sizes.items(), key=lambda item: (-item[1].get(unit, 0), item[0]))
    rest = ordered[ROWS_SHOWN:]
    if not rest:
        return ordered
    names = ("documents", "sentences", "words", "characters")
    total: dict[str, Any] = {name: sum(size.get(name, 0) for _, size in rest) for name in names}
    total["rejected"] = {"": sum(sum(size.get("rejected", {}).values()) for _, size in rest)}
    return [*ordered[:ROWS_SHOWN], (f"{len(rest):,} more", total)]


def _count_table(counts: dict[str, int], name: str, header: str, of: int, nothing: str) -> str:
    if not counts:
        return f"<p>{nothing}</p>"
    rows = []
    for key, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        rows.append((key, f"{number:,}", *([share(number, of)] if of else [])))
    return table((name, header, *(["share"] if of else [])), rows)


def _clipped(counts: np.ndarray, most: int) -> np.ndarray:
    """Return a histogram by value whose last bin holds all that is `most` or more."""
    if len(counts) <= most:
        return counts
    return np.append(counts[:most], counts[most:].sum())
