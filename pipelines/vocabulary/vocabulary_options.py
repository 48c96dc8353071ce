"""The options of a vocabulary, and the sampling factors of languages."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import Meta

from beambert.common.command_line.options import Flag, check, number_type
from beambert.common.command_line.path_flags import ANY_PATH
from beambert.common.typed_json import Fraction, Positive
from beambert.common.word_rules import STRIP_ACCENTS
from beambert.pipelines.errors import SourceError

DEFAULT_VOCAB_SIZE = 30_000
# Byte-pair encoding proposes 1.5 times as many tokens, and has a Unicode code point for each (`learner.merge_pairs`).
MAX_VOCAB_SIZE = 700_000
_VocabularySize = Annotated[int, Meta(ge=1, le=MAX_VOCAB_SIZE)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyOptions:
    """Options for learning or reading a vocabulary; the help of the flags has these descriptions.

    Attributes:
        vocab_file: Existing vocab.txt to use instead of learning a vocabulary.
        vocab_size: Vocabulary size: exact number of tokens in vocab.txt, special tokens included (default: 30000).
        num_unused: Number of reserved tokens [unused0], [unused1], ... within --vocab_size, for domain words that are
            added later without resizing the model; the released vocabularies have 994 (default: 0).
        alphabet_limit: Maximum alphabet size: only the N most frequent characters become tokens, and a word with
            another character becomes [UNK]; increase it for Chinese and Japanese.
        min_count: Minimum frequency of a word to be learned from.
        do_lower_case: Lowercase text (uncased), or not (cased); see docs/reference/languages.md (default: by
            --vocab_file, or else by --language: true except for languages that need the marks, such as Hindi, Thai or
            Vietnamese, unless --strip_accents false keeps them).
        strip_accents: Strip accents, and the vowel signs and tone marks of scripts such as Khmer, Thai or Devanagari;
            auto strips them if text is lowercased, as the released models do (default: as recorded beside --vocab_file,
            else auto).
        tokenize_chinese_chars: Make each CJK ideograph a word; false for text that is segmented into words by spaces
            (default: as recorded beside --vocab_file, else true).
        language_sampling_exponent: Exponent of language sampling: a language with fraction p of the words is sampled in
            proportion to p ** S, in vocabulary and examples; documents must state their language; multilingual BERT
            uses 0.7.
        compare_vocab: Second vocab.txt to measure on the validation split, for comparison.
        character_rules: Unicode version of the word counts; workers with another version fail.

    vocab_size is 0 with vocab_file. The word rules are those of `WordRules`.

    Raises:
        SourceError: a value is invalid, or a vocabulary is to be both learned and read.
    """

    vocab_file: Annotated[str, Flag("vocabulary", type=ANY_PATH, metavar="FILE")] = ""
    vocab_size: Annotated[int, Meta(ge=0, le=MAX_VOCAB_SIZE), Flag("vocabulary", type=number_type(_VocabularySize))]
    num_unused: Annotated[int, Meta(ge=0, le=1_000_000), Flag("vocabulary")] = 0
    alphabet_limit: Annotated[int, Meta(ge=1, le=1_114_112), Flag("vocabulary")] = 1000
    min_count: Annotated[Positive, Flag("vocabulary")] = 1
    do_lower_case: Annotated[bool, Flag("vocabulary", nargs="?", const=True)]
    strip_accents: Annotated[bool | None, Flag("vocabulary", choices=STRIP_ACCENTS)] = None
    tokenize_chinese_chars: Annotated[bool, Flag("vocabulary", default=None)] = True
    language_sampling_exponent: Annotated[Fraction, Flag("vocabulary", metavar="S")] = 1.0
    compare_vocab: Annotated[str, Flag("vocabulary", type=ANY_PATH, metavar="FILE")] = ""
    character_rules: str

    def __post_init__(self) -> None:
        check(self, SourceError)
        if self.vocab_size and self.vocab_file:
            raise SourceError(
                "--vocab_size and --vocab_file conflict; leave out --vocab_file to learn a vocabulary, or --vocab_size "
                "to use an existing one"
            )


def language_factors(words: Mapping[str, int], exponent: float) -> dict[str, float]:
    """Return a sampling factor for each language that increases the share of small languages.

    A language with a share p of the text gets a share proportional to p ** exponent; the total number of words does not
    change. Multilingual BERT was trained with 0.7 (google-research/bert, multilingual.md).

    Args:
        words: running words of each language.
        exponent: 1 keeps the original proportions, 0 gives all languages the same share.
    """
    total = sum(words.values())
    shares = {language: count / total for language, count in sorted(words.items()) if count}
    scale = sum(share**exponent for share in shares.values())
    return {language: share**exponent / scale / share for language, share in shares.items()}


LANGUAGE_REMEDY = (
    "name the language field of JSON Lines or Parquet files with --language_field, or give each language its own "
    "--input and set --input_weights"
)


def require_languages(languages: Iterable[str], exponent: float) -> None:
    """Reject a sampling exponent for a corpus in one language.

    Raises:
        SourceError: exponent is not 1 and all documents are in the same language.
    """
    names = sorted(set(languages))
    if exponent != 1.0 and len(names) == 1:
        raise SourceError(
            f"--language_sampling_exponent {exponent:g} has no effect: all documents are in the language {names[0]}; "
            f"{LANGUAGE_REMEDY}"
        )
