"""The flags that say what a vocabulary is like, shared by `build`, `corpus` and `vocab`, and what is said of it."""

import argparse
import dataclasses
import sys
from typing import Any

from beambert_common.command_line.flags import WholeNumber, boolean, fraction, positive_int, vocabulary_size
from beambert_common.command_line.path_flags import ANY_PATH
from pipelines.errors import SourceError
from pipelines.vocabulary.alphabet_warning import alphabet_warnings
from tokenizer.coverage import Coverage
from tokenizer.lost_marks import default_do_lower_case, is_accent, loses_mark
from tokenizer.normalization import CHARACTER_RULES
from tokenizer.vocabulary import Vocabulary

DEFAULT_VOCAB_SIZE = 30_000
# Share of letters losing a mark above which a warning is printed.
_MANY_MARKS = 0.01


def add_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of a vocabulary to learn."""
    group.add_argument(
        "--vocab_size",
        type=vocabulary_size,
        metavar="N",
        help=f"exact number of tokens in vocab.txt, of all kinds together (default: {DEFAULT_VOCAB_SIZE})",
    )
    group.add_argument(
        "--vocab_multiple_of",
        type=WholeNumber(1, 1_000_000),
        default=1,
        metavar="N",
        help="round --vocab_size up to a multiple, filled with learnt pieces: 8 suits GPUs, 128 TPUs",
    )
    group.add_argument(
        "--num_unused",
        type=WholeNumber(0, 1_000_000),
        default=0,
        metavar="N",
        help="pieces named [unused0], [unused1], ... within --vocab_size, placed as in the released vocabularies (994 "
        "there): room for words that a later task wants to add without changing the model's shape",
    )
    group.add_argument(
        "--alphabet_limit",
        type=WholeNumber(1, 1_114_112),
        default=1000,
        metavar="N",
        help="characters, the most frequent, that become pieces; a word with another is [UNK]. Raise it for Chinese "
        "and Japanese",
    )
    group.add_argument(
        "--min_count", type=positive_int, default=1, metavar="N", help="words seen fewer times are not learnt from"
    )
    group.add_argument(
        "--do_lower_case",
        type=boolean,
        nargs="?",
        const=True,
        metavar="true|false",
        help="lower-case and strip accents and other marks (uncased), or not (cased); default: true, but false for a "
        "cased --vocab_file, and for a --language whose words that destroys: those of India, Burmese, Dhivehi, "
        "Japanese, Khmer, Lao, Navajo, Sinhala, Thai, Tibetan, Vietnamese, Yoruba",
    )
    group.add_argument(
        "--language_sampling_exponent",
        type=fraction,
        default=1.0,
        metavar="S",
        help="below 1, documents of small languages are seen more often, in the vocabulary and in the examples: a "
        "language with a share p of the words gets a share proportional to p ** S (multilingual BERT: 0.7). Languages "
        "are told by the files' own statements (Wikipedia dumps, JSON lines and Parquet with a language)",
    )
    group.add_argument(
        "--compare_vocab",
        type=ANY_PATH,
        metavar="FILE",
        help="another vocab.txt, to be measured on the validation split beside this one",
    )


def options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `VocabularyOptions` from parsed flags; `args.vocab_file` must exist.

    Raises:
        SourceError, VocabularyError: a file that is missing or not a vocabulary, or flags that exclude each other.
    """
    # Imported here, so that `--help` does not wait for Beam.
    from pipelines.vocabulary.vocabulary_options import VocabularyOptions

    if args.vocab_file and args.vocab_size:
        raise SourceError("--vocab_size and --vocab_file exclude each other; learn a vocabulary or bring one")
    size = args.vocab_size or DEFAULT_VOCAB_SIZE
    return dataclasses.asdict(
        VocabularyOptions(
            do_lower_case=lower_casing(args.do_lower_case, args.vocab_file, args.language),
            vocab_size=0 if args.vocab_file else -(-size // args.vocab_multiple_of) * args.vocab_multiple_of,
            vocab_file=_checked("--vocab_file", args.vocab_file),
            num_unused=args.num_unused,
            alphabet_limit=args.alphabet_limit,
            min_count=args.min_count,
            compare_vocab=_checked("--compare_vocab", args.compare_vocab),
            language_sampling_exponent=args.language_sampling_exponent,
            character_rules=CHARACTER_RULES,
        )
    )


def lower_casing(do_lower_case: bool | None, vocab_file: str | None, language: str) -> bool:
    """Return whether text is uncased: as --do_lower_case says, else --vocab_file, else --language.

    A vocabulary without capitals is taken for an uncased one, unless the language has none to show and it holds marks
    that uncased text loses.

    Raises:
        SourceError, VocabularyError: the vocabulary is missing or invalid.
    """
    if do_lower_case is not None:
        return do_lower_case
    by_language = default_do_lower_case(language)
    if not vocab_file:
        return by_language
    vocabulary = _read("--vocab_file", vocab_file)
    return not (vocabulary.has_capitals() or (not by_language and any(map(loses_mark, vocabulary.tokens))))


def mark_warnings(marks: dict[str, Any] | None) -> list[str]:
    """Return a line where uncased text loses a mark on more than 1 % of its letters.

    Args:
        marks: what `pipelines.build_corpus.total_marks` counted; None for cased text and a corpus of an older version.
    """
    if not marks or marks["lost"] <= _MANY_MARKS * marks["letters"]:
        return []
    before, after = marks["example"]
    example = f" ({before} -> {after})" if before else ""
    loss = "accents are lost" if is_accent(before) else "vowel or voicing marks are lost and words become equal"
    return [
        f"uncased text loses a mark on {marks['lost'] / marks['letters']:.1%} of its letters{example}: {loss}; "
        "--do_lower_case false keeps them, see docs/LANGUAGES.md"
    ]


def _read(flag: str, path: str) -> Vocabulary:
    from pipelines.io.atomic_files import read_bytes
    from pipelines.runner.job_output import absolute

    try:
        return Vocabulary.from_bytes(read_bytes(absolute(path)), path)
    except FileNotFoundError as error:
        raise SourceError(f"{flag} {path} does not exist; check the path") from error
    except IsADirectoryError as error:
        raise SourceError(f"{flag} {path} is a directory; name the vocab.txt in it") from error


def _checked(flag: str, path: str | None) -> str:
    from pipelines.runner.job_output import absolute

    if not path:
        return ""
    _read(flag, path)
    return absolute(path)


def print_summary(vocab: dict[str, Any], path: str, compared: str, alphabet_limit: int) -> list[str]:
    """Print size, place and fit of a vocabulary, and return the warnings among it.

    Args:
        vocab: the "vocab" of `corpus.json`.
        path: of the file.
        compared: file of the vocabulary it was compared with, or "".
        alphabet_limit: the limit it was learned with.
    """
    print(f"  vocabulary  {path}  {vocab['size']:,} tokens")
    words = vocab["learned_from"]
    if words:
        share = words["words_excluded"] / words["words"]
        print(
            f"              learned from {words['distinct_words'] - words['distinct_words_excluded']:,} of "
            f"{words['distinct_words']:,} distinct words; {share:.3%} of the text was left out as rare"
        )
    warnings = alphabet_warnings(vocab, alphabet_limit)
    for warning in warnings:
        print(f"  warning     {warning}", file=sys.stderr)
    measured = {name: Coverage(**counts) for name, counts in vocab["validation"].items()}
    if not measured["vocab"].words:
        print("              the validation split, to measure it on, is empty; see --validation_fraction")
        return warnings
    print(f"              on {measured['vocab'].words:,} validation words: {measured['vocab']}")
    if compared:
        print(f"              beside {compared}: {measured['compare_vocab']}")
    return warnings
