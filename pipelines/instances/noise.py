"""Typing errors, which make a model robust to them: swapped, dropped and doubled letters inside words."""

import dataclasses
import functools

import numpy as np

from pipelines.instances.instances import TokenizedDocuments
from pipelines.instances.ragged import ranges
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary
from tokenizer.wordpiece import CONTINUATION

_SHORTEST = 4
# No word has as many letters.
_NO_WORD = -1_000_000
_SPACE = ord(" ")


@dataclasses.dataclass(frozen=True)
class _Spelling:
    """The spelling of a vocabulary's V tokens, without the mark of continuation.

    Attributes:
        continues_word: bool [V].
        letters: int64 [V], number of letters; for a token with anything else, specials too, so little that no word
            with it has a positive sum.
        starts: int64 [V], where each token starts in `characters`.
        characters: uint32, code points.
    """

    continues_word: np.ndarray
    letters: np.ndarray
    starts: np.ndarray
    characters: np.ndarray


@functools.lru_cache(maxsize=1)
def _spelling(vocabulary: Vocabulary) -> _Spelling:
    spelled = [token.removeprefix(CONTINUATION) for token in vocabulary.tokens]
    lengths = np.array([len(token) for token in spelled], np.int64)
    return _Spelling(
        continues_word=np.array([token.startswith(CONTINUATION) for token in vocabulary.tokens]),
        letters=np.where([token.isalpha() for token in spelled], lengths, _NO_WORD),
        starts=np.cumsum(lengths) - lengths,
        characters=np.frombuffer("".join(spelled).encode("utf-32-le"), np.uint32),
    )


def add_noise(
    documents: TokenizedDocuments, share: float, tokenizer: Tokenizer, rng: np.random.Generator
) -> tuple[TokenizedDocuments, int]:
    """Put one typing error into a share of the words.

    A word is a token and those that continue it. Each word of at least 4 letters, and nothing but letters, gets an
    error with probability `share`: two neighboring letters swapped, a letter dropped, or a letter doubled, each with
    probability 1/3; never the first or the last letter. (Where the two to be swapped are equal, the first is doubled.)
    The word as its tokens spell it, changed, is then split into tokens again. A word is left alone where the
    vocabulary cannot spell it, before or after.

    Args:
        documents: the partition; not changed.
        share: 0 to 1.
        tokenizer: the one that made `documents`.
        rng: the only source of chance.

    Returns:
        The documents with their errors, and the number of words that have one.
    """
    if not len(documents):
        return documents, 0
    spelling = _spelling(tokenizer.vocabulary)
    token_ids, sentence_starts = documents.token_ids, documents.sentence_starts
    starts_word = ~spelling.continues_word[token_ids]
    starts_word[sentence_starts[:-1]] = True
    word_starts = np.flatnonzero(starts_word)  # [W], tokens
    letters = np.add.reduceat(spelling.letters[token_ids], word_starts)
    noisy = np.flatnonzero((letters >= _SHORTEST) & (rng.random(len(letters)) < share))  # [w], words
    word_ends = np.append(word_starts, len(token_ids))[noisy + 1]
    word_starts, letters = word_starts[noisy], letters[noisy]

    tokens = token_ids[ranges(word_starts, word_ends - word_starts)]
    characters = spelling.characters[ranges(spelling.starts[tokens], spelling.letters[tokens])]
    new_ids, new_starts = tokenizer.encode_batch(_misspelled(characters, letters, rng))
    new_lengths = np.diff(new_starts)
    unspellable = np.concatenate([[0], np.cumsum(new_ids == tokenizer.vocabulary.unk_id)])
    kept = unspellable[new_starts[1:]] == unspellable[new_starts[:-1]]
    new_ids = new_ids[np.repeat(kept, new_lengths)]
    word_starts, word_ends, new_lengths = word_starts[kept], word_ends[kept], new_lengths[kept]

    grown = np.concatenate([[0], np.cumsum(new_lengths - (word_ends - word_starts))])  # by all words before
    is_new = np.zeros(len(token_ids) + grown[-1], bool)
    is_new[ranges(word_starts + grown[:-1], new_lengths)] = True
    stays = np.ones(len(token_ids), bool)
    stays[ranges(word_starts, word_ends - word_starts)] = False
    noisy_ids = np.empty(len(is_new), np.int32)
    noisy_ids[is_new] = new_ids
    noisy_ids[~is_new] = token_ids[stays]
    noisy_sentences = sentence_starts + grown[np.searchsorted(word_starts, sentence_starts)]
    return dataclasses.replace(documents, token_ids=noisy_ids, sentence_starts=noisy_sentences), len(word_starts)


def _misspelled(characters: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> list[str]:
    """Return words with one typing error each.

    Args:
        characters: uint32, the code points of all words, one word after the other.
        lengths: int64 [n], of each word, at least 4.
        rng: the only source of chance.
    """
    kind = rng.integers(3, size=len(lengths))
    inner = np.where(kind == 0, lengths - 3, lengths - 2)  # places where the error may be, from the second letter on
    place = np.cumsum(lengths) - lengths + 1 + (rng.random(len(lengths)) * inner).astype(np.int64)
    times = np.ones(len(characters), np.int64)

    left, right = characters[place], characters[place + 1]
    swapped = (kind == 0) & (left != right)
    spelled = characters.copy()
    spelled[place[swapped]], spelled[place[swapped] + 1] = right[swapped], left[swapped]
    times[place[kind == 1]] = 0
    times[place[(kind == 2) | ((kind == 0) & (left == right))]] = 2
    # A space after every word, to split them at.
    spelled = np.insert(
        np.repeat(spelled, times), np.cumsum(np.add.reduceat(times, np.cumsum(lengths) - lengths)), _SPACE
    )
    return spelled.astype("<u4").tobytes().decode("utf-32-le").split(" ")[:-1]
