"""Define the flags of sampling, masking and shards, with the names of create_pretraining_data.py where it has them."""

import argparse
import dataclasses

from beambert.common.command_line.flag_config import flag_values
from beambert.common.command_line.flags import (
    WholeNumber,
    copies,
    fraction,
    positive_int,
    sequence_length,
    shortened,
    whole_number,
)
from beambert.common.word_rules import WordRules
from beambert.pipelines.instances import options
from beambert.pipelines.instances.options import PretrainingDataOptions

_DEFAULTS = PretrainingDataOptions()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the groups "sampling", "masking" and "shards"."""
    group = parser.add_argument_group("sampling")
    _add_number(
        group, "max_seq_length", sequence_length, "Maximum sequence length in tokens, [CLS] and both [SEP] included"
    )
    _add_choice(
        group,
        "objective",
        options.OBJECTIVES,
        "Pretraining objective besides masked LM: next sentence prediction (nsp), sentence order prediction (sop) or "
        "none (mlm)",
    )
    group.add_argument(
        "--balance_next_sentence",
        action="store_true",
        help="Make half of the pairs next sentences; without it slightly fewer are, as in google-research/bert, where "
        "an instance of one sentence always gets a random pair",
    )
    _add_number(
        group,
        "short_seq_prob",
        fraction,
        "Probability of packing a document to a random length below --max_seq_length",
    )
    _add_number(
        group,
        "noise",
        fraction,
        "Fraction of words of 4 or more letters that get a typing error, for robustness; the validation split gets "
        "none (default: 0)",
    )
    _add_number(
        group,
        "dupe_factor",
        copies,
        "Number of copies of the data, each with its own pairs and masks; one copy is one epoch",
    )
    group.add_argument(
        "--random_seed",
        type=WholeNumber(0, 2**63 - 1),
        metavar="N",
        default=_DEFAULTS.random_seed,
        help="Random seed; the same seed, corpus and options give the same bytes",
    )

    group = parser.add_argument_group("masking")
    _add_choice(
        group,
        "masking",
        options.MASKINGS,
        "Masking unit: token, whole_word, or span (several consecutive words); dynamic leaves masking to the trainer, "
        "which masks again in every epoch",
    )
    _add_number(group, "masked_lm_prob", fraction, "Masked LM probability: fraction of tokens to predict")
    _add_number(
        group,
        "max_predictions_per_seq",
        positive_int,
        "Maximum number of masked tokens per sequence; use about max_seq_length * masked_lm_prob",
    )
    _add_number(group, "mask_rate", fraction, "Fraction of the tokens to predict that are replaced with [MASK]")
    _add_number(
        group, "random_rate", fraction, "Fraction of the tokens to predict that are replaced with a random token"
    )
    _add_number(group, "keep_rate", fraction, "Fraction of the tokens to predict that stay unchanged")

    group = parser.add_argument_group("shards")
    group.add_argument("--pack", action="store_true", help="Pack several short instances into one row")
    _add_number(group, "max_instances_per_row", positive_int, "Maximum number of instances in a packed row")
    group.add_argument(
        "--length_bins",
        type=_lengths,
        default=_DEFAULTS.length_bins,
        metavar="N,N",
        help="Row lengths in tokens for bucketing by length, for example 32,64,128; each length gets its own shards, "
        "and the last is --max_seq_length (default: one length)",
    )
    _add_choice(
        group,
        "format",
        options.FORMATS,
        "Shard format; parquet stores lists without padding, for PyTorch readers; array_record has random access by "
        "index, for Grain",
    )
    _add_choice(group, "compression", options.COMPRESSIONS, "Compression of TFRecord shards")
    _add_choice(
        group,
        "feature_names",
        options.FEATURE_NAMES,
        "Feature names of google-research/bert (bert) or TensorFlow Model Garden (model_garden)",
    )
    group.add_argument("--ragged", action="store_true", help="Omit the padding from TFRecord and ArrayRecord examples")


def example_options(args: argparse.Namespace) -> PretrainingDataOptions:
    """Return the options from parsed flags. Raise DatasetError for a value out of range."""
    values = flag_values(PretrainingDataOptions, args)
    # The corpus determines the word rules.
    for rule in dataclasses.fields(WordRules):
        values.pop(rule.name, None)
    return PretrainingDataOptions(**values)


def _add_number(group: argparse._ArgumentGroup, name: str, type_: object, text: str) -> None:
    metavar = "FRACTION" if type_ is fraction else "N"
    default = getattr(_DEFAULTS, name)
    group.add_argument(f"--{name}", type=type_, metavar=metavar, default=default, help=text)  # type: ignore[arg-type]


def _add_choice(group: argparse._ArgumentGroup, name: str, known: tuple[str, ...], text: str) -> None:
    group.add_argument(f"--{name}", choices=known, default=getattr(_DEFAULTS, name), help=text)


def _lengths(text: str) -> tuple[int, ...]:
    lengths = [whole_number(number) for number in text.split(",")]
    if None in lengths:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not a list of whole numbers such as 32,64,128")
    return tuple(length for length in lengths if length is not None)
