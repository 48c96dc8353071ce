"""The options of a vocabulary, and the sampling factors of languages."""

import dataclasses
from collections.abc import Iterable, Mapping

from beambert.common.typed_json import Count, NonNegative
from beambert.pipelines.errors import SourceError


@dataclasses.dataclass(frozen=True)
class VocabularyOptions:
    """Options for learning or reading a vocabulary.

    Attributes:
        do_lower_case: Whether to lower-case text.
        vocab_size: Number of tokens to learn; 0 with vocab_file.
        vocab_file: Vocabulary to use instead of learning one, or "".
        num_unused: Number of "[unusedN]" tokens.
        alphabet_limit: Maximum number of characters in the alphabet.
        min_count: Minimum occurrences of a word to learn from.
        compare_vocab: Vocabulary to compare coverage with, or "".
        language_sampling_exponent: Exponent of `language_factors`; 1 keeps the original proportions.
        character_rules: Unicode version of the word counts; workers with another version fail.
        strip_accents, tokenize_chinese_chars: As in `WordRules`.
    """

    do_lower_case: bool
    vocab_size: Count
    vocab_file: str
    num_unused: Count
    alphabet_limit: Count
    min_count: Count
    compare_vocab: str
    language_sampling_exponent: NonNegative
    character_rules: str
    strip_accents: bool | None = dataclasses.field(default=None, kw_only=True)
    tokenize_chinese_chars: bool = dataclasses.field(default=True, kw_only=True)


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
