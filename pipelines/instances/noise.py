"""Add typing errors to words, to make a model robust to them: swapped, dropped and doubled letters."""

import dataclasses
import functools

import numpy as np

from beambert.pipelines.instances.instances import TokenizedDocuments, ranges
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION

_MIN_LETTERS = 4
# Makes the sum negative for every word with such a token.
_NOT_LETTERS = -1_000_000
_SPACE = ord(" ")


@dataclasses.dataclass(frozen=True)
class _Spelling:
    """The characters of V tokens, without "##".

    Attributes:
        continues_word: bool [V], True for tokens that start with "##".
        letters: int64 [V], number of letters; `_NOT_LETTERS` for tokens with other characters, such as special tokens.
        starts: int64 [V], index in `characters` of the start of each token.
        characters: uint32 [C], code points of all tokens, concatenated.
    """

    continues_word: np.ndarray
    letters: np.ndarray
    starts: np.ndarray
    characters: np.ndarray


@functools.lru_cache(maxsize=1)
def _spelling(vocabulary: Vocabulary) -> _Spelling:
    """Return the characters of a vocabulary; cached."""
    spelled = [token.removeprefix(CONTINUATION) for token in vocabulary.tokens]
    lengths = np.array([len(token) for token in spelled], np.int64)
    return _Spelling(
        continues_word=np.array([token.startswith(CONTINUATION) for token in vocabulary.tokens]),
        letters=np.where([token.isalpha() for token in spelled], lengths, _NOT_LETTERS),
        starts=np.cumsum(lengths) - lengths,
        characters=np.frombuffer("".join(spelled).encode("utf-32-le"), np.uint32),
    )


def add_noise(
    documents: TokenizedDocuments, share: float, tokenizer: Tokenizer, rng: np.random.Generator
) -> tuple[TokenizedDocuments, int]:
    """Add one typing error to a random fraction of the words.

    A word is a token and the "##" tokens after it. Every word of at least 4 letters and no other characters gets an
    error with probability `share`. Two neighboring letters are swapped, a letter is dropped, or a letter is doubled,
    each with probability 1/3, but never the first or the last letter. If the letters to swap are equal, the first is
    doubled. The changed word is tokenized again. Words that are or become [UNK] are not changed.

    Args:
        documents: documents of the partition, not modified.
        share: probability of an error, from 0 to 1.
        tokenizer: the tokenizer of `documents`.
        rng: random generator.

    Returns:
        The documents with errors, and the number of words with an error.
    """
    if not len(documents):
        return documents, 0
    spelling = _spelling(tokenizer.vocabulary)
    token_ids, sentence_starts = documents.token_ids, documents.sentence_starts
    starts_word = ~spelling.continues_word[token_ids]
    starts_word[sentence_starts[:-1]] = True
    word_starts = np.flatnonzero(starts_word)  # [W], tokens
    letters = np.add.reduceat(spelling.letters[token_ids], word_starts)
    noisy = np.flatnonzero((letters >= _MIN_LETTERS) & (rng.random(len(letters)) < share))  # [w], words
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

    grown = np.concatenate([[0], np.cumsum(new_lengths - (word_ends - word_starts))])  # by all previous words
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
        characters: uint32 [C], code points of all words, concatenated.
        lengths: int64 [n], length of each word, at least 4.
        rng: random generator.
    """
    kind = rng.integers(3, size=len(lengths))
    inner = np.where(kind == 0, lengths - 3, lengths - 2)  # possible positions, from the second letter on
    position = np.cumsum(lengths) - lengths + 1 + (rng.random(len(lengths)) * inner).astype(np.int64)
    times = np.ones(len(characters), np.int64)

    left, right = characters[position], characters[position + 1]
    swapped = (kind == 0) & (left != right)
    spelled = characters.copy()
    spelled[position[swapped]], spelled[position[swapped] + 1] = right[swapped], left[swapped]
    times[position[kind == 1]] = 0
    times[position[(kind == 2) | ((kind == 0) & (left == right))]] = 2
    # A space after every word, as separator.
    spelled = np.insert(
        np.repeat(spelled, times), np.cumsum(np.add.reduceat(times, np.cumsum(lengths) - lengths)), _SPACE
    )
    return spelled.astype("<u4").tobytes().decode("utf-32-le").split(" ")[:-1]
