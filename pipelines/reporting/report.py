"""`report.html`: one file that tells a person what the training data is like before it is paid for in training time.

It needs nothing from outside, runs no script, and says the same for the same dataset: no date, no machine.
"""

import dataclasses
import json
from html import escape
from typing import Any

import numpy as np

from pipelines.dataset import Dataset
from pipelines.inspection import InstanceText
from pipelines.overlap import DOCUMENT_SHARE, MOST_SENTENCES, SENTENCE_CHARACTERS, Overlap
from pipelines.pretraining_options import PretrainingDataOptions
from pipelines.reporting.figures import histogram, logarithmic_histogram, rank_plot
from pipelines.reporting.page import page, tiles, warning_list
from pipelines.reporting.samples import samples_section
from pipelines.reporting.tables import percent, quotient, share, short, table
from pipelines.reporting.warnings import expected_masked
from pipelines.statistics import Statistics, document_bin_start

FILE_NAME = "report.html"
_TOP_PIECES = 60
_ROWS_SHOWN = 20
# Updates and batch of the published pretraining (paper, appendix A.2).
_PUBLISHED_STEPS, _PUBLISHED_BATCH = 1_000_000, 256


@dataclasses.dataclass(frozen=True)
class Report:
    """What the report is made from.

    Attributes:
        manifest: the dataset; its counts hold those of the corpus, "overlap" and "warnings" too.
        options: what the examples were made with.
        statistics: "train" and "validation".
        corpus_options: what the corpus was made with.
        pieces: the vocabulary.
        samples: some instances of the training data.
    """

    manifest: Dataset
    options: PretrainingDataOptions
    statistics: dict[str, Statistics]
    corpus_options: dict[str, Any]
    pieces: tuple[str, ...]
    samples: list[InstanceText]


def render(report: Report) -> str:
    """The page."""
    sections = (
        ("warnings", "Before you train", lambda report: warning_list(report.manifest.counts["warnings"])),
        ("sources", "Sources, and what was left out", _sources),
        ("text", "Text", _text),
        ("vocabulary", "Vocabulary", _vocabulary),
        ("examples", "Examples", _examples),
        ("masks", "Masks", _masks),
        ("duplicates", "Duplicates and overlap", _duplicates),
        ("samples", "Samples", lambda report: samples_section(report.samples, report.options)),
        ("made", "How it was made", _made),
    )
    content = [(name, title, write(report)) for name, title, write in sections]
    return page("Pretraining data", _head(report), content)


def _head(report: Report) -> str:
    train, held_out, options = report.statistics["train"], report.statistics["validation"], report.options
    numbers = [
        ("training documents", f"{train.documents:,}"),
        ("training tokens", short(train.tokens)),
        ("training examples", short(train.rows)),
        ("held-out examples", short(held_out.rows)),
        ("[UNK]", share(train.unknown_tokens, train.tokens)),
        (_padding_name(options), share(train.positions - train.instance_tokens, train.positions)),
    ]
    if options.objective != "mlm":
        numbers.append((_label_name(options), share(train.instances_labelled_1, train.instances)))
    if options.masking != "dynamic":
        numbers.append(("masked", share(train.masked_tokens, train.instance_tokens)))
    duplicates = f"{options.dupe_factor} duplicate{'s' if options.dupe_factor > 1 else ''}"
    return (
        f'<p class="soft">Objective {options.objective}, masking {options.masking.replace("_", " ")}, '
        f"{options.max_seq_length} positions, {duplicates}, {len(report.pieces):,} pieces.</p>"
        f"{tiles(numbers)}"
    )


def _label_name(options: PretrainingDataOptions) -> str:
    return "swapped pairs" if options.objective == "sop" else "pairs not next"


def _padding_name(options: PretrainingDataOptions) -> str:
    return "padding, once padded" if options.without_padding else "padding"


def _sources(report: Report) -> str:
    counts = report.manifest.counts
    read, documents = counts.get("documents_read", 0), counts.get("documents", {})
    rejected = counts.get("documents_rejected", {})
    content = [
        f"<p>{read:,} documents were read: {documents.get('train', 0):,} to train on, "
        f"{documents.get('validation', 0):,} held out, {sum(rejected.values()):,} rejected.</p>",
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
        _counted(rejected, "reason", "documents", read, "No document was rejected."),
        "<h3>Paragraphs cleaned</h3>",
        _counted(counts.get("paragraphs_cleaned", {}), "rule", "paragraphs", 0, "No rule changed a paragraph."),
    ]
    reported = counts.get("documents_reported", {})
    if reported:
        content += ["<h3>Reported, but kept</h3>", _counted(reported, "rule", "documents", read, "")]
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


def _text(report: Report) -> str:
    train, held_out = report.statistics["train"], report.statistics["validation"]
    both = {"training": train, "held out": held_out}
    bins = max(len(train.document_lengths), len(held_out.document_lengths))
    plots = [
        histogram(
            {name: _clipped(each.sentence_lengths, 150) for name, each in both.items()},
            "tokens in a sentence (150: or more)",
            "sentences",
        ),
        logarithmic_histogram(
            {name: each.document_lengths for name, each in both.items()},
            document_bin_start(np.arange(bins + 1)),
            "tokens in a document",
            "documents",
        ),
    ]
    rows = [
        (
            name,
            f"{each.documents:,}",
            f"{each.sentences:,}",
            f"{each.tokens:,}",
            quotient(each.sentences, each.documents),
            quotient(each.tokens, each.sentences),
        )
        for name, each in both.items()
    ]
    header = ("text", "documents", "sentences", "tokens", "sentences a document", "tokens a sentence")
    return table(header, rows) + _figures(plots)


def _vocabulary(report: Report) -> str:
    train = report.statistics["train"]
    counts = train.piece_counts
    if not counts.sum():
        return "<p>There is no text.</p>"
    order = np.argsort(-counts, kind="stable")
    seen, rare = int(np.count_nonzero(counts)), int(np.count_nonzero((counts > 0) & (counts < 10)))
    continuing = np.array([piece.startswith("##") for piece in report.pieces])
    top = "".join(
        f"<li>{escape(report.pieces[i])} <span class='soft'>{share(int(counts[i]), train.tokens)}</span></li>"
        for i in order[:_TOP_PIECES]
        if counts[i]
    )
    rows = [
        ("pieces", f"{len(counts):,}", ""),
        ("never seen in training text", f"{len(counts) - seen:,}", share(len(counts) - seen, len(counts))),
        ("seen less than 10 times", f"{rare:,}", share(rare, len(counts))),
        ("[UNK] among training tokens", f"{train.unknown_tokens:,}", share(train.unknown_tokens, train.tokens)),
        (
            "[UNK] among held-out tokens",
            f"{report.statistics['validation'].unknown_tokens:,}",
            share(report.statistics["validation"].unknown_tokens, report.statistics["validation"].tokens),
        ),
        (
            "pieces that continue a word",
            f"{int(counts[continuing].sum()):,}",
            share(counts[continuing].sum(), train.tokens),
        ),
    ]
    return (
        table(("", "number", "share"), rows)
        + _figures([rank_plot(counts, "rank of the piece", "occurrences")])
        + f"<h3>The most frequent pieces</h3><ul class='pieces'>{top}</ul>"
    )


def _examples(report: Report) -> str:
    options = report.options
    both = {"training": report.statistics["train"], "held out": report.statistics["validation"]}
    rows: list[tuple[str, ...]] = [("rows", *(f"{each.rows:,}" for each in both.values()))]
    if options.pack:
        rows.append(("instances", *(f"{each.instances:,}" for each in both.values())))
        rows.append(("instances a row", *(quotient(each.instances, each.rows) for each in both.values())))
    rows.append(("padding", *(share(each.positions - each.instance_tokens, each.positions) for each in both.values())))
    if options.objective != "mlm":
        rows.append((_label_name(options), *(share(s.instances_labelled_1, s.instances) for s in both.values())))
    rows += [
        (
            "tokens left out, cut to fit",
            *(share(s.tokens_truncated, s.tokens_packed) for s in both.values()),
        ),
        ("single segments left out", *(f"{each.segments_dropped:,}" for each in both.values())),
    ]
    plots = [histogram({name: s.instance_lengths for name, s in both.items()}, "positions of an instance", "instances")]
    if options.pack or len(options.row_lengths) > 1:
        plots.append(histogram({name: s.row_lengths for name, s in both.items()}, "positions used in a row", "rows"))
    train = both["training"]
    if options.objective != "mlm":
        plots.append(histogram({"A": train.a_lengths, "B": train.b_lengths}, "tokens of a segment", "instances"))
    return f"{_pair_balance(options)}{table(('', *both), rows)}{_figures(plots)}"


def _pair_balance(options: PretrainingDataOptions) -> str:
    if options.objective == "mlm":
        return "<p>Whole sentences of one document up to the length; no pairs.</p>"
    if options.objective == "sop":
        return "<p>Two neighbouring segments, swapped in half of the cases.</p>"
    if options.balance_next_sentence:
        return "<p>Half of the pairs are meant to be true ones.</p>"
    return (
        "<p>As published, B is drawn at random with probability one half, and always where a chunk has one segment: a "
        "little more than half of the pairs are not next sentences, about 55% on running text.</p>"
    )


def _masks(report: Report) -> str:
    train, options = report.statistics["train"], report.options
    if options.masking == "dynamic":
        return "<p>The trainer draws masks anew whenever it reads an example; there are none in the files.</p>"
    rows = [
        (
            "masked",
            share(train.masked_tokens, train.instance_tokens),
            share(expected_masked(train, options), train.instance_tokens),
        ),
        ("became [MASK]", share(train.masked_as_mask, train.masked_tokens), percent(options.mask_rate)),
        ("became another token", share(train.masked_as_other, train.masked_tokens), percent(options.random_rate)),
        ("stayed", share(train.masked_as_same, train.masked_tokens), percent(options.keep_rate)),
    ]
    plot = histogram({"training": train.masked_in_row}, "masked tokens in a row", "rows")
    return (
        f"<p>{options.masked_lm_prob:.0%} of the positions of a row, rounded, at least 1 and at most "
        f"{options.max_predictions_per_seq}; the expected share below follows from the lengths of the rows.</p>"
        + table(("", "measured", "expected"), rows)
        + _figures([plot])
    )


def _duplicates(report: Report) -> str:
    manifest, options, train = report.manifest, report.options, report.statistics["train"]
    overlap = Overlap(**manifest.counts["overlap"])
    rejected = manifest.counts.get("documents_rejected", {})
    near = rejected.get("near_duplicate", 0)
    looked = bool(report.corpus_options.get("near_duplicates"))
    digests = [shard.sha256 for shard in manifest.shards if shard.examples]
    of_many = f" ({MOST_SENTENCES:,} of them)" if overlap.sentences >= MOST_SENTENCES else ""
    an_epoch = train.rows / options.dupe_factor
    passes = _PUBLISHED_STEPS * _PUBLISHED_BATCH / max(an_epoch, 1)
    rows = [
        ("exact duplicates of documents, left out", f"{rejected.get('duplicate', 0):,}"),
        ("near-duplicates of documents, left out", f"{near:,}" if looked else "not looked for"),
        (
            f"held-out sentences of {SENTENCE_CHARACTERS} characters or more that stand in the training text",
            f"{overlap.sentences_found:,} of {overlap.sentences:,}",
        ),
        (
            f"held-out documents with {DOCUMENT_SHARE:.0%} or more of these sentences in the training text",
            f"{overlap.documents_found:,} of {overlap.documents:,}",
        ),
        (
            "files of examples with the same bytes as another",
            f"{len(digests) - len(set(digests)):,} of {len(digests):,}",
        ),
        ("duplicates, each with pairs and masks of its own", f"{options.dupe_factor:,}"),
        ("training examples of one duplicate, which is one epoch", f"{an_epoch:,.0f}"),
        (
            f"epochs in {_PUBLISHED_STEPS:,} steps of {_PUBLISHED_BATCH}, as published",
            f"{passes:,.1f}: each duplicate {passes / options.dupe_factor:,.1f} times",
        ),
    ]
    return (
        "<p>Documents are held out by the hash of their text, so that equal documents cannot be on both sides. Nearly "
        f"equal ones can: the longer held-out sentences{of_many} were searched in the training text.</p>"
        + table(("", ""), rows)
    )


def _made(report: Report) -> str:
    manifest = report.manifest
    options = [(name, _value(value)) for name, value in sorted(manifest.options.items()) if name != "corpus"]
    corpus = [(name, _value(value)) for name, value in sorted(report.corpus_options.items())]
    files = [
        (shard.name, f"{shard.examples:,}", f"{shard.bytes:,}", shard.sha256[:12])
        for shard in manifest.shards[:_ROWS_SHOWN]
    ]
    more = len(manifest.shards) - len(files)
    note = f'<p class="soft">and {more:,} more in dataset.json</p>' if more else ""
    return "".join(
        f"<details><summary>{title}</summary>{content}</details>"
        for title, content in (
            ("Options of the examples", table(("option", "value"), options)),
            ("Options of the corpus", table(("option", "value"), corpus)),
            ("Files", table(("file", "examples", "bytes", "SHA-256"), files) + note),
            ("Versions", table(("package", "version"), sorted(manifest.versions.items()))),
        )
    )


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _largest(sizes: dict[str, dict[str, Any]], unit: str) -> list[tuple[str, dict[str, Any]]]:
    """The first of a group by size, and the sum of the others as one."""
    ordered = sorted(sizes.items(), key=lambda item: (-item[1].get(unit, 0), item[0]))
    rest = ordered[_ROWS_SHOWN:]
    if not rest:
        return ordered
    names = ("documents", "sentences", "words", "characters")
    total: dict[str, Any] = {name: sum(size.get(name, 0) for _, size in rest) for name in names}
    total["rejected"] = {"": sum(sum(size.get("rejected", {}).values()) for _, size in rest)}
    return [*ordered[:_ROWS_SHOWN], (f"{len(rest):,} more", total)]


def _counted(counts: dict[str, int], name: str, what: str, of: int, nothing: str) -> str:
    if not counts:
        return f"<p>{nothing}</p>"
    rows = []
    for key, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        rows.append((key, f"{number:,}", *([share(number, of)] if of else [])))
    return table((name, what, *(["share"] if of else [])), rows)


def _figures(plots: list[str]) -> str:
    return f'<div class="figures">{"".join(plots)}</div>'


def _clipped(counts: np.ndarray, most: int) -> np.ndarray:
    """A histogram by value whose last bin holds all that is `most` or more."""
    if len(counts) <= most:
        return counts
    return np.append(counts[:most], counts[most:].sum())
