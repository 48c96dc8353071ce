"""Count the characters for which another tokenizer and `Tokenizer` return different ids.

The comparison is exact for a tokenizer that replaces, removes and separates characters one by one, as `Tokenizer` does
with two exceptions: a capital sigma, and the combining marks that NFD sorts. Both exceptions are compared too.
"""

import itertools
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np

from beambert.common.word_rules import WordRules
from beambert.tokenizer.in_graph_tables import CODE_POINTS, REMOVED, character_rules
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION

# Each context is a word of its own: alone, doubled, inside a word, at its start, at its end.
CONTEXTS = "{0} {0}{0} a{0}a {0}a a{0}"
SURROGATES = range(0xD800, 0xE000)
SCALAR_VALUES = CODE_POINTS - len(SURROGATES)
_TEXTS_A_BATCH = 1 << 15

Item = TypeVar("Item")
# A function from N texts to their token ids: int32 [T] and row splits int64 [N + 1], as `Tokenizer.encode_batch`.
Encode = Callable[[list[str]], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class TokenizerDifferences:
    """Where another tokenizer and `Tokenizer` differ.

    Attributes:
        code_points: Code points with other words in one of `CONTEXTS`, ascending.
        num_assigned: How many of them are assigned characters in Python's version of Unicode.
        in_vocabulary: Those of them that occur in a token of the vocabulary.
        num_mark_pairs: Number of compared pairs of combining marks that NFD sorts.
        mark_pairs: Pairs with other words, although neither character is in code_points.
        tokens: Tokens of the vocabulary whose own text has other ids, although it has none of code_points.
    """

    code_points: tuple[int, ...]
    num_assigned: int
    in_vocabulary: tuple[int, ...]
    num_mark_pairs: int
    mark_pairs: tuple[tuple[int, int], ...]
    tokens: tuple[str, ...]


def find_differences(
    vocabulary: Vocabulary, rules: WordRules, encoder: Callable[[Vocabulary], Encode]
) -> TokenizerDifferences:
    """Compare another tokenizer with `Tokenizer` on all code points, on pairs of marks and on the vocabulary's tokens.

    Words are compared, not only ids: the tokenizers get a vocabulary of all characters of the vocabulary's tokens. If
    two words are equal there, they are equal to every tokenizer with this vocabulary. Words with other characters are
    [UNK] in both.

    Args:
        vocabulary: The vocabulary.
        rules: Rules that split text into words.
        encoder: Function from a vocabulary to the other tokenizer.

    Returns:
        The differences.
    """
    characters = character_vocabulary(vocabulary)
    exact, other = Tokenizer(characters, **asdict(rules)).encode_batch, encoder(characters)
    codes = [code for code in range(CODE_POINTS) if code not in SURROGATES]
    different = _different(map(chr, codes), CONTEXTS.format, exact, other)
    code_points = {ord(character) for character in different}
    pairs = [pair for pair in _mark_pairs(rules) if not code_points.intersection(pair)]
    different_pairs = _different(pairs, lambda pair: f"a{chr(pair[0])}{chr(pair[1])}a", exact, other)
    exact, other = Tokenizer(vocabulary, **asdict(rules)).encode_batch, encoder(vocabulary)
    tokens = [token for token in vocabulary.tokens if not code_points.intersection(map(ord, token))]
    used = {ord(character) for token in vocabulary.tokens for character in token}
    return TokenizerDifferences(
        code_points=tuple(sorted(code_points)),
        num_assigned=sum(unicodedata.category(chr(code)) not in ("Cn", "Co") for code in code_points),
        in_vocabulary=tuple(sorted(code_points & used)),
        num_mark_pairs=len(pairs),
        mark_pairs=tuple(different_pairs),
        tokens=tuple(_different(tokens, str, exact, other)),
    )


def character_vocabulary(vocabulary: Vocabulary) -> Vocabulary:
    """Return the vocabulary of all characters in a vocabulary's tokens, at the start of a word and inside it."""
    used = {"a", *(character for token in vocabulary.tokens for character in token)}
    characters = sorted(character for character in used if any(split_words(character, WordRules(do_lower_case=False))))
    return Vocabulary((*SPECIAL_TOKENS, *characters, *(CONTINUATION + character for character in characters)))


def _mark_pairs(rules: WordRules) -> list[tuple[int, int]]:
    """Return all pairs of a mark that NFD sorts, or a character composed with one, and such a mark."""
    tables = character_rules(rules)
    marks = [code for code, combining_class in tables.combining_classes.items() if combining_class != REMOVED]
    return [(first, second) for first in (*marks, *tables.composed) for second in marks]


def _different(items: Iterable[Item], text_of: Callable[[Item], str], exact: Encode, other: Encode) -> Iterator[Item]:
    """Yield the items whose texts have different ids."""
    remaining = iter(items)
    while batch := list(itertools.islice(remaining, _TEXTS_A_BATCH)):
        texts = [text_of(item) for item in batch]
        (ids, splits), (other_ids, other_splits) = exact(texts), other(texts)
        if np.array_equal(ids, other_ids) and np.array_equal(splits, other_splits):
            continue
        for number, item in enumerate(batch):
            tokens = ids[splits[number] : splits[number + 1]]
            if not np.array_equal(tokens, other_ids[other_splits[number] : other_splits[number + 1]]):
                yield item
