"""The options of a vocabulary, and the sampling of languages."""

import dataclasses
from collections.abc import Iterable, Mapping

from pipelines.sources import SourceError


@dataclasses.dataclass(frozen=True)
class VocabularyOptions:
    """The options by which a vocabulary is learned or read.

    Attributes:
        do_lower_case: whether it is learned from lower-cased text without accents.
        vocab_size: tokens to learn; 0 where vocab_file is given.
        vocab_file: a vocabulary to take over instead, or "".
        num_unused: "[unusedN]" tokens.
        alphabet_limit: characters.
        min_count: words seen fewer times are not learned from.
        compare_vocab: a vocabulary to measure on the validation text too, or "".
        language_sampling_exponent: see `language_factors`; 1 to take languages as they come.
        character_rules: the word counter's version of Unicode; a worker with another Python refuses to take part.
    """

    do_lower_case: bool
    vocab_size: int
    vocab_file: str
    num_unused: int
    alphabet_limit: int
    min_count: int
    compare_vocab: str
    language_sampling_exponent: float
    character_rules: str


def language_factors(words: Mapping[str, int], exponent: float) -> dict[str, float]:
    """Return the factor of each language's word counts, so that small languages are seen more often.

    A language with a share p of the text gets a share proportional to p ** exponent; all together stay as much as they
    are. Multilingual BERT was trained with 0.7 (google-research/bert, multilingual.md).

    Args:
        words: running words of each language.
        exponent: 1 changes nothing, 0 makes all languages equal.
    """
    total = sum(words.values())
    shares = {language: count / total for language, count in sorted(words.items()) if count}
    scale = sum(share**exponent for share in shares.values())
    return {language: share**exponent / scale / share for language, share in shares.items()}


LANGUAGE_REMEDY = (
    "name the field of JSON lines or Parquet that holds the language with --language_field, or give each language an "
    "--input of its own and --input_weights"
)


def require_languages(languages: Iterable[str], exponent: float) -> None:
    """Refuse to balance the languages of a corpus that has one.

    Raises:
        SourceError: exponent is not 1, and all documents are of the same language.
    """
    names = sorted(set(languages))
    if exponent != 1.0 and len(names) == 1:
        raise SourceError(
            f"--language_sampling_exponent {exponent:g} has no effect: every document is of the language {names[0]}; "
            f"{LANGUAGE_REMEDY}"
        )
