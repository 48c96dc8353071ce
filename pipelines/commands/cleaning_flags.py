"""Define the flags of cleaning and deduplication, which every command that reads raw text shares."""

import argparse
import importlib.util

from beambert.common.command_line.flags import fraction, positive_int
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.pipelines.cleaning.language_identification import known_languages
from beambert.pipelines.cleaning.rules import SKIPPABLE, CleaningOptions
from beambert.pipelines.errors import SourceError

_DEFAULTS = CleaningOptions()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the groups "cleaning" and "deduplication"."""
    group = parser.add_argument_group("cleaning")
    group.add_argument(
        "--skip_rules",
        default="",
        metavar="NAME,NAME",
        help="Cleaning rules to skip, separated by commas, for example residual_markup for a corpus about HTML: "
        f"{', '.join(SKIPPABLE)} (default: none)",
    )
    group.add_argument(
        "--min_sentences",
        type=positive_int,
        default=_DEFAULTS.min_sentences,
        metavar="N",
        help=f"Minimum sentences per document; C4 uses 5 (default: {_DEFAULTS.min_sentences})",
    )
    group.add_argument(
        "--min_words",
        type=positive_int,
        default=_DEFAULTS.min_words,
        metavar="N",
        help="Minimum words per document; Gopher uses 50 (default: no minimum)",
    )
    group.add_argument(
        "--min_characters",
        type=positive_int,
        default=_DEFAULTS.min_characters,
        metavar="N",
        help="Minimum characters per document (default: no minimum)",
    )
    for flag, quantity in (
        ("max_symbol_ratio", "Maximum ratio of hashes and ellipses to words"),
        ("max_digit_ratio", "Maximum fraction of digits among the characters of a document"),
        ("max_non_letter_ratio", "Maximum fraction of words without a letter"),
        ("max_repeated_lines", "Maximum fraction of a document's text in repeated sentences"),
        ("max_repeated_ngrams", "Maximum fraction of a document's text in repeated 10-grams of words"),
    ):
        default = getattr(_DEFAULTS, flag)
        group.add_argument(
            f"--{flag}",
            type=fraction,
            default=default,
            metavar="FRACTION",
            help=f"{quantity}; documents above it are rejected (default: {default})",
        )
    group.add_argument(
        "--end_punctuation",
        action="store_true",
        help="Reject paragraphs without terminal punctuation, as C4 does; this also rejects headings and verse",
    )
    group.add_argument(
        "--fix_mojibake",
        action="store_true",
        help="Repair wrongly decoded text, such as sch\u00c3\u00b6n for sch\u00f6n (requires the extra [clean])",
    )
    group.add_argument(
        "--identify_language",
        action="store_true",
        help="Reject documents that are not in --language; documents under 200 characters are kept (requires the "
        "extra [clean])",
    )
    group.add_argument(
        "--decontaminate",
        action="extend",
        nargs="+",
        default=[],
        type=ANY_PATH,
        metavar="FILE",
        help="Evaluation data (SQuAD JSON, GLUE TSV, JSON Lines or text): reject documents that share a 13-gram of "
        "words with it",
    )
    group.add_argument(
        "--decontaminate_action",
        choices=("drop", "report"),
        default="drop",
        help="Action for documents that --decontaminate finds; report lists and counts them, but keeps them",
    )
    group = parser.add_argument_group("deduplication")
    group.add_argument(
        "--drop_near_duplicates",
        action="store_true",
        help="Remove near-duplicates, not only equal documents: they share about 70%% of their 5-grams of words "
        "(MinHash)",
    )
    group.add_argument(
        "--drop_repeated_paragraphs",
        action="store_true",
        help="Remove paragraphs of 8 or more words that occur in another document; one document keeps each of them",
    )


def options(args: argparse.Namespace) -> CleaningOptions:
    """Return the cleaning options from parsed flags.

    Raises:
        SourceError: A rule is unknown, or a required library is not installed.
    """
    cleaning = CleaningOptions(
        skip_rules=args.skip_rules,
        fix_mojibake=args.fix_mojibake,
        end_punctuation=args.end_punctuation,
        min_sentences=args.min_sentences,
        min_words=args.min_words,
        min_characters=args.min_characters,
        max_symbol_ratio=args.max_symbol_ratio,
        max_digit_ratio=args.max_digit_ratio,
        max_non_letter_ratio=args.max_non_letter_ratio,
        max_repeated_lines=args.max_repeated_lines,
        max_repeated_ngrams=args.max_repeated_ngrams,
    )
    if args.fix_mojibake and importlib.util.find_spec("ftfy") is None:
        raise SourceError("--fix_mojibake requires ftfy, which is not installed; run pip install 'beambert[clean]'")
    if args.identify_language:
        _require_language(args.language)
    return cleaning


def _require_language(language: str) -> None:
    if importlib.util.find_spec("py3langid") is None:
        raise SourceError(
            "--identify_language requires py3langid, which is not installed; run pip install 'beambert[clean]'"
        )
    known = known_languages()
    if language.split("-")[0].lower() not in known:
        raise SourceError(f"--identify_language does not support --language {language}; choose from {', '.join(known)}")
