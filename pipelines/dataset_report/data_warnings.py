"""Derive warnings about a dataset from its statistics."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from beambert.pipelines.corpus.blocks import NEAR_DUPLICATE, REPEATED_PARAGRAPH
from beambert.pipelines.corpus.corpus_warnings import loss_warnings, source_warnings
from beambert.pipelines.examples.statistics import Statistics
from beambert.pipelines.examples.train_eval_overlap import Overlap
from beambert.pipelines.instances.options import PretrainingDataOptions

# Maximum difference of the share of label 1 from 0.5. The sampler of google-research/bert gives about 0.55 on running
# text.
_MAX_LABEL_IMBALANCE = 0.10
_MAX_BALANCED_LABEL_IMBALANCE = 0.01
# Maximum share of truncated tokens. Wikipedia has 11 % at 128 positions.
_MAX_TRUNCATED = 0.2
# Tokens of a sentence that is probably several. Examples may be much shorter, where short sequences come first.
_LONG_SENTENCE = 128
# Documents of a partition with which hardly any partition has a single one.
_DOCUMENTS_A_PARTITION = 50
# Predictions of an evaluation, masked tokens or pairs, below which the standard error of an accuracy may exceed 1.6%.
_MIN_VALIDATION_PREDICTIONS = 1000


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


class Facts(NamedTuple):
    """The facts of a dataset from which warnings are derived.

    Attributes:
        train, validation: statistics of the splits.
        corpus: counts of corpus.json.
        overlap: overlap of the validation split with the training text.
        options: options of the examples.
        num_replacements: number of tokens of which random replacements are drawn.
        alphabet: warnings of `beambert.pipelines.corpus.corpus_warnings.alphabet_warnings` for the vocabulary of the
            examples.
    """

    train: Statistics
    validation: Statistics
    corpus: Mapping[str, Any]
    overlap: Overlap
    options: PretrainingDataOptions
    num_replacements: int
    alphabet: Sequence[str] = ()


def warnings_of(facts: Facts) -> list[str]:
    """Return warnings about a dataset, one line each.

    The most important ones come first: faults of the data, then what makes an evaluation wrong, then what wastes text
    or time.
    """
    return [
        *_fault_warnings(facts),
        *_evaluation_warnings(facts),
        *_example_warnings(facts),
        *_text_warnings(facts),
        *_training_warnings(facts),
    ]


def _fault_warnings(facts: Facts) -> Iterator[str]:
    """Yield warnings about wrong masks, lost or invalid text, and unknown tokens."""
    train, options = facts.train, facts.options
    if options.masking != "dynamic" and train.masked_tokens:
        expected = expected_actions(options, facts.num_replacements)
        for action, count, rate in (
            ("replaced by [MASK]", train.masked_as_mask, expected["mask"]),
            ("replaced by a random token", train.masked_as_random, expected["random"]),
            ("kept", train.masked_as_original, expected["original"]),
        ):
            # Spans of up to ten tokens are drawn as a whole, which increases the variance.
            slack = 5 * (10 * rate * (1 - rate) / train.masked_tokens) ** 0.5 + 0.002
            if abs(count / train.masked_tokens - rate) > slack:
                yield (
                    f"{count / train.masked_tokens:.1%} of the masked tokens are {action} instead of "
                    f"{100 * rate:.3g}%; please report this bug in beambert"
                )
    yield from loss_warnings(facts.corpus, "rejected/")
    unknown = train.unknown_tokens / max(train.tokens, 1)
    if unknown >= 0.01 and not facts.alphabet:
        yield (
            f"{unknown:.1%} of the tokens are [UNK], so the vocabulary does not fit the corpus; learn one from the "
            f"corpus, or check that --do_lower_case {str(options.do_lower_case).lower()} is right for --vocab_file"
        )
    yield from facts.alphabet
    yield from source_warnings(facts.corpus)


def _evaluation_warnings(facts: Facts) -> Iterator[str]:
    """Yield warnings about an empty validation split, or one that repeats the training text."""
    overlap = facts.overlap
    if not facts.validation.instances:
        # About five documents, of a small corpus.
        fraction = min(0.5, max(0.02, math.ceil(500 / max(facts.train.documents, 1)) / 100))
        yield (
            "the validation split is empty, so training cannot be evaluated; build the corpus again with "
            f"--validation_fraction {fraction:g} or more"
        )
    if overlap.documents_found > 0.01 * overlap.documents:
        yield (
            f"{overlap.documents_found:,} of {overlap.documents:,} validation documents have at least half of their "
            f"longer sentences in the training text, which inflates evaluation results; {_against_repetition(facts)}"
        )
    share = overlap.sentences_found / max(overlap.sentences, 1)
    if share > 0.02:
        yield (
            f"{share:.1%} of the longer validation sentences also occur in the training text, because documents repeat "
            f"each other; {_against_repetition(facts)}"
        )


def _against_repetition(facts: Facts) -> str:
    """Return the remedy for text that repeats: the flags whose rules have removed nothing yet."""
    applied = {*facts.corpus["documents_rejected"], *facts.corpus.get("paragraphs_cleaned", ())}
    rules = {NEAR_DUPLICATE: "--drop_near_duplicates", REPEATED_PARAGRAPH: "--drop_repeated_paragraphs"}
    flags = [flag for rule, flag in rules.items() if rule not in applied]
    return f"build the corpus again with {' or '.join(flags)}" if flags else "evaluate on other text"


def _example_warnings(facts: Facts) -> Iterator[str]:
    """Yield warnings about the masks and pairs of the training examples."""
    train, options = facts.train, facts.options
    has_pairs = options.objective != "mlm"
    if options.objective == "nsp" and train.sentences < 2 * train.documents:
        yield (
            f"documents have {train.sentences / train.documents:.1f} sentences on average, too few for next sentence "
            "prediction; give whole documents, or use --objective mlm"
        )
    masked = train.masked_tokens / max(train.instance_tokens, 1)
    if options.masking != "dynamic" and train.instance_tokens and masked < 0.9 * options.masked_lm_prob:
        yield (
            f"{masked:.1%} of the tokens are masked instead of {options.masked_lm_prob:.0%}"
            f"{_reason_for_few_masks(train, options)}"
        )
    truncated = train.tokens_truncated / max(train.tokens_packed, 1)
    if has_pairs and truncated > _MAX_TRUNCATED:
        yield (
            f"{truncated:.1%} of the tokens are truncated, because sentences are long for --max_seq_length "
            f"{options.max_seq_length}; increase it, or check the sentence segmentation"
        )
    if has_pairs and train.instances:
        share = train.instances_labeled_1 / train.instances
        is_sop = options.objective == "sop"
        limit = _MAX_BALANCED_LABEL_IMBALANCE if options.balance_next_sentence or is_sop else _MAX_LABEL_IMBALANCE
        # Five standard deviations, so that small datasets cause no false warnings.
        if abs(share - 0.5) > max(limit, 2.5 / train.instances**0.5):
            label = "swapped" if is_sop else "random next sentences"
            remedy = "" if is_sop else _reason_for_unbalanced_pairs(train, options, share)
            yield f"{share:.1%} of the pairs are {label} instead of about 50%{remedy}"


def _text_warnings(facts: Facts) -> Iterator[str]:
    """Yield warnings about the segmentation, rejected documents and the vocabulary."""
    train = facts.train
    longest = max(facts.options.max_seq_length, _LONG_SENTENCE)
    too_long = train.sentence_lengths[longest:].sum() / max(train.sentences, 1)
    if too_long > 0.05:
        yield (
            f"{too_long:.1%} of the sentences are longer than {longest} tokens, so the segmenter may not support the "
            "language; check --language and --segmenter"
        )
    read, rejected = facts.corpus.get("documents_read", 0), facts.corpus.get("documents_rejected", {})
    if read and sum(rejected.values()) > 0.2 * read:
        reason = max(rejected, key=lambda name: (rejected[name], name))
        yield (
            f"{sum(rejected.values()) / read:.0%} of the documents were rejected, most often by rule {reason} "
            f"({rejected[reason]:,}); check rejected/*.jsonl for documents that should be kept"
        )
    seen = np.count_nonzero(train.piece_counts) / max(len(train.piece_counts), 1)
    if seen < 0.7:
        yield (
            f"{1 - seen:.1%} of the vocabulary never occurs in the training text, so the model learns nothing useful "
            "about these tokens; use more text, or learn a smaller vocabulary from it"
        )


def _training_warnings(facts: Facts) -> Iterator[str]:
    """Yield warnings about what makes training less efficient, or its evaluation imprecise."""
    train, validation, options = facts.train, facts.validation, facts.options
    predictions = round(options.masked_lm_prob * validation.instance_tokens)
    counts = {"masked tokens": predictions, "pairs": validation.instances}
    if options.objective == "mlm":
        del counts["pairs"]
    few = next((f"{count:,} {noun}" for noun, count in counts.items() if count < _MIN_VALIDATION_PREDICTIONS), "")
    if few and validation.instances:
        yield (
            f"the validation split has only {few}, so evaluation is imprecise; build the corpus again with a larger "
            "--validation_fraction"
        )
    languages = facts.corpus.get("languages", {})
    words = sum(size["words"] for size in languages.values())
    large = sorted(name for name, size in languages.items() if size["words"] > 0.02 * words)
    if len(large) > 1 and not options.language_factors:
        yield (
            f"the text mixes {len(large)} languages ({', '.join(large)}) in their original proportions; "
            "--language_sampling_exponent 0.7 samples small languages more often"
        )
    if options.dupe_factor == 1 and options.masking != "dynamic":
        yield (
            "there is one copy of the data, so every epoch has the same masks and pairs; use --dupe_factor 10, as for "
            "the released BERT, or --masking dynamic for new masks in every epoch"
        )
    padding = 1 - train.instance_tokens / max(train.positions, 1)
    if padding > 0.3 and not options.without_padding:
        unused = {"--pack": not options.pack, "--length_bins": not options.length_bins}
        flags = ", ".join(flag for flag, is_unused in unused.items() if is_unused)
        yield (
            f"{padding:.0%} of the positions are padding, which costs training time; use "
            f"{f'{flags} or ' if flags else ''}a smaller --max_seq_length"
        )


def _reason_for_unbalanced_pairs(train: Statistics, options: PretrainingDataOptions, share: float) -> str:
    """Return the end of the warning about the share of random next sentences: the reason and the remedy."""
    if share < 0.5 and train.documents < 2:
        return ", because there is one training document; add documents, or use --objective mlm or sop"
    if share < 0.5:
        # A random next sentence is from another document of the partition.
        partitions = max(train.documents // _DOCUMENTS_A_PARTITION, 1)
        return (
            ", because partitions with a single document have none; use fewer partitions, such as --num_partitions "
            f"{partitions}"
        )
    if not options.balance_next_sentence:
        return "; --balance_next_sentence balances them where possible"
    return (
        f", because text of --max_seq_length {options.max_seq_length} is often a single sentence; increase it, or use "
        "documents with more sentences"
    )


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
        f"longer documents{'' if options.pack else ' or --pack'}"
    )
