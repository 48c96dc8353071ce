"""Questions and contexts as rows: `[CLS] question [SEP] window of the context [SEP]`, windows sliding over the context.

Follows `read_squad_examples` and `convert_examples_to_features` in google-research/bert, run_squad.py; the same rows,
made for all questions at once.

Letters in shapes: C contexts, P tokens of all of them, Q questions, N rows, T tokens of all rows together.
"""

from collections.abc import Sequence

import numpy as np

from pipelines.instances.ragged import ranges
from tokenizer.normalization import split_words
from tokenizer.tokenizer import Tokenizer
from tokenizer.wordpiece import CONTINUATION
from trainers.errors import TaskDataError
from trainers.finetuning.finetuning_task import Rows
from trainers.finetuning.tasks.spans.squad_encoding import NOT_FOUND, Encoded, answer_tokens, encode
from trainers.finetuning.tasks.spans.squad_files import SquadFile

_CHUNK = 16384  # Rows that are laid out at a time.


def window_rows(
    file: SquadFile,
    tokenizer: Tokenizer,
    max_seq_length: int,
    *,
    doc_stride: int = 128,
    max_query_length: int = 64,
    training: bool,
) -> Rows:
    """Make the rows of a file, window by window, question by question.

    The targets are those of the first answer; (0, 0), the place of [CLS], where the window does not hold it whole or
    there is none. An answer is widened to whole words. It is then narrowed to the first tokens in them that are the
    answer's own, if there are such (`_improve_answer_span`).

    In training, questions are skipped whose answer does not stand in the words that its place touches, as in the
    released code; and those whose answer has no tokens, which the released code trains to end before it starts. In
    evaluation no question is skipped: the first answer that can be found is the target, or (0, 0).

    Args:
        file: as it was read for the same purpose.
        tokenizer: without `never_split`, which the released code does not have.
        max_seq_length: longest row.
        doc_stride: tokens between the starts of two windows; fewer where a window holds fewer.
        max_query_length: tokens of a question that are read; longer ones count as truncated.
        training: whether questions are skipped; what is read to get back from rows to text is left out then.

    Returns:
        Rows. Its extras, in evaluation:
            examples int32 [N], the number of the row's question;
            befores int32 [N], tokens before the window's part of the context;
            window_starts int32 [N], which token of its context the window starts with;
            max_context bool [T], whether no other window shows as much around the token (`_check_is_max_context`);
            piece_splits int64 [C + 1], context i has the tokens `piece_splits[i]:piece_splits[i + 1]`;
            piece_offsets int32 [P, 2], their characters in the context;
            piece_places int32 [P, 2], their characters in the words of `tokenizer.normalization.split_words`, joined by
            a space; of [UNK] those of the whole word;
            unknown bool [P], whether a token is [UNK];
            do_lower_case bool [], how these words were made.

    Raises:
        TaskDataError: max_seq_length leaves no room for a context beside a question.
    """
    encoded = encode(file, tokenizer)
    context_of = np.array([question.context for question in file.questions], np.int64)  # [Q]
    firsts, lasts = answer_tokens(file, encoded, tokenizer)  # [Q] each
    kept = np.arange(len(file.questions))
    if training:
        kept = np.flatnonzero(firsts != NOT_FOUND)
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
    if file.labeled:
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


def _lay_out(
    encoded: Encoded,
    tokenizer: Tokenizer,
    row_splits: np.ndarray,
    query_starts: np.ndarray,
    before: np.ndarray,
    doc_starts: np.ndarray,
    length: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of all rows, int32 [T], and their segments, int32 [T]."""
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
    """Return whether this window gives a token its most context, the first of equal windows.

    Returns:
        bool [T], False outside the context.
    """
    # A place for every token of every question's context.
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


def _places_in_normal_text(contexts: Sequence[str], encoded: Encoded, tokenizer: Tokenizer) -> np.ndarray:
    """Return start and end of each token among the normalized words, joined by a space; int32 [P, 2]."""
    tokens = tokenizer.vocabulary.tokens
    continues = np.array([token.startswith(CONTINUATION) for token in tokens])[encoded.ids]  # [P]
    lengths = np.array([len(token) for token in tokens])[encoded.ids] - len(CONTINUATION) * continues
    words = [split_words(context, tokenizer.do_lower_case) for context in contexts]
    word_lengths = np.array([len(word) for split in words for word in split], np.int64)
    word_counts = np.array([len(split) for split in words], np.int64)
    # Every word starts with a token that continues none.
    word = np.cumsum(~continues) - 1  # [P]
    unknown = encoded.ids == tokenizer.vocabulary.unk_id
    lengths = np.where(unknown, word_lengths[word], lengths)
    # Of each word the place in its context: the words before it and a space after each of them.
    ends = np.cumsum(word_lengths + 1)
    first_words = np.cumsum(word_counts) - word_counts
    context_ends = np.concatenate([[0], ends])[first_words]  # [C], what stands before a context
    word_starts = ends - word_lengths - 1 - np.repeat(context_ends, word_counts)
    # Of each token the place in its word: the tokens before it.
    token_ends = np.cumsum(lengths)
    heads = np.flatnonzero(~continues)  # [words]
    in_word = token_ends - lengths - (token_ends - lengths)[heads[word]]
    starts = word_starts[word] + in_word
    return np.stack([starts, starts + lengths], axis=1).astype(np.int32)
