"""Render the sections of the data report about examples: lengths, masking, duplicates and overlap."""

from beambert.pipelines.examples.train_eval_overlap import DOCUMENT_SHARE, MAX_SENTENCES, SENTENCE_CHARACTERS, Overlap
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.reporting.data_warnings import expected_actions, expected_masked
from beambert.pipelines.reporting.figures import figures, histogram
from beambert.pipelines.reporting.report_content import Report
from beambert.pipelines.reporting.tables import percent, quotient, share, table

# Steps and batch size of the BERT paper, appendix A.2.
_PUBLISHED_STEPS, _PUBLISHED_BATCH = 1_000_000, 256


def label_name(options: PretrainingDataOptions) -> str:
    """Return the name of label 1 of the objective."""
    return "swapped pairs" if options.objective == "sop" else "random next sentences"


def padding_name(options: PretrainingDataOptions) -> str:
    """Return the name of the share of padding; records without padding are padded by the reader."""
    return "padding (added by the reader)" if options.without_padding else "padding"


def examples(report: Report) -> str:
    """Return the HTML of the section on the examples and their lengths."""
    options = report.options
    both = {"training": report.statistics["train"], "validation": report.statistics["validation"]}
    rows: list[tuple[str, ...]] = [("examples", *(f"{split.rows:,}" for split in both.values()))]
    if options.pack:
        rows.append(("instances", *(f"{split.instances:,}" for split in both.values())))
        rows.append(("instances per example", *(quotient(split.instances, split.rows) for split in both.values())))
    rows.append(
        ("padding", *(share(split.positions - split.instance_tokens, split.positions) for split in both.values()))
    )
    if options.objective != "mlm":
        rows.append((label_name(options), *(share(s.instances_labeled_1, s.instances) for s in both.values())))
    rows += [
        (
            "truncated tokens",
            *(share(s.tokens_truncated, s.tokens_packed) for s in both.values()),
        ),
        ("dropped segments", *(f"{split.segments_dropped:,}" for split in both.values())),
    ]
    plots = [histogram({name: s.instance_lengths for name, s in both.items()}, "tokens per instance", "instances")]
    if options.pack or len(options.row_lengths) > 1:
        plots.append(histogram({name: s.row_lengths for name, s in both.items()}, "tokens per example", "examples"))
    train = both["training"]
    if options.objective != "mlm":
        plots.append(histogram({"A": train.a_lengths, "B": train.b_lengths}, "tokens per segment", "instances"))
    return f"{_pair_balance(options)}{table(('', *both), rows)}{figures(plots)}"


def _pair_balance(options: PretrainingDataOptions) -> str:
    """Return a paragraph on the sampling of pairs."""
    if options.objective == "mlm":
        return "<p>Examples are whole sentences of one document up to the maximum length, without pairs.</p>"
    if options.objective == "sop":
        return "<p>A pair consists of two consecutive segments, which are swapped with probability 0.5.</p>"
    if options.balance_next_sentence:
        return "<p>The share of random next sentences is balanced to 50% where possible.</p>"
    return (
        "<p>As in google-research/bert, B is random with probability 0.5, and always if a chunk has a single sentence. "
        "So slightly more than half of the pairs are random next sentences, about 55% on running text.</p>"
    )


def masks(report: Report) -> str:
    """Return the HTML of the section on masking."""
    train, options = report.statistics["train"], report.options
    if options.masking == "dynamic":
        return (
            "<p>Masking is dynamic: the trainer masks an example every time it reads it. The shards have no masks.</p>"
        )
    expected = expected_actions(options, report.num_replacements)
    rows = [
        (
            "masked tokens",
            share(train.masked_tokens, train.instance_tokens),
            share(expected_masked(train, options), train.instance_tokens),
        ),
        ("replaced by [MASK]", share(train.masked_as_mask, train.masked_tokens), percent(expected["mask"])),
        (
            "replaced by a random token",
            share(train.masked_as_random, train.masked_tokens),
            percent(expected["random"]),
        ),
        ("kept", share(train.masked_as_original, train.masked_tokens), percent(expected["original"])),
    ]
    plot = histogram({"training": train.masked_in_row}, "masked tokens per example", "examples")
    return (
        f"<p>{options.masked_lm_prob:.0%} of the tokens of an example are masked, at least 1 and at most "
        f"{options.max_predictions_per_seq}. The expected share follows from the lengths of the examples.</p>"
        + table(("", "measured", "expected"), rows)
        + figures([plot])
    )


def duplicates(report: Report) -> str:
    """Return the HTML of the section on duplicates and on the overlap of the splits."""
    manifest, options, train = report.manifest, report.options, report.statistics["train"]
    is_compared = "overlap" in manifest.counts
    overlap = Overlap(**manifest.counts["overlap"]) if is_compared else Overlap(0, 0, 0, 0)
    rejected = manifest.counts.get("documents_rejected", {})
    near = rejected.get("near_duplicate", 0)
    is_searched = bool(report.corpus_options.get("near_duplicates"))
    digests = [shard.sha256 for shard in manifest.shards if shard.examples]
    limit = f" (a sample of {MAX_SENTENCES:,})" if overlap.sentences >= MAX_SENTENCES else ""
    examples_per_copy = train.rows / options.dupe_factor
    epochs = _PUBLISHED_STEPS * _PUBLISHED_BATCH / max(examples_per_copy, 1)
    rows = [
        ("exact duplicates of documents, dropped", f"{rejected.get('duplicate', 0):,}"),
        ("near-duplicates of documents, dropped", f"{near:,}" if is_searched else "not searched"),
        (
            f"validation sentences of {SENTENCE_CHARACTERS} characters or more in the training text",
            f"{overlap.sentences_found:,} of {overlap.sentences:,}" if is_compared else "not searched",
        ),
        (
            f"validation documents with {DOCUMENT_SHARE:.0%} or more of these sentences in the training text",
            f"{overlap.documents_found:,} of {overlap.documents:,}" if is_compared else "not searched",
        ),
        (
            "shards with the same bytes as another shard",
            f"{len(digests) - len(set(digests)):,} of {len(digests):,}",
        ),
        ("copies of the data, each with its own pairs and masks", f"{options.dupe_factor:,}"),
        ("training examples per copy (one epoch)", f"{examples_per_copy:,.0f}"),
        (
            f"epochs in {_PUBLISHED_STEPS:,} steps of batch size {_PUBLISHED_BATCH}, as for BERT",
            f"{epochs:,.1f} ({epochs / options.dupe_factor:,.1f} per copy)",
        ),
    ]
    return (
        "<p>A hash of its text assigns each document to a split, so equal documents are always in the same split. "
        "Near-duplicates can be in different splits. To measure this overlap, the longer validation sentences"
        f"{limit} were searched in the training text.</p>" + table(("", "value"), rows)
    )
