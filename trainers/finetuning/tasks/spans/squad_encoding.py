"""Tokenize questions and contexts, and find the tokens of answers.

Follows `read_squad_examples` and `_improve_answer_span` in google-research/bert, run_squad.py, for all questions at
once.

Letters in shapes: C contexts, W words of all of them, P tokens of all of them, Q questions.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from beambert.pipelines.instances.instances import ranges
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.trainers.finetuning.tasks.spans.squad_files import SquadFile

# Separators of the words of a context; the tokenizer has more space characters.
SPACES = " \t\r\n\u202f"
SPACING = re.compile(f"[{SPACES}]+")
# Instead of a token: the question has no answer, or none of its answers is found.
NO_ANSWER, NOT_FOUND = -1, -2


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of contexts, separated by `SPACES`. Offsets are in the joined contexts, each followed by a newline.

    Attributes:
        text: the joined contexts.
        context_starts: int64 [C].
        word_splits: int64 [C + 1]; context i has the words `word_splits[i]:word_splits[i + 1]`.
        starts, ends: int64 [W].
        of_character: int64 [characters], the word of each character; for a space the previous word, or -1.
    """

    text: str
    context_starts: np.ndarray
    word_splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    of_character: np.ndarray

    @classmethod
    def from_contexts(cls, contexts: Sequence[str]) -> "Words":
        """Return the words of contexts."""
        text = "".join(f"{context}\n" for context in contexts)
        characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        spaces = np.isin(characters, [ord(space) for space in SPACES])
        before = np.concatenate([[True], spaces])[: len(spaces)]
        starts = np.flatnonzero(before & ~spaces)
        ends = np.flatnonzero(~before & spaces)
        splits = np.cumsum([0, *(len(context) + 1 for context in contexts)])
        return cls(
            text, splits[:-1], np.searchsorted(starts, splits), starts, ends, np.cumsum(before & ~spaces, dtype=int) - 1
        )


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Tokenized contexts and questions.

    Attributes:
        words: words of the contexts.
        ids, offsets: int32 [P] and [P, 2], token ids and character offsets in the context.
        splits: int64 [C + 1]; context i has the tokens `splits[i]:splits[i + 1]`.
        first_tokens: int64 [W + 1], index of each word's first token, or of the next word's where it has none.
        question_ids, question_splits: int32 token ids of the distinct questions, int64 [distinct questions + 1].
        questions: int64 [Q], index of each question among the distinct questions.
    """

    words: Words
    ids: np.ndarray
    offsets: np.ndarray
    splits: np.ndarray
    first_tokens: np.ndarray
    question_ids: np.ndarray
    question_splits: np.ndarray
    questions: np.ndarray


def encode(file: SquadFile, tokenizer: Tokenizer) -> Encoded:
    """Tokenize the contexts and questions of a file."""
    words = Words.from_contexts(file.contexts)
    ids, splits, offsets = tokenizer.encode_batch_with_offsets(file.contexts)
    characters = offsets[:, 0] + np.repeat(words.context_starts, np.diff(splits))  # [P]
    word_of_token = words.of_character[characters]
    first_tokens = np.searchsorted(word_of_token, np.arange(len(words.starts) + 1))
    distinct: dict[str, int] = {}
    questions = np.array([distinct.setdefault(question.text, len(distinct)) for question in file.questions], np.int64)
    question_ids, question_splits = tokenizer.encode_batch(list(distinct))
    return Encoded(words, ids, offsets, splits, first_tokens, question_ids, question_splits, questions)


def answer_tokens(file: SquadFile, encoded: Encoded, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and last token of each question's first answer that is found in its context.

    Returns:
        int64 [Q] each, indices in the context; NO_ANSWER for both where the question has no answer, NOT_FOUND where
        none of its answers is found.
    """
    # [answers], over all questions.
    owners, contexts, starts, texts = [], [], [], []
    has_words = np.diff(encoded.words.word_splits) > 0  # [C]
    for number, question in enumerate(file.questions):
        for answer in question.answers:
            if answer.start is not None and answer.text.strip() and has_words[question.context]:
                owners.append(number)
                contexts.append(question.context)
                starts.append(answer.start)
                texts.append(answer.text)
    owner, context = np.array(owners, np.int64), np.array(contexts, np.int64)
    is_match, first, last = _match_words(encoded, context, np.array(starts, np.int64), texts)
    first, last = _narrow(encoded, first, last, *tokenizer.encode_batch(texts))
    firsts = np.array([NOT_FOUND if question.answers else NO_ANSWER for question in file.questions], np.int64)
    lasts = firsts.copy()
    usable = np.flatnonzero(is_match & (first <= last))[::-1]  # Backwards, so that a question's first answer stays.
    firsts[owner[usable]] = (first - encoded.splits[context])[usable]
    lasts[owner[usable]] = (last - encoded.splits[context])[usable]
    return firsts, lasts


def _match_words(
    encoded: Encoded, context: np.ndarray, starts: np.ndarray, texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return whether the words at the offsets of the answers contain them, and the first and last token of the words.

    Args:
        context, starts: int64 [answers].
        texts: the answers.

    Returns:
        bool [answers], and twice int64 [answers], indices among the tokens of all contexts.
    """
    words = encoded.words
    offsets = words.context_starts[context] + starts
    lengths = np.array([len(text) for text in texts], np.int64)
    lowest, highest = words.word_splits[context], words.word_splits[context + 1] - 1
    first_word, last_word = (words.of_character[at] for at in (offsets, offsets + lengths - 1))
    touched = last_word >= lowest
    # A space before the first word has the index -1 in the released code, which is its last word.
    first_word = np.where(first_word < lowest, highest, first_word)
    last_word = np.maximum(last_word, lowest)
    is_match = np.zeros(len(texts), bool)
    spans = zip(words.starts[first_word].tolist(), words.ends[last_word].tolist(), texts, strict=True)
    for number, (start, end, text) in enumerate(spans):
        # The released code compares with words that only `SPACES` separate, and so skips answers with other white
        # space, such as a no-break space within a number.
        is_match[number] = " ".join(text.split()) in " ".join(words.text[start:end].split())
    is_match &= touched & (first_word <= last_word)
    return is_match, encoded.first_tokens[first_word], encoded.first_tokens[last_word + 1] - 1


def _narrow(
    encoded: Encoded, first: np.ndarray, last: np.ndarray, answer_ids: np.ndarray, answer_splits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Narrow spans to the first tokens in them that equal the answer's tokens; other spans stay unchanged."""
    size = np.diff(answer_splits)
    # [candidates]: every possible first token of the answer.
    candidates = np.where(size > 0, np.maximum(last - first + 2 - size, 0), 0)
    answer = np.repeat(np.arange(len(first)), candidates)
    start = ranges(first, candidates)
    offset = 0
    while True:
        open_ = size[answer] > offset
        same = ~open_
        same[open_] = encoded.ids[start[open_] + offset] == answer_ids[answer_splits[answer[open_]] + offset]
        answer, start = answer[same], start[same]
        offset += 1
        if not open_.any():
            break
    answer, where = np.unique(answer, return_index=True)  # The first candidate of each.
    first, last = first.copy(), last.copy()
    first[answer] = start[where]
    last[answer] = start[where] + size[answer] - 1
    return first, last
