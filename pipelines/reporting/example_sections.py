"""The report's sections on the examples: their lengths, their masks, and copies among them."""

from pipelines.examples.train_eval_overlap import DOCUMENT_SHARE, MOST_SENTENCES, SENTENCE_CHARACTERS, Overlap
from pipelines.instances.options import PretrainingDataOptions
from pipelines.reporting.data_warnings import expected_masked
from pipelines.reporting.figures import figures, histogram
from pipelines.reporting.report_content import Report
from pipelines.reporting.tables import percent, quotient, share, table

# Steps and batch of the published pretraining (paper, appendix A.2).
_PUBLISHED_STEPS, _PUBLISHED_BATCH = 1_000_000, 256


def label_name(options: PretrainingDataOptions) -> str:
    """Return the name of label 1 of the objective."""
    return "swapped pairs" if options.objective == "sop" else "pairs not next"


def padding_name(options: PretrainingDataOptions) -> str:
    """Return the name of the share of padding; unpadded rows are padded when they are read."""
    return "padding, once padded" if options.without_padding else "padding"


def examples(report: Report) -> str:
    """Return the section on the examples and their lengths as HTML."""
    options = report.options
    both = {"training": report.statistics["train"], "validation": report.statistics["validation"]}
    rows: list[tuple[str, ...]] = [("rows", *(f"{split.rows:,}" for split in both.values()))]
    if options.pack:
        rows.append(("instances", *(f"{split.instances:,}" for split in both.values())))
        rows.append(("instances a row", *(quotient(split.instances, split.rows) for split in both.values())))
    rows.append(
        ("padding", *(share(split.positions - split.instance_tokens, split.positions) for split in both.values()))
    )
    if options.objective != "mlm":
        rows.append((label_name(options), *(share(s.instances_labeled_1, s.instances) for s in both.values())))
    rows += [
        (
            "tokens left out, cut to fit",
            *(share(s.tokens_truncated, s.tokens_packed) for s in both.values()),
        ),
        ("single segments left out", *(f"{split.segments_dropped:,}" for split in both.values())),
    ]
    plots = [histogram({name: s.instance_lengths for name, s in both.items()}, "positions of an instance", "instances")]
    if options.pack or len(options.row_lengths) > 1:
        plots.append(histogram({name: s.row_lengths for name, s in both.items()}, "positions used in a row", "rows"))
    train = both["training"]
    if options.objective != "mlm":
        plots.append(histogram({"A": train.a_lengths, "B": train.b_lengths}, "tokens of a segment", "instances"))
    return f"{_pair_balance(options)}{table(('', *both), rows)}{figures(plots)}"


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


def masks(report: Report) -> str:
    """Return the section on the masks as HTML."""
    train, options = report.statistics["train"], report.options
    if options.masking == "dynamic":
        return "<p>The trainer draws masks again whenever it reads an example; there are none in the files.</p>"
    rows = [
        (
            "masked",
            share(train.masked_tokens, train.instance_tokens),
            share(expected_masked(train, options), train.instance_tokens),
        ),
        ("became [MASK]", share(train.masked_as_mask, train.masked_tokens), percent(options.mask_rate)),
        ("became another token", share(train.masked_as_random, train.masked_tokens), percent(options.random_rate)),
        ("stayed", share(train.masked_as_original, train.masked_tokens), percent(options.keep_rate)),
    ]
    plot = histogram({"training": train.masked_in_row}, "masked tokens in a row", "rows")
    return (
        f"<p>{options.masked_lm_prob:.0%} of the positions of a row, rounded, at least 1 and at most "
        f"{options.max_predictions_per_seq}; the expected share below follows from the lengths of the rows.</p>"
        + table(("", "measured", "expected"), rows)
        + figures([plot])
    )


def duplicates(report: Report) -> str:
    """Return the section on equal examples and on the overlap of the splits as HTML."""
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
            f"validation sentences of {SENTENCE_CHARACTERS} characters or more that occur in the training text",
            f"{overlap.sentences_found:,} of {overlap.sentences:,}",
        ),
        (
            f"validation documents with {DOCUMENT_SHARE:.0%} or more of these sentences in the training text",
            f"{overlap.documents_found:,} of {overlap.documents:,}",
        ),
        (
            "files of examples with the same bytes as another",
            f"{len(digests) - len(set(digests)):,} of {len(digests):,}",
        ),
        ("copies of the data, each with pairs and masks of its own", f"{options.dupe_factor:,}"),
        ("training examples of one copy, which is one epoch", f"{an_epoch:,.0f}"),
        (
            f"epochs in {_PUBLISHED_STEPS:,} steps of {_PUBLISHED_BATCH}, as published",
            f"{passes:,.1f}: each copy {passes / options.dupe_factor:,.1f} times",
        ),
    ]
    return (
        "<p>Documents are split by the hash of their text, so that equal documents cannot be on both sides. Nearly "
        f"equal ones can: the longer validation sentences{of_many} were searched in the training text.</p>"
        + table(("", ""), rows)
    )
