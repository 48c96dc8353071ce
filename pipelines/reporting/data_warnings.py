"""Warnings about a dataset before training on it: rules over its numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipelines.corpus.source_warnings import source_warnings
from pipelines.examples.statistics import Statistics
from pipelines.examples.train_eval_overlap import Overlap
from pipelines.instances.options import PretrainingDataOptions
from pipelines.reporting.tables import short

# The share of label 1 that the released sampler gives is near 0.55 on running text; this far from half is odd.
_ODD_LABELS = 0.10
_ODD_BALANCED_LABELS = 0.01
# Wikipedia at 128 positions loses 11%.
_MUCH_TRUNCATED = 0.2
# Tokens below which a model learns little more than frequencies.
_FEW_TOKENS = 50_000_000
_FEW_VALIDATION_EXAMPLES = 1000


def expected_masked(statistics: Statistics, options: PretrainingDataOptions) -> int:
    """Return the tokens to predict in rows of these lengths: their share, at least 1, at most the room."""
    lengths = np.arange(len(statistics.row_lengths))
    row_lengths = np.array(options.row_lengths)
    row = row_lengths[np.minimum(np.searchsorted(row_lengths, lengths), len(row_lengths) - 1)]
    room = np.array([options.predictions_in(int(length)) for length in row])
    wanted = np.clip(np.rint(lengths * options.masked_lm_prob), 1, room).astype(np.int64)
    return int((wanted * statistics.row_lengths).sum())


def warnings_of(
    by_split: dict[str, Statistics],
    corpus: dict[str, Any],
    overlap: Overlap,
    options: PretrainingDataOptions,
    alphabet: Sequence[str] = (),
) -> list[str]:
    """Return warnings about unusual numbers, the gravest first; a line each.

    Args:
        by_split: "train" and "validation".
        corpus: the counts of corpus.json.
        overlap: of validation text with training text.
        options: what the examples were made with.
        alphabet: warnings of `pipelines.vocabulary.alphabet_warning`, of the vocabulary that the examples have.
    """
    train, validation = by_split["train"], by_split["validation"]
    return [
        *_validation_warnings(validation, overlap),
        *_vocabulary_warnings(train, options, alphabet),
        *_corpus_warnings(train, corpus, options),
        *_pair_warnings(train, options),
        *_row_warnings(train, options),
        *_mask_warnings(train, options),
    ]


def _validation_warnings(validation: Statistics, overlap: Overlap) -> list[str]:
    if not validation.instances:
        return [
            "No document is in the validation split, so that nothing can measure what the model learns; "
            "build the corpus again with --validation_fraction 0.02 or more."
        ]
    warnings = []
    if overlap.documents_found > 0.01 * overlap.documents:
        warnings.append(
            f"{overlap.documents_found:,} of {overlap.documents:,} validation documents have half of their longer "
            "sentences or more in the training text: evaluation flatters the model; build the corpus with "
            "--drop_near_duplicates or --drop_repeated_paragraphs."
        )
    share = overlap.sentences_found / max(overlap.sentences, 1)
    if share > 0.02:
        warnings.append(
            f"{share:.1%} of the validation sentences occur in the training text word by word: documents repeat each "
            "other; build the corpus with --drop_near_duplicates or --drop_repeated_paragraphs."
        )
    if validation.instances < _FEW_VALIDATION_EXAMPLES:
        warnings.append(
            f"Only {validation.instances:,} example(s) are in the validation split, evaluation will be rough; "
            "build the corpus with a larger --validation_fraction."
        )
    return warnings


def _vocabulary_warnings(train: Statistics, options: PretrainingDataOptions, alphabet: Sequence[str]) -> list[str]:
    warnings: list[str] = []
    unknown = train.unknown_tokens / max(train.tokens, 1)
    if unknown >= 0.01 and alphabet:
        warnings += alphabet
    elif unknown >= 0.01:
        warnings.append(
            f"{unknown:.1%} of tokens are [UNK]: the vocabulary does not fit this corpus; learn one from it, or check "
            f"that --do_lower_case {str(options.do_lower_case).lower()} is right for --vocab_file."
        )
    seen = np.count_nonzero(train.piece_counts) / max(len(train.piece_counts), 1)
    if seen < 0.7:
        warnings.append(
            f"{1 - seen:.1%} of the vocabulary never occurs in the training text and will stay as it was initialised; "
            "take more text or a smaller vocabulary learnt from it."
        )
    return warnings


def _corpus_warnings(train: Statistics, corpus: dict[str, Any], options: PretrainingDataOptions) -> list[str]:
    warnings = []
    if train.tokens < _FEW_TOKENS:
        warnings.append(
            f"The training text has {short(train.tokens)} tokens: enough to try things out, not for a "
            "useful model; the released BERT saw about 3,300 million words."
        )
    warnings += source_warnings(corpus)
    read, rejected = corpus.get("documents_read", 0), corpus.get("documents_rejected", {})
    if read and sum(rejected.values()) > 0.2 * read:
        reason = max(rejected, key=lambda name: (rejected[name], name))
        warnings.append(
            f"{sum(rejected.values()) / read:.0%} of the documents were rejected, most of them as {reason}; read "
            "rejected/*.jsonl and see whether that is meant."
        )
    languages = corpus.get("languages", {})
    words = sum(size["words"] for size in languages.values())
    large = sorted(name for name, size in languages.items() if size["words"] > 0.02 * words)
    if len(large) > 1 and not options.language_factors:
        warnings.append(
            f"The text mixes {len(large)} languages ({', '.join(large)}) as they come; "
            "--language_sampling_exponent 0.7 shows the small ones more often."
        )
    if options.objective == "nsp" and train.sentences < 2 * train.documents:
        warnings.append(
            f"A document has {train.sentences / train.documents:.1f} sentences on average, too few for true next "
            "sentences; give whole documents, or use --objective mlm."
        )
    too_long = train.sentence_lengths[options.max_seq_length :].sum() / max(train.sentences, 1)
    if too_long > 0.05:
        warnings.append(
            f"{too_long:.1%} of the sentences are longer than an example: the segmenter may not know the language "
            "(--language, --segmenter)."
        )
    if options.dupe_factor == 1 and options.masking != "dynamic":
        warnings.append(
            "There is one copy of the data: every epoch shows the same masks and pairs; the released data had ten "
            "(--dupe_factor 10), --masking dynamic draws masks again."
        )
    return warnings


def _pair_warnings(train: Statistics, options: PretrainingDataOptions) -> list[str]:
    if options.objective == "mlm" or not train.instances:
        return []
    warnings = []
    share = train.instances_labeled_1 / train.instances
    limit = _ODD_BALANCED_LABELS if options.balance_next_sentence or options.objective == "sop" else _ODD_LABELS
    # Five standard deviations, so that a handful of examples raises no alarm.
    if abs(share - 0.5) > max(limit, 2.5 / train.instances**0.5):
        label = "swapped" if options.objective == "sop" else "not next sentences"
        remedy = (
            "" if options.objective == "sop" else "; --balance_next_sentence brings it to half where that can be done"
        )
        warnings.append(f"{share:.1%} of the pairs are {label}, far from half{remedy}.")
    truncated = train.tokens_truncated / max(train.tokens_packed, 1)
    if truncated > _MUCH_TRUNCATED:
        warnings.append(
            f"{truncated:.1%} of the tokens are left out, cut to fit: sentences are long for --max_seq_length "
            f"{options.max_seq_length}; take a larger one, or check the segmentation."
        )
    return warnings


def _row_warnings(train: Statistics, options: PretrainingDataOptions) -> list[str]:
    padding = 1 - train.instance_tokens / max(train.positions, 1)
    if padding <= 0.3 or options.without_padding:
        return []
    return [
        f"{padding:.0%} of the positions are padding, paid for in training time; use --pack, --length_bins, or a "
        "smaller --max_seq_length."
    ]


def _mask_warnings(train: Statistics, options: PretrainingDataOptions) -> list[str]:
    if options.masking == "dynamic" or not train.masked_tokens:
        return []
    warnings = []
    share = train.masked_tokens / train.instance_tokens
    if share < 0.9 * options.masked_lm_prob:
        warnings.append(
            f"{share:.1%} of the tokens are masked, not {options.masked_lm_prob:.0%}: --max_predictions_per_seq "
            f"{options.max_predictions_per_seq} is too small for --max_seq_length {options.max_seq_length}."
        )
    rates = (
        ("[MASK]", train.masked_as_mask, options.mask_rate),
        ("another token", train.masked_as_random, options.random_rate),
        ("the token itself", train.masked_as_original, options.keep_rate),
    )
    for name, count, rate in rates:
        # Words and spans are drawn as a whole, ten tokens at most, which widens the spread.
        slack = 5 * (10 * rate * (1 - rate) / train.masked_tokens) ** 0.5 + 0.002
        if abs(count / train.masked_tokens - rate) > slack:
            warnings.append(
                f"{count / train.masked_tokens:.1%} of the masked tokens became {name}, {rate:.0%} were asked for: "
                "please report this as a fault of beambert."
            )
    return warnings
