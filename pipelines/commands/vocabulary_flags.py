"""Define the vocabulary flags that `build`, `corpus` and `vocab` share, and print the summary of a vocabulary."""

import argparse
import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from beambert.common.command_line.flag_config import flag_values
from beambert.common.command_line.flags import WholeNumber, boolean, fraction, positive_int, vocabulary_size
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.common.command_line.word_rule_flags import WordRuleFlags
from beambert.common.terminal import print_summary_line
from beambert.common.word_rules import STRIP_ACCENTS, RecordedRules, WordRules
from beambert.pipelines.errors import SourceError
from beambert.tokenizer.coverage import Coverage
from beambert.tokenizer.lost_marks import default_do_lower_case, loses_mark
from beambert.tokenizer.normalization import CHARACTER_RULES
from beambert.tokenizer.recorded_rules import rules_beside
from beambert.tokenizer.vocabulary import Vocabulary

DEFAULT_VOCAB_SIZE = 30_000


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of a learned vocabulary."""
    group.add_argument(
        "--vocab_size",
        type=vocabulary_size,
        metavar="N",
        help=f"Vocabulary size: exact number of tokens in vocab.txt, special tokens included (default: "
        f"{DEFAULT_VOCAB_SIZE})",
    )
    group.add_argument(
        "--vocab_multiple_of",
        type=WholeNumber(1, 1_000_000),
        default=1,
        metavar="N",
        help="Round --vocab_size up to a multiple of N, filled with learned tokens; 8 suits GPUs, 128 suits TPUs",
    )
    group.add_argument(
        "--num_unused",
        type=WholeNumber(0, 1_000_000),
        default=0,
        metavar="N",
        help="Number of reserved tokens [unused0], [unused1], ... within --vocab_size, for domain words that are added "
        "later without resizing the model; the released vocabularies have 994 (default: 0)",
    )
    group.add_argument(
        "--alphabet_limit",
        type=WholeNumber(1, 1_114_112),
        default=1000,
        metavar="N",
        help="Maximum alphabet size: only the N most frequent characters become tokens, and a word with another "
        "character becomes [UNK]; increase it for Chinese and Japanese",
    )
    group.add_argument(
        "--min_count",
        type=positive_int,
        default=1,
        metavar="N",
        help="Minimum frequency of a word to be learned from",
    )
    group.add_argument(
        "--do_lower_case",
        type=boolean,
        nargs="?",
        const=True,
        metavar="true|false",
        help="Lowercase text (uncased), or not (cased); see docs/reference/languages.md (default: by --vocab_file, or "
        "else by --language: true except for languages that need the marks, such as Hindi, Thai or Vietnamese, unless "
        "--strip_accents false keeps them)",
    )
    group.add_argument(
        "--strip_accents",
        choices=STRIP_ACCENTS,
        help="Strip accents, and the vowel signs and tone marks of scripts such as Khmer, Thai or Devanagari; auto "
        "strips them if text is lowercased, as the released models do (default: as recorded beside --vocab_file, else "
        "auto)",
    )
    group.add_argument(
        "--tokenize_chinese_chars",
        type=boolean,
        metavar="true|false",
        help="Make each CJK ideograph a word; false for text that is segmented into words by spaces (default: as "
        "recorded beside --vocab_file, else true)",
    )
    group.add_argument(
        "--language_sampling_exponent",
        type=fraction,
        default=1.0,
        metavar="S",
        help="Exponent of language sampling: a language with fraction p of the words is sampled in proportion to "
        "p ** S, in vocabulary and examples; documents must state their language; multilingual BERT uses 0.7",
    )
    group.add_argument(
        "--compare_vocab",
        type=ANY_PATH,
        metavar="FILE",
        help="Second vocab.txt to measure on the validation split, for comparison",
    )


def options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `VocabularyOptions` from parsed flags; `args.vocab_file` must exist.

    Raises:
        SourceError, VocabularyError: A file is missing or not a vocabulary, or two flags conflict.
    """
    # Imported late: `--help` must not wait for Beam.
    from beambert.pipelines.vocabulary.vocabulary_options import VocabularyOptions

    if args.vocab_file and args.vocab_size:
        raise SourceError(
            "--vocab_size and --vocab_file conflict; leave out --vocab_file to learn a vocabulary, or --vocab_size to "
            "use an existing one"
        )
    size = args.vocab_size or DEFAULT_VOCAB_SIZE
    rules = word_rules(WordRuleFlags(**flag_values(WordRuleFlags, args)), args.vocab_file, args.language)
    return dataclasses.asdict(
        VocabularyOptions(
            **dataclasses.asdict(rules),
            vocab_size=0 if args.vocab_file else -(-size // args.vocab_multiple_of) * args.vocab_multiple_of,
            vocab_file=_vocabulary_path("--vocab_file", args.vocab_file),
            num_unused=args.num_unused,
            alphabet_limit=args.alphabet_limit,
            min_count=args.min_count,
            compare_vocab=_vocabulary_path("--compare_vocab", args.compare_vocab),
            language_sampling_exponent=args.language_sampling_exponent,
            character_rules=CHARACTER_RULES,
        )
    )


def word_rules(flags: WordRuleFlags, vocab_file: str | None, language: str) -> WordRules:
    """Return the rules of the flags, or else those recorded beside --vocab_file, or else the defaults.

    Raises:
        SourceError, VocabularyError: The vocabulary or its record is missing or invalid.
    """
    recorded = _rules_beside(vocab_file)
    if flags.do_lower_case is not None or recorded.do_lower_case is not None:
        return flags.rules(recorded, vocabulary_is_cased=False)
    # Whether uncased text would keep its marks decides the default of the letter case.
    keeps_marks = not flags.rules(recorded, vocabulary_is_cased=False).strips_accents
    return flags.rules(recorded, vocabulary_is_cased=not _default_lower_casing(vocab_file, language, keeps_marks))


def recorded_rules(vocab_file: str) -> WordRules | None:
    """Return the word rules that a directory records for its vocabulary; None without a record.

    Raises:
        VocabularyError: The record is invalid.
    """
    recorded = _rules_beside(vocab_file)
    return None if recorded.do_lower_case is None else WordRules(**dataclasses.asdict(recorded))


def _rules_beside(vocab_file: str | None) -> RecordedRules:
    """Return the record beside a local vocabulary; in cloud storage, records are not read."""
    from beambert.pipelines.runner.job_output import absolute

    if not vocab_file or "://" in vocab_file:
        return RecordedRules()
    return rules_beside(Path(absolute(vocab_file)))


def _default_lower_casing(vocab_file: str | None, language: str, keeps_marks: bool) -> bool:
    """Return whether text is uncased by --vocab_file, or else by --language.

    A vocabulary without capitals counts as uncased. For a language that is cased by default, it counts as cased if
    it contains marks that uncased text loses.

    Args:
        vocab_file, language: Values of the flags.
        keeps_marks: Whether uncased text keeps its marks. No language is then cased by default.

    Raises:
        SourceError, VocabularyError: The vocabulary is missing or invalid.
    """
    by_language = keeps_marks or default_do_lower_case(language)
    if not vocab_file:
        return by_language
    vocabulary = _read_vocabulary("--vocab_file", vocab_file)
    return not (vocabulary.has_capitals() or (not by_language and any(map(loses_mark, vocabulary.tokens))))


def _read_vocabulary(flag: str, path: str) -> Vocabulary:
    from beambert.pipelines.io.atomic_files import read_bytes
    from beambert.pipelines.runner.job_output import absolute

    try:
        return Vocabulary.from_bytes(read_bytes(absolute(path)), path)
    except FileNotFoundError as error:
        raise SourceError(f"{flag} {path} does not exist; check the path") from error
    except IsADirectoryError as error:
        raise SourceError(f"{flag} {path} is a directory; give the vocab.txt in it") from error


def _vocabulary_path(flag: str, path: str | None) -> str:
    """Return the absolute path of a valid vocabulary, or "" if none was requested."""
    from beambert.pipelines.runner.job_output import absolute

    if not path:
        return ""
    _read_vocabulary(flag, path)
    return absolute(path)


def print_summary(vocab: dict[str, Any], path: str, compared: str) -> None:
    """Print size, path and coverage of a vocabulary.

    Args:
        vocab: The field "vocab" of `corpus.json`.
        path: Path of vocab.txt, as printed.
        compared: Path of the vocabulary of --compare_vocab, or "".
    """
    print_summary_line("vocabulary", f"{path}  {vocab['size']:,} tokens")
    words = vocab["learned_from"]
    if words:
        share = words["words_excluded"] / words["words"]
        print_summary_line(
            "",
            f"learned from {words['distinct_words'] - words['distinct_words_excluded']:,} of "
            f"{words['distinct_words']:,} distinct words; rare words excluded: {share:.3%} of the text",
        )
    measured = {name: Coverage(**counts) for name, counts in vocab["validation"].items()}
    if not measured["vocab"].words:
        print_summary_line("", "coverage not measured: the validation split is empty; increase --validation_fraction")
        return
    print_summary_line("", f"{measured['vocab'].words:,} validation words: {measured['vocab']}")
    if compared:
        print_summary_line("", f"compared with {compared}: {measured['compare_vocab']}")


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings below the summary of a command."""
    for warning in warnings:
        print_summary_line("warning", warning, sys.stderr)
