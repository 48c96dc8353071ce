"""The flags of the cleaning rules, shared by every command that reads raw text."""

import argparse
import importlib.util

from beambert_common.command_line.flags import fraction, positive_int
from beambert_common.command_line.path_flags import ANY_PATH
from pipelines.cleaning.language_identification import known_languages
from pipelines.cleaning.rules import SKIPPABLE, CleaningOptions
from pipelines.errors import SourceError

_DEFAULTS = CleaningOptions()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the group "cleaning"."""
    group = parser.add_argument_group(
        "cleaning",
        "What is dropped is listed in rejected/*.jsonl with the rule's name; corpus.json counts it. "
        f"On unless skipped: {', '.join(SKIPPABLE)}.",
    )
    group.add_argument(
        "--skip_rules",
        default="",
        metavar="NAME,NAME",
        help="rules not to apply, such as residual_markup for a corpus about HTML (default: none)",
    )
    group.add_argument(
        "--min_sentences",
        type=positive_int,
        default=_DEFAULTS.min_sentences,
        metavar="N",
        help=f"leave out documents with fewer sentences (default: {_DEFAULTS.min_sentences}; C4 took 5)",
    )
    group.add_argument(
        "--min_words",
        type=positive_int,
        default=_DEFAULTS.min_words,
        metavar="N",
        help="leave out documents with fewer words (default: none; Gopher took 50)",
    )
    group.add_argument(
        "--min_characters",
        type=positive_int,
        default=_DEFAULTS.min_characters,
        metavar="N",
        help="leave out documents with fewer characters (default: none)",
    )
    for flag, what in (
        ("max_symbol_ratio", "with more hashes and ellipses for each word"),
        ("max_digit_ratio", "with a larger share of digits among their characters"),
        ("max_non_letter_ratio", "with a larger share of words without a letter"),
        ("max_repeated_lines", "in which a larger share of the text is in sentences that came before"),
        ("max_repeated_ngrams", "in which a larger share of the text lies in runs of ten words that come again"),
    ):
        default = getattr(_DEFAULTS, flag)
        group.add_argument(
            f"--{flag}",
            type=fraction,
            default=default,
            metavar="SHARE",
            help=f"leave out documents {what} (default: {default})",
        )
    group.add_argument(
        "--end_punctuation",
        action="store_true",
        help="drop paragraphs that do not end like a sentence, as C4 did; also drops headings and verse",
    )
    group.add_argument(
        "--fix_mojibake",
        action="store_true",
        help="repair text decoded wrongly, such as sch\u00c3\u00b6n for sch\u00f6n (extra [clean])",
    )
    group.add_argument(
        "--drop_near_duplicates",
        action="store_true",
        help="leave out documents that share about 70 %% of their runs of five words with another (MinHash)",
    )
    group.add_argument(
        "--drop_repeated_paragraphs",
        action="store_true",
        help="leave out paragraphs of eight words or more that stand in another document too; one document keeps each",
    )
    group.add_argument(
        "--identify_language",
        action="store_true",
        help="leave out documents that are not in --language; those under 200 characters stay (extra [clean])",
    )
    group.add_argument(
        "--decontaminate",
        action="extend",
        nargs="+",
        default=[],
        type=ANY_PATH,
        metavar="FILE",
        help="evaluation data (SQuAD's JSON, GLUE's TSV, JSON lines, text): leave out documents that share 13 words in "
        "a row with it",
    )
    group.add_argument(
        "--decontaminate_action",
        choices=("drop", "report"),
        default="drop",
        help="report: keep such documents, but list and count them",
    )


def options(args: argparse.Namespace) -> CleaningOptions:
    """Return the options of the rules from parsed flags.

    Raises:
        SourceError: an unknown rule, or a library that is not installed.
    """
    skipped = sorted({name.strip() for name in args.skip_rules.split(",") if name.strip()})
    unknown = [name for name in skipped if name not in SKIPPABLE]
    if unknown:
        raise SourceError(
            f"--skip_rules {unknown[0]} is no rule that can be skipped; choose from {', '.join(SKIPPABLE)}"
        )
    if args.fix_mojibake and importlib.util.find_spec("ftfy") is None:
        raise SourceError("--fix_mojibake needs ftfy, which is not installed; pip install 'beambert[clean]'")
    if args.identify_language:
        _require_language(args.language)
    return CleaningOptions(
        skip_rules=",".join(skipped),
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


def _require_language(language: str) -> None:
    if importlib.util.find_spec("py3langid") is None:
        raise SourceError("--identify_language needs py3langid, which is not installed; pip install 'beambert[clean]'")
    known = known_languages()
    if language.split("-")[0].lower() not in known:
        raise SourceError(f"--identify_language does not know --language {language}; it knows {', '.join(known)}")
