"""Derive warnings about a dataset from its statistics."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipelines.corpus.source_warnings import source_warnings
from pipelines.examples.statistics import Statistics
from pipelines.examples.train_eval_overlap import Overlap
from pipelines.instances.options import PretrainingDataOptions
from pipelines.reporting.tables import short

# Maximum difference of the share of label 1 from 0.5. The sampler of google-research/bert gives about 0.55 on running
# text.
_MAX_LABEL_IMBALANCE = 0.10
_MAX_BALANCED_LABEL_IMBALANCE = 0.01
# Maximum share of truncated tokens. Wikipedia has 11 % at 128 positions.
_MAX_TRUNCATED = 0.2
# Training tokens below which a model learns little more than token frequencies.
_MIN_TOKENS = 50_000_000
_MIN_VALIDATION_EXAMPLES = 1000


def expected_masked(statistics: Statistics, options: PretrainingDataOptions) -> int:
    """Return the expected number of tokens to predict, given the lengths of the rows."""
    lengths = np.arange(len(statistics.row_lengths))
    row_lengths = np.array(options.row_lengths)
    row = row_lengths[np.minimum(np.searchsorted(row_lengths, lengths), len(row_lengths) - 1)]
    room = np.array([options.predictions_in(int(length)) for length in row])
    wanted = np.clip(np.rint(lengths * options.masked_lm_prob), 1, room).astype(np.int64)
    return int((wanted * statistics.row_lengths).sum())


def expected_actions(options: PretrainingDataOptions, num_replacements: int) -> dict[str, float]:
    """Return the expected share of masked tokens by action: "mask", "random" and "original".

    A random replacement that equals the original token counts as "original".

    Args:
        options: options of the examples.
        num_replacements: number of tokens of which random replacements are drawn.
    """
    equal = options.random_rate / max(num_replacements, 1)
    return {
        "mask": options.mask_rate,
        "random": options.random_rate - equal,
        "original": options.keep_rate + equal,
    }


def warnings_of(
    by_split: dict[str, Statistics],
    corpus: dict[str, Any],
    overlap: Overlap,
    options: PretrainingDataOptions,
    num_replacements: int,
    alphabet: Sequence[str] = (),
) -> list[str]:
    """Return warnings about a dataset, one line each, the most severe first.

    Args:
        by_split: statistics of "train" and "validation".
        corpus: counts of corpus.json.
        overlap: overlap of the validation split with the training text.
        options: options of the examples.
        num_replacements: number of tokens of which random replacements are drawn.
        alphabet: warnings of `pipelines.vocabulary.alphabet_warning` for the vocabulary of the examples.
    """
    train, validation = by_split["train"], by_split["validation"]
    return [
        *_validation_warnings(validation, overlap),
        *_vocabulary_warnings(train, options, alphabet),
        *_corpus_warnings(train, corpus, options),
        *_pair_warnings(train, options),
        *_row_warnings(train, options),
        *_mask_warnings(train, options, num_replacements),
    ]


def _validation_warnings(validation: Statistics, overlap: Overlap) -> list[str]:
    if not validation.instances:
        return [
            "the validation split is empty, so training cannot be evaluated; build the corpus again with "
            "--validation_fraction 0.02 or more"
        ]
    warnings = []
    if overlap.documents_found > 0.01 * overlap.documents:
        warnings.append(
            f"{overlap.documents_found:,} of {overlap.documents:,} validation documents have at least half of their "
            "longer sentences in the training text, which inflates evaluation results; build the corpus again with "
            "--drop_near_duplicates or --drop_repeated_paragraphs"
        )
    share = overlap.sentences_found / max(overlap.sentences, 1)
    if share > 0.02:
        warnings.append(
            f"{share:.1%} of the longer validation sentences also occur in the training text, because documents repeat "
            "each other; build the corpus again with --drop_near_duplicates or --drop_repeated_paragraphs"
        )
    if validation.instances < _MIN_VALIDATION_EXAMPLES:
        warnings.append(
            f"the validation split has only {validation.instances:,} examples, so evaluation is imprecise; build the "
            "corpus again with a larger --validation_fraction"
        )
    return warnings


def _vocabulary_warnings(train: Statistics, options: PretrainingDataOptions, alphabet: Sequence[str]) -> list[str]:
    warnings: list[str] = []
    unknown = train.unknown_tokens / max(train.tokens, 1)
    if unknown >= 0.01 and alphabet:
        warnings += alphabet
    elif unknown >= 0.01:
        warnings.append(
            f"{unknown:.1%} of the tokens are [UNK], so the vocabulary does not fit the corpus; learn one from the "
            f"corpus, or check that --do_lower_case {str(options.do_lower_case).lower()} is right for --vocab_file"
        )
    seen = np.count_nonzero(train.piece_counts) / max(len(train.piece_counts), 1)
    if seen < 0.7:
        warnings.append(
            f"{1 - seen:.1%} of the vocabulary never occurs in the training text, so the model learns nothing useful "
            "about these tokens; use more text, or learn a smaller vocabulary from it"
        )
    return warnings


def _corpus_warnings(train: Statistics, corpus: dict[str, Any], options: PretrainingDataOptions) -> list[str]:
    warnings = []
    if train.tokens < _MIN_TOKENS:
        warnings.append(
            f"the training text has {short(train.tokens)} tokens, which is enough for experiments but not for a useful "
            "model; the released BERT was trained on about 3,300 million words"
        )
    warnings += source_warnings(corpus)
    read, rejected = corpus.get("documents_read", 0), corpus.get("documents_rejected", {})
    if read and sum(rejected.values()) > 0.2 * read:
        reason = max(rejected, key=lambda name: (rejected[name], name))
        warnings.append(
            f"{sum(rejected.values()) / read:.0%} of the documents were rejected, most often by rule {reason} "
            f"({rejected[reason]:,}); check rejected/*.jsonl for documents that should be kept"
        )
    languages = corpus.get("languages", {})
    words = sum(size["words"] for size in languages.values())
    large = sorted(name for name, size in languages.items() if size["words"] > 0.02 * words)
    if len(large) > 1 and not options.language_factors:
        warnings.append(
            f"the text mixes {len(large)} languages ({', '.join(large)}) in their original proportions; "
            "--language_sampling_exponent 0.7 samples small languages more often"
        )
    if options.objective == "nsp" and train.sentences < 2 * train.documents:
        warnings.append(
            f"documents have {train.sentences / train.documents:.1f} sentences on average, too few for next sentence "
            "prediction; give whole documents, or use --objective mlm"
        )
    too_long = train.sentence_lengths[options.max_seq_length :].sum() / max(train.sentences, 1)
    if too_long > 0.05:
        warnings.append(
            f"{too_long:.1%} of the sentences are longer than an example, so the segmenter may not support the "
            "language; check --language and --segmenter"
        )
    if options.dupe_factor == 1 and options.masking != "dynamic":
        warnings.append(
            "there is one copy of the data, so every epoch has the same masks and pairs; use --dupe_factor 10, as for "
            "the released BERT, or --masking dynamic for new masks in every epoch"
        )
    return warnings


def _pair_warnings(train: Statistics, options: PretrainingDataOptions) -> list[str]:
    if options.objective == "mlm" or not train.instances:
        return []
    warnings = []
    share = train.instances_labeled_1 / train.instances
    is_balanced = options.balance_next_sentence or options.objective == "sop"
    limit = _MAX_BALANCED_LABEL_IMBALANCE if is_balanced else _MAX_LABEL_IMBALANCE
    # Five standard deviations, so that small datasets cause no false warnings.
    if abs(share - 0.5) > max(limit, 2.5 / train.instances**0.5):
        label = "swapped" if options.objective == "sop" else "random next sentences"
        remedy = "" if options.objective == "sop" else "; --balance_next_sentence balances them where possible"
        warnings.append(f"{share:.1%} of the pairs are {label} instead of about 50%{remedy}")
    truncated = train.tokens_truncated / max(train.tokens_packed, 1)
    if truncated > _MAX_TRUNCATED:
        warnings.append(
            f"{truncated:.1%} of the tokens are truncated, because sentences are long for --max_seq_length "
            f"{options.max_seq_length}; increase it, or check the sentence segmentation"
        )
    return warnings


def _row_warnings(train: Statistics, options: PretrainingDataOptions) -> list[str]:
    padding = 1 - train.instance_tokens / max(train.positions, 1)
    if padding <= 0.3 or options.without_padding:
        return []
    return [
        f"{padding:.0%} of the positions are padding, which costs training time; use --pack, --length_bins or a "
        "smaller --max_seq_length"
    ]


def _mask_warnings(train: Statistics, options: PretrainingDataOptions, num_replacements: int) -> list[str]:
    if options.masking == "dynamic" or not train.instance_tokens:
        return []
    warnings = []
    share = train.masked_tokens / train.instance_tokens
    if share < 0.9 * options.masked_lm_prob:
        warnings.append(
            f"{share:.1%} of the tokens are masked instead of {options.masked_lm_prob:.0%}"
            f"{_reason_for_few_masks(train, options)}"
        )
    if not train.masked_tokens:
        return warnings
    expected = expected_actions(options, num_replacements)
    rates = (
        ("replaced by [MASK]", train.masked_as_mask, expected["mask"]),
        ("replaced by a random token", train.masked_as_random, expected["random"]),
        ("kept", train.masked_as_original, expected["original"]),
    )
    for action, count, rate in rates:
        # Spans of up to ten tokens are drawn as a whole, which increases the variance.
        slack = 5 * (10 * rate * (1 - rate) / train.masked_tokens) ** 0.5 + 0.002
        if abs(count / train.masked_tokens - rate) > slack:
            warnings.append(
                f"{count / train.masked_tokens:.1%} of the masked tokens are {action} instead of {100 * rate:.3g}%; "
                "please report this bug in beambert"
            )
    return warnings


def _reason_for_few_masks(train: Statistics, options: PretrainingDataOptions) -> str:
    """Return the end of the warning about too few masked tokens: the reason and the remedy."""
    without_limit = dataclasses.replace(options, max_predictions_per_seq=options.max_seq_length)
    unlimited = expected_masked(train, without_limit)
    if expected_masked(train, options) < 0.9 * unlimited:
        return (
            f"; increase --max_predictions_per_seq {options.max_predictions_per_seq}, which is too small for "
            f"--max_seq_length {options.max_seq_length}"
        )
    if options.masking != "token" and train.masked_tokens < 0.9 * unlimited:
        return (
            ", because words have more tokens than may be masked in a row; use --masking token or a vocabulary with "
            "more whole words"
        )
    return (
        ", because examples are short: [CLS] and [SEP] are not masked, and the number per example is rounded; use "
        "longer documents or --pack"
    )
