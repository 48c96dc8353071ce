"""Resolve the vocabulary flags of `build`, `corpus` and `vocab`, and print the summary of a vocabulary."""

import argparse
import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from beambert.common.command_line.flags import flag_values
from beambert.common.command_line.word_rule_flags import WordRuleFlags
from beambert.common.terminal import print_summary_line
from beambert.common.word_rules import RecordedRules, WordRules
from beambert.pipelines.errors import SourceError
from beambert.pipelines.vocabulary.vocabulary_options import DEFAULT_VOCAB_SIZE
from beambert.tokenizer.coverage import Coverage
from beambert.tokenizer.lost_marks import default_do_lower_case, loses_mark
from beambert.tokenizer.normalization import CHARACTER_RULES
from beambert.tokenizer.recorded_rules import rules_beside
from beambert.tokenizer.vocabulary import Vocabulary


def vocabulary_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `VocabularyOptions` that depend on files or on several flags.

    Raises:
        SourceError, VocabularyError: A file is missing or not a vocabulary.
    """
    size = args.vocab_size
    if size is None and not args.vocab_file:
        size = DEFAULT_VOCAB_SIZE
    rules = word_rules(WordRuleFlags(**flag_values(WordRuleFlags, args)), args.vocab_file, args.language)
    return {
        **dataclasses.asdict(rules),
        "vocab_size": -(-(size or 0) // args.vocab_multiple_of) * args.vocab_multiple_of,
        "vocab_file": _vocabulary_path("--vocab_file", args.vocab_file),
        "compare_vocab": _vocabulary_path("--compare_vocab", args.compare_vocab),
        "character_rules": CHARACTER_RULES,
    }


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
