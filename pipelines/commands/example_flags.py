"""The flags that say what pretraining examples are like, named as in create_pretraining_data.py where it has them."""

import argparse

from beambert_common.command_line.flag_config import flag_values
from beambert_common.command_line.flags import (
    WholeNumber,
    copies,
    fraction,
    positive_int,
    sequence_length,
    shortened,
    whole_number,
)
from pipelines.instances import options
from pipelines.instances.options import PretrainingDataOptions

_DEFAULTS = PretrainingDataOptions()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the groups "the examples", "masking" and "the files"."""
    group = parser.add_argument_group("the examples")
    _add_number(group, "max_seq_length", sequence_length, "tokens in an example")
    _add_choice(
        group,
        "objective",
        options.OBJECTIVES,
        "next sentence prediction, sentence order prediction, or masked words alone",
    )
    group.add_argument(
        "--balance_next_sentence",
        action="store_true",
        help="make half of the pairs true ones; as published it is a little less, for chunks of one sentence are "
        "always paired at random",
    )
    _add_number(group, "short_seq_prob", fraction, "share of documents packed shorter")
    _add_number(
        group,
        "noise",
        fraction,
        "share of words of four letters or more that get a typing error, so that a model learns to bear them; not in "
        "held-out text",
    )
    _add_number(
        group, "dupe_factor", copies, "passes over the corpus, each with fresh pairs and masks; one is an epoch"
    )
    group.add_argument(
        "--random_seed",
        type=WholeNumber(0, 2**63 - 1),
        metavar="N",
        default=_DEFAULTS.random_seed,
        help="same seed, corpus and options: same bytes",
    )

    group = parser.add_argument_group("masking")
    _add_choice(
        group,
        "masking",
        options.MASKINGS,
        "what is masked together: pieces, whole words, runs of words; dynamic: the trainer masks again in every epoch",
    )
    _add_number(group, "masked_lm_prob", fraction, "share of tokens to predict")
    _add_number(
        group,
        "max_predictions_per_seq",
        positive_int,
        "most masked tokens in an example; about max_seq_length * masked_lm_prob",
    )
    _add_number(group, "mask_rate", fraction, "share of the tokens to predict that become [MASK]")
    _add_number(group, "random_rate", fraction, "share of them that become a random token")
    _add_number(group, "keep_rate", fraction, "share of them that stay")

    group = parser.add_argument_group("the files")
    group.add_argument("--pack", action="store_true", help="put several short instances into one row")
    _add_number(group, "max_instances_per_row", positive_int, "most instances in a packed row")
    group.add_argument(
        "--length_bins",
        type=_lengths,
        default=_DEFAULTS.length_bins,
        metavar="N,N",
        help="lengths of rows, each in files of its own, such as 32,64,128; the last is --max_seq_length (default: one "
        "length)",
    )
    _add_choice(group, "format", options.FORMATS, "parquet has lists without padding, for PyTorch")
    _add_choice(group, "compression", options.COMPRESSIONS, "of TFRecord files")
    _add_choice(group, "feature_names", options.FEATURE_NAMES, "google-research/bert's or TensorFlow Model Garden's")
    group.add_argument("--ragged", action="store_true", help="leave the padding out of TFRecord examples")


def example_options(args: argparse.Namespace) -> PretrainingDataOptions:
    """Return the options that the flags of `add_arguments` name. Raises DatasetError if one is out of range."""
    values = flag_values(PretrainingDataOptions, args)
    # The case of the text is the corpus's.
    values.pop("do_lower_case", None)
    return PretrainingDataOptions(**values)


def _add_number(group: argparse._ArgumentGroup, name: str, type_: object, text: str) -> None:
    metavar = "SHARE" if type_ is fraction else "N"
    group.add_argument(f"--{name}", type=type_, metavar=metavar, default=getattr(_DEFAULTS, name), help=text)  # type: ignore[arg-type]


def _add_choice(group: argparse._ArgumentGroup, name: str, known: tuple[str, ...], text: str) -> None:
    group.add_argument(f"--{name}", choices=known, default=getattr(_DEFAULTS, name), help=text)


def _lengths(text: str) -> tuple[int, ...]:
    lengths = [whole_number(number) for number in text.split(",")]
    if None in lengths:
        raise argparse.ArgumentTypeError(f"{shortened(text)} is not a list of whole numbers such as 32,64,128")
    return tuple(length for length in lengths if length is not None)
