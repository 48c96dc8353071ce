"""Typing errors, so that a model learns to bear them: swapped, dropped and doubled letters inside words."""

import dataclasses
import functools

import numpy as np

from pipelines.instances import TokenizedDocuments
from pipelines.ragged import ranges
from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary
from tokenizer.wordpiece import CONTINUATION

_SHORTEST = 4
_SPACE = ord(" ")


@dataclasses.dataclass(frozen=True)
class _Spelling:
    """How the V pieces of a vocabulary are spelt, without the mark of continuation.

    Attributes:
        continues_word: bool [V].
        is_letters: bool [V], letters and nothing else; False for special pieces.
        lengths: int64 [V], in characters.
        starts: int64 [V], where each piece starts in `characters`.
        characters: uint32, code points.
    """

    continues_word: np.ndarray
    is_letters: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray
    characters: np.ndarray


@functools.lru_cache(maxsize=1)
def _spelling(vocabulary: Vocabulary) -> _Spelling:
    spelt = [piece.removeprefix(CONTINUATION) for piece in vocabulary.pieces]
    lengths = np.array([len(piece) for piece in spelt], np.int64)
    return _Spelling(
        continues_word=np.array([piece.startswith(CONTINUATION) for piece in vocabulary.pieces]),
        is_letters=np.array([piece.isalpha() for piece in spelt]),
        lengths=lengths,
        starts=np.cumsum(lengths) - lengths,
        characters=np.frombuffer("".join(spelt).encode("utf-32-le"), np.uint32),
    )


def add_noise(
    documents: TokenizedDocuments, share: float, tokenizer: Tokenizer, rng: np.random.Generator
) -> tuple[TokenizedDocuments, int]:
    """Puts one typing error into some of the words.

    A word is a piece and those that continue it. Each word of at least 4 letters, and nothing but letters, gets an
    error with probability `share`: two neighbouring letters swapped, a letter dropped, or a letter doubled, each with
    probability 1/3; never the first or the last letter. (Where the two to be swapped are equal, the first is doubled.)
    The word as its pieces spell it, changed, is then split into pieces again. A word is left alone where the
    vocabulary cannot spell it, before or after.

    Args:
        documents: the bucket; not changed.
        share: 0 to 1.
        tokenizer: the one that made `documents`.
        rng: the only source of chance.

    Returns:
        The documents with their errors, and the number of words that have one.
    """
    spelling = _spelling(tokenizer.vocabulary)
    token_ids = documents.token_ids
    starts_word = ~spelling.continues_word[token_ids]
    starts_word[documents.sentence_starts[:-1]] = True
    word_starts = np.flatnonzero(starts_word)  # [W], tokens
    word_pieces = np.diff(np.append(word_starts, len(token_ids)))  # [W]
    if not len(word_starts):
        return documents, 0
    letters = np.add.reduceat(spelling.lengths[token_ids], word_starts)
    only_letters = np.logical_and.reduceat(spelling.is_letters[token_ids], word_starts)
    noisy = np.flatnonzero(only_letters & (letters >= _SHORTEST) & (rng.random(len(letters)) < share))

    pieces = token_ids[ranges(word_starts[noisy], word_pieces[noisy])]
    characters = spelling.characters[ranges(spelling.starts[pieces], spelling.lengths[pieces])]
    words = _misspelt(characters, letters[noisy], rng)
    new_ids, new_starts = tokenizer.encode_batch(words)
    unspellable = np.concatenate([[0], np.cumsum(new_ids == tokenizer.vocabulary.unk_id)])
    kept = unspellable[new_starts[1:]] == unspellable[new_starts[:-1]]
    noisy = noisy[kept]

    # Every word is a run of the old tokens or of the new ones behind them.
    run_starts, run_lengths = word_starts.copy(), word_pieces.copy()
    run_starts[noisy] = len(token_ids) + new_starts[:-1][kept]
    run_lengths[noisy] = np.diff(new_starts)[kept]
    ends = np.concatenate([[0], np.cumsum(run_lengths)])
    noised = dataclasses.replace(
        documents,
        token_ids=np.concatenate([token_ids, new_ids])[ranges(run_starts, run_lengths)],
        sentence_starts=ends[np.searchsorted(word_starts, documents.sentence_starts)],
    )
    return noised, len(noisy)


def _misspelt(characters: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> list[str]:
    """Words with one typing error each.

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
    spelt = characters.copy()
    spelt[place[swapped]], spelt[place[swapped] + 1] = right[swapped], left[swapped]
    times[place[kind == 1]] = 0
    times[place[(kind == 2) | ((kind == 0) & (left == right))]] = 2
    # A space behind every word, to split them at.
    spelt = np.insert(np.repeat(spelt, times), np.cumsum(np.add.reduceat(times, np.cumsum(lengths) - lengths)), _SPACE)
    return spelt.astype("<u4").tobytes().decode("utf-32-le").split(" ")[:-1]
