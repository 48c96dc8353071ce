"""Questions and contexts as rows: `[CLS] question [SEP] window of the context [SEP]`, windows sliding over the context.

Follows `read_squad_examples` and `convert_examples_to_features` in google-research/bert, run_squad.py; the same rows,
made for all questions at once.

Letters in shapes: C contexts, W words of all of them, P pieces of all of them, Q questions, N rows, T pieces of all
rows together.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from pipelines.ragged import ranges
from tokenizer.normalization import split_words
from tokenizer.tokenizer import Tokenizer
from tokenizer.wordpiece import CONTINUATION
from trainers.errors import TaskDataError
from trainers.finetuning.contract import Rows
from trainers.finetuning.squad_files import SquadFile

# What stands between the words of a context; the tokenizer knows more kinds of space.
SPACES = " \t\r\n\u202f"
SPACING = re.compile(f"[{SPACES}]+")
_CHUNK = 16384  # Rows that are laid out at a time.


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of contexts, as `SPACES` set them apart; places are in the contexts joined, a newline after each.

    Attributes:
        text: the contexts joined.
        context_starts: int64 [C].
        word_splits: int64 [C + 1]; context i has the words `word_splits[i]:word_splits[i + 1]`.
        starts, ends: int64 [W].
        of_character: int64 [characters], the word of each; of a space the word before it, -1 if there is none.
    """

    text: str
    context_starts: np.ndarray
    word_splits: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    of_character: np.ndarray

    @classmethod
    def of(cls, contexts: Sequence[str]) -> "Words":
        """Finds the words of contexts."""
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
class _Encoded:
    """Contexts and questions as pieces.

    Attributes:
        words: of the contexts.
        ids, offsets: int32 [P] and [P, 2], as the tokenizer gives them; offsets count in the context.
        splits: int64 [C + 1].
        first_pieces: int64 [W + 1], place of each word's first piece, or of the next word's if it has none.
        question_ids, question_splits: int32, int64 [distinct questions + 1].
        questions: int64 [Q], which of the distinct ones.
    """

    words: Words
    ids: np.ndarray
    offsets: np.ndarray
    splits: np.ndarray
    first_pieces: np.ndarray
    question_ids: np.ndarray
    question_splits: np.ndarray
    questions: np.ndarray


def window_rows(
    file: SquadFile,
    tokenizer: Tokenizer,
    max_seq_length: int,
    *,
    doc_stride: int = 128,
    max_query_length: int = 64,
    training: bool,
) -> Rows:
    """Makes the rows of a file, window by window, question by question.

    The targets are those of the first answer; (0, 0), the place of [CLS], where the window does not hold it whole or
    there is none. An answer is widened to whole words, then narrowed to the first pieces in them that are the pieces
    of the answer itself, if there are such (`_improve_answer_span`).

    In training, questions are skipped whose answer does not stand in the words that its place touches, as in the
    released code; and those whose answer has no pieces, which the released code trains to end before it starts. In
    evaluation no question is skipped: the first answer that can be found is the target, or (0, 0).

    Args:
        file: as it was read for the same purpose.
        tokenizer: without `never_split`, which the released code does not have.
        max_seq_length: longest row.
        doc_stride: pieces between the starts of two windows; fewer where a window holds fewer.
        max_query_length: pieces of a question that are read; longer ones count as truncated.
        training: whether questions are skipped; what is read to get back from rows to text is left out then.

    Returns:
        Rows. Its extras, in evaluation:
            examples int32 [N], the number of the row's question;
            befores int32 [N], pieces before the window's part of the context;
            window_starts int32 [N], which piece of its context the window starts with;
            max_context bool [T], whether no other window shows as much around the piece (`_check_is_max_context`);
            piece_splits int64 [C + 1], context i has the pieces `piece_splits[i]:piece_splits[i + 1]`;
            piece_offsets int32 [P, 2], their characters in the context;
            piece_places int32 [P, 2], their characters in the words of `tokenizer.normalization.split_words`, joined by
            a space; of [UNK] those of the whole word;
            unknown bool [P], whether a piece is [UNK];
            do_lower_case bool [], how these words were made.

    Raises:
        TaskDataError: max_seq_length leaves no room for a context beside a question.
    """
    encoded = _encode(file, tokenizer)
    context_of = np.array([question.context for question in file.questions], np.int64)  # [Q]
    firsts, lasts = _answer_pieces(file, encoded, tokenizer)  # [Q] each
    kept = np.arange(len(file.questions))
    if training:
        kept = np.flatnonzero(firsts != _NOT_FOUND)
    query_lengths = np.diff(encoded.question_splits)[encoded.questions]  # [Q]
    truncated = int((query_lengths[kept] > max_query_length).sum())
    query_lengths = np.minimum(query_lengths, max_query_length)
    room = max_seq_length - query_lengths - 3
    cramped = kept[room[kept] < 1]
    if len(cramped):
        raise TaskDataError(
            f"{file.where(cramped[0])} has {query_lengths[cramped[0]]} pieces, which leaves no room for its context in "
            f"a --max_seq_length of {max_seq_length}; raise it or lower --max_query_length ({max_query_length})"
        )

    # [N] each, row by row.
    sizes = np.diff(encoded.splits)[context_of]  # [Q]
    strides = np.minimum(room, doc_stride)
    counts = np.where(sizes > 0, 1 - np.maximum(sizes - room, 0) // -strides, 0)[kept]  # Rounded up.
    example = np.repeat(kept, counts)
    ordinal = ranges(np.zeros_like(counts), counts)
    start = ordinal * strides[example]
    length = np.minimum(sizes[example] - start, room[example])
    before = query_lengths[example] + 2
    row_splits = np.concatenate([[0], np.cumsum(before + length + 1)])

    # Targets.
    first, last = firsts[example] - start, lasts[example] - start
    inside = (firsts[example] >= 0) & (first >= 0) & (last < length)
    targets = {}
    if file.labelled:
        targets = {
            name: np.where(inside, place + before, 0).astype(np.int32)
            for name, place in (("start_positions", first), ("end_positions", last))
        }

    query_starts = encoded.question_splits[encoded.questions[example]]
    doc_starts = encoded.splits[context_of[example]] + start
    ids, segment_ids = _lay_out(encoded, tokenizer, row_splits, query_starts, before, doc_starts, length)
    extras = {}
    if not training:
        extras = {
            "examples": example.astype(np.int32),
            "befores": before.astype(np.int32),
            "window_starts": start.astype(np.int32),
            "max_context": _max_context(sizes, example, ordinal, start, length, before, row_splits),
            "piece_splits": encoded.splits,
            "piece_offsets": encoded.offsets,
            "piece_places": _places_in_normal_text(file.contexts, encoded, tokenizer),
            "unknown": encoded.ids == tokenizer.vocabulary.unk_id,
            "do_lower_case": np.array(tokenizer.do_lower_case),
        }
    skipped = len(file.questions) - len(kept)
    return Rows(ids, segment_ids, row_splits, targets, truncated=truncated, skipped=skipped, extras=extras)


def _encode(file: SquadFile, tokenizer: Tokenizer) -> _Encoded:
    words = Words.of(file.contexts)
    ids, splits, offsets = tokenizer.encode_batch_with_offsets(file.contexts)
    characters = offsets[:, 0] + np.repeat(words.context_starts, np.diff(splits))  # [P]
    word_of_piece = words.of_character[characters]
    first_pieces = np.searchsorted(word_of_piece, np.arange(len(words.starts) + 1))
    distinct: dict[str, int] = {}
    questions = np.array([distinct.setdefault(question.text, len(distinct)) for question in file.questions], np.int64)
    question_ids, question_splits = tokenizer.encode_batch(list(distinct))
    return _Encoded(words, ids, offsets, splits, first_pieces, question_ids, question_splits, questions)


_NO_ANSWER, _NOT_FOUND = -1, -2


def _answer_pieces(file: SquadFile, encoded: _Encoded, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """First and last piece of each question's first answer that can be found.

    Returns:
        int64 [Q] each, counted in the context; _NO_ANSWER for both where the question has none, _NOT_FOUND where none
        of its answers is found.
    """
    # [answers] of all questions.
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
    found, first, last = _found_in_words(encoded, context, np.array(starts, np.int64), texts)
    first, last = _improved(encoded, first, last, *tokenizer.encode_batch(texts))
    firsts = np.array([_NOT_FOUND if question.answers else _NO_ANSWER for question in file.questions], np.int64)
    lasts = firsts.copy()
    usable = np.flatnonzero(found & (first <= last))[::-1]  # Backwards, so that a question's first answer stays.
    firsts[owner[usable]] = (first - encoded.splits[context])[usable]
    lasts[owner[usable]] = (last - encoded.splits[context])[usable]
    return firsts, lasts


def _found_in_words(
    encoded: _Encoded, context: np.ndarray, starts: np.ndarray, texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether answers stand in the words that their places touch; and the first and last piece of these words.

    Args:
        context, starts: int64 [answers].
        texts: the answers.

    Returns:
        bool [answers] and int64 [answers] twice, among the pieces of all contexts.
    """
    words = encoded.words
    place = words.context_starts[context] + starts
    lengths = np.array([len(text) for text in texts], np.int64)
    lowest, highest = words.word_splits[context], words.word_splits[context + 1] - 1
    first_word, last_word = (words.of_character[at] for at in (place, place + lengths - 1))
    touched = last_word >= lowest
    # A space before the first word has the index -1 in the released code, which is its last word.
    first_word = np.where(first_word < lowest, highest, first_word)
    last_word = np.maximum(last_word, lowest)
    found = np.zeros(len(texts), bool)
    spans = zip(words.starts[first_word].tolist(), words.ends[last_word].tolist(), texts, strict=True)
    for number, (start, end, text) in enumerate(spans):
        # Two kinds of space: those between words, and all that Python knows.
        found[number] = " ".join(text.split()) in SPACING.sub(" ", words.text[start:end])
    found &= touched & (first_word <= last_word)
    return found, encoded.first_pieces[first_word], encoded.first_pieces[last_word + 1] - 1


def _improved(
    encoded: _Encoded, first: np.ndarray, last: np.ndarray, answer_ids: np.ndarray, answer_splits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Narrows spans to the first pieces in them that are the answer's own; spans without such stay."""
    size = np.diff(answer_splits)
    # [candidates]: every place where the answer could start.
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


def _lay_out(
    encoded: _Encoded,
    tokenizer: Tokenizer,
    row_splits: np.ndarray,
    query_starts: np.ndarray,
    before: np.ndarray,
    doc_starts: np.ndarray,
    length: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The pieces of all rows, int32 [T], and their segments, int32 [T]."""
    vocabulary = tokenizer.vocabulary
    total = int(row_splits[-1])
    ids, segment_ids = np.empty(total, np.int32), np.zeros(total, np.int32)
    for begin in range(0, len(length), _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        splits = row_splits[:-1][rows]
        first_doc = splits + before[rows]
        ids[splits] = vocabulary.cls_id
        ids[ranges(splits + 1, before[rows] - 2)] = encoded.question_ids[ranges(query_starts[rows], before[rows] - 2)]
        ids[first_doc - 1] = vocabulary.sep_id
        ids[ranges(first_doc, length[rows])] = encoded.ids[ranges(doc_starts[rows], length[rows])]
        ids[first_doc + length[rows]] = vocabulary.sep_id
        segment_ids[ranges(first_doc, length[rows] + 1)] = 1
    return ids, segment_ids


def _max_context(
    sizes: np.ndarray,
    example: np.ndarray,
    ordinal: np.ndarray,
    start: np.ndarray,
    length: np.ndarray,
    before: np.ndarray,
    row_splits: np.ndarray,
) -> np.ndarray:
    """Whether a piece has more around it here than in any other window of its question, the first of equals.

    Returns:
        bool [T], False outside the context.
    """
    # A place for every piece of every question's context.
    first_place = np.cumsum(sizes) - sizes  # [Q]
    best = np.full(int(sizes.sum()), -1.0)
    owner = np.zeros(len(best), np.int64)
    order = np.argsort(ordinal, kind="stable")
    bounds = np.searchsorted(ordinal[order], np.arange(ordinal.max(initial=-1) + 2))
    # No two windows of the same ordinal share a place.
    for number in range(len(bounds) - 1):
        for begin in range(bounds[number], bounds[number + 1], _CHUNK):
            rows = order[begin : min(begin + _CHUNK, bounds[number + 1])]
            place = ranges(first_place[example[rows]] + start[rows], length[rows])
            within = ranges(np.zeros_like(rows), length[rows])
            size = np.repeat(length[rows], length[rows])
            around = np.minimum(within, size - 1 - within) + 0.01 * size
            better = place[around > best[place]]
            best[place] = np.maximum(best[place], around)
            owner[better] = number
    result = np.zeros(int(row_splits[-1]), bool)
    place = ranges(first_place[example] + start, length)
    result[ranges(row_splits[:-1] + before, length)] = owner[place] == np.repeat(ordinal, length)
    return result


def _places_in_normal_text(contexts: Sequence[str], encoded: _Encoded, tokenizer: Tokenizer) -> np.ndarray:
    """Start and end of each piece among the words of the tokenizer's rules, joined by a space; int32 [P, 2]."""
    pieces = tokenizer.vocabulary.pieces
    continues = np.array([piece.startswith(CONTINUATION) for piece in pieces])[encoded.ids]  # [P]
    lengths = np.array([len(piece) for piece in pieces])[encoded.ids] - len(CONTINUATION) * continues
    words = [split_words(context, tokenizer.do_lower_case) for context in contexts]
    word_lengths = np.array([len(word) for split in words for word in split], np.int64)
    word_counts = np.array([len(split) for split in words], np.int64)
    # Every word starts with a piece that continues none.
    word = np.cumsum(~continues) - 1  # [P]
    unknown = encoded.ids == tokenizer.vocabulary.unk_id
    lengths = np.where(unknown, word_lengths[word], lengths)
    # Of each word the place in its context: the words before it and a space after each of them.
    ends = np.cumsum(word_lengths + 1)
    first_words = np.cumsum(word_counts) - word_counts
    context_ends = np.concatenate([[0], ends])[first_words]  # [C], what stands before a context
    word_starts = ends - word_lengths - 1 - np.repeat(context_ends, word_counts)
    # Of each piece the place in its word: the pieces before it.
    piece_ends = np.cumsum(lengths)
    heads = np.flatnonzero(~continues)  # [words]
    in_word = piece_ends - lengths - (piece_ends - lengths)[heads[word]]
    starts = word_starts[word] + in_word
    return np.stack([starts, starts + lengths], axis=1).astype(np.int32)
