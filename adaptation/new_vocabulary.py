"""Vocabularies with new words, and the former embedding rows of each of their tokens.

This file imports neither Beam nor TensorFlow.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from beambert.common.tokenizer_files import AddedToken
from beambert.common.word_rules import WordRules
from beambert.tokenizer.new_words import NewWord, select_words, split_token
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary, VocabularyError
from beambert.tokenizer.wordpiece import CONTINUATION


@dataclasses.dataclass(frozen=True)
class NewVocabulary:
    """A vocabulary for a model that has another one.

    Attributes:
        vocabulary: the new vocabulary.
        sources: ids in the former vocabulary whose rows initialize each token: one id is copied, several are averaged;
            empty for a token that the former vocabulary cannot spell.
    """

    vocabulary: Vocabulary
    sources: list[tuple[int, ...]]


def choose_words(
    word_counts: dict[str, int], vocabulary: Vocabulary, num_tokens: int, min_count: int, fill_unused: bool
) -> list[NewWord]:
    """Return the words to add, exactly `num_tokens` of them.

    Args:
        word_counts: occurrences of each word.
        vocabulary: the former vocabulary.
        num_tokens: number of words to add.
        min_count: minimum occurrences of a word to add.
        fill_unused: whether the words replace "[unusedN]" tokens.

    Raises:
        VocabularyError: there are fewer such words, or fewer "[unusedN]" tokens.
    """
    slots = len(vocabulary.unused_ids())
    if fill_unused and num_tokens > slots:
        remedy = f"lower --num_tokens to {slots} or less, or omit --fill_unused" if slots else "omit --fill_unused"
        raise VocabularyError(
            f"invalid --num_tokens {num_tokens}: {vocabulary.origin} has {slots} [unusedN] tokens; {remedy}"
        )
    words = select_words(word_counts, vocabulary.tokens, num_tokens, min_count)
    if len(words) < num_tokens:
        lower = f"lower --num_tokens to {len(words)} or less, " if words else ""
        raise VocabularyError(
            f"invalid --num_tokens {num_tokens}: the text has {len(words)} words that occur at least {min_count} times "
            f"and that the vocabulary splits; {lower}lower --min_count, or add text"
        )
    return words


def with_words(vocabulary: Vocabulary, words: Sequence[NewWord], fill_unused: bool) -> NewVocabulary:
    """Return a vocabulary with new words at its end, or in place of its first "[unusedN]" tokens.

    Args:
        vocabulary: the former vocabulary.
        words: the words, at most as many as "[unusedN]" tokens if they replace them.
        fill_unused: whether to replace "[unusedN]" tokens.
    """
    tokens = list(vocabulary.tokens)
    sources: list[tuple[int, ...]] = [(number,) for number in range(len(tokens))]
    former = [tuple(vocabulary.ids[token] for token in word.former_tokens) for word in words]
    # The row of [UNK], which stands for every unknown word, says nothing about this one.
    former = [() if ids == (vocabulary.unk_id,) else ids for ids in former]
    if fill_unused:
        for slot, word, ids in zip(vocabulary.unused_ids(), words, former, strict=False):
            tokens[slot], sources[slot] = word.word, ids
    else:
        tokens += [word.word for word in words]
        sources += former
    return NewVocabulary(Vocabulary(tuple(tokens), added_tokens=vocabulary.added_tokens), sources)


def with_added_tokens(
    new: NewVocabulary, former: Vocabulary, tokens: Sequence[AddedToken], rules: WordRules
) -> NewVocabulary:
    """Return a new vocabulary in which tokens are kept whole; those that it lacks are at its end.

    Args:
        new: the new vocabulary.
        former: vocabulary of the model.
        tokens: the tokens. A token of the former vocabulary keeps its row. Another token gets the mean of the rows of
            the former tokens of its text.
        rules: word rules of the former vocabulary.
    """
    lacking = [token for token in dict.fromkeys(token.content for token in tokens) if token not in new.vocabulary.ids]
    ids, row_splits = Tokenizer(former, **dataclasses.asdict(rules)).encode_batch(lacking)
    pieces = dict(zip(lacking, np.split(ids, row_splits[1:-1]), strict=False))
    sources = [
        (former.ids[token],) if token in former.ids else tuple(pieces[token][pieces[token] != former.unk_id].tolist())
        for token in lacking
    ]
    vocabulary = dataclasses.replace(new.vocabulary, tokens=(*new.vocabulary.tokens, *lacking))
    return NewVocabulary(vocabulary.with_added_tokens(tokens, "--added_tokens"), [*new.sources, *sources])


def replaced(former: Vocabulary, vocabulary: Vocabulary, rules: WordRules) -> NewVocabulary:
    """Return another vocabulary in place of the former one.

    Args:
        former: vocabulary of the model.
        vocabulary: the new vocabulary. A token of both keeps its row. Another token gets the mean of the rows of the
            former tokens that spell it. Added tokens of both are kept whole.
        rules: word rules of the former vocabulary. If they lower-case text, "The" is spelled as "the".
    """
    special = set(vocabulary.special_ids().tolist())
    sources: list[tuple[int, ...]] = []
    for number, token in enumerate(vocabulary.tokens):
        if token in former.ids:
            sources.append((former.ids[token],))
        elif number in special:
            sources.append(())
        else:
            sources.append(tuple(former.ids[piece] for piece in _spelled(token, former, rules)))
    added = [token for token in former.added_tokens if token.content in vocabulary.ids]
    return NewVocabulary(vocabulary.with_added_tokens(added, former.origin), sources)


def _spelled(token: str, former: Vocabulary, rules: WordRules) -> list[str]:
    text = token.removeprefix(CONTINUATION)
    words = split_words(text, rules)
    return split_token(token.removesuffix(text) + words[0], former.ids) if len(words) == 1 else []
