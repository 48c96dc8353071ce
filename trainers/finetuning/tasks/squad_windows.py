"""Encode questions and contexts as rows `[CLS] question [SEP] window [SEP]`, with a sliding window over the context.

Returns the same rows as `read_squad_examples` and `convert_examples_to_features` in google-research/bert,
run_squad.py, computed for all questions at once.

Letters in shapes: C contexts, P tokens of all of them, Q questions, N rows, T tokens of all rows together.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from beambert.pipelines.instances.instances import ranges
from beambert.tokenizer.normalization import split_words, split_words_with_sources
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.wordpiece import CONTINUATION
from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.finetuning_task import Rows
from beambert.trainers.finetuning.tasks.squad_files import SquadFile

_CHUNK = 16384  # Rows encoded at a time.


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


def window_rows(
    file: SquadFile,
    tokenizer: Tokenizer,
    max_seq_length: int,
    *,
    doc_stride: int = 128,
    max_query_length: int = 64,
    training: bool,
) -> Rows:
    """Return the rows of a file, ordered by question and window.

    The targets are those of the first answer, or (0, 0), the position of [CLS], where the window does not contain the
    whole answer or the question has none. An answer is extended to whole words, then narrowed to the first tokens in
    them that equal the answer's tokens, if there are any (`_improve_answer_span`).

    For training, questions are skipped whose words at `answer_start` do not contain the answer, as in the released
    code. So are questions whose answer has no tokens, which the released code trains on with an end before the start.
    For evaluation no question is skipped: the target is the first answer that is found, or (0, 0).

    Args:
        file: the questions, read for the same purpose.
        tokenizer: tokenizer of the model; the released code has no added tokens.
        max_seq_length: maximum length of a row in tokens.
        doc_stride: tokens between the starts of two windows; fewer where a window is shorter.
        max_query_length: maximum tokens of a question; longer questions are truncated and counted.
        training: whether questions are skipped, and the extras omitted.

    Returns:
        Rows. The extras, for evaluation:
            examples int32 [N], index of the row's question;
            befores int32 [N], tokens of the row before the window;
            window_starts int32 [N], index in the context of the window's first token;
            max_context bool [T], whether the token has its maximum context in this window (`_check_is_max_context`);
            piece_splits int64 [C + 1], context i has the tokens `piece_splits[i]:piece_splits[i + 1]`;
            piece_offsets int32 [P, 2], character offsets of the tokens in the context;
            piece_places int32 [P, 2], their character offsets in the words of
            `beambert.tokenizer.normalization.split_words`, joined by spaces; for [UNK] those of the whole word; unknown
            bool [P], whether a token is [UNK]; word_rules bool [3], the fields of the `WordRules` of these words.

    Raises:
        TaskDataError: max_seq_length leaves no room for the context of a question.
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
            f"{file.where(cramped[0])} has {query_lengths[cramped[0]]} tokens, which leaves no room for the context in "
            f"--max_seq_length {max_seq_length}: raise it, or lower --max_query_length ({max_query_length})"
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
            name: np.where(inside, position + before, 0).astype(np.int32)
            for name, position in (("start_positions", first), ("end_positions", last))
        }

    query_starts = encoded.question_splits[encoded.questions[example]]
    doc_starts = encoded.splits[context_of[example]] + start
    ids, segment_ids = _lay_out(encoded, tokenizer, row_splits, query_starts, before, doc_starts, length)
    extras = {}
    if not training:
        rules = tokenizer.rules
        extras = {
            "examples": example.astype(np.int32),
            "befores": before.astype(np.int32),
            "window_starts": start.astype(np.int32),
            "max_context": _max_context(sizes, example, ordinal, start, length, before, row_splits),
            "piece_splits": encoded.splits,
            "piece_offsets": encoded.offsets,
            "piece_places": _places_in_normal_text(file.contexts, encoded, tokenizer),
            "unknown": encoded.ids == tokenizer.vocabulary.unk_id,
            "word_rules": np.array([rules.do_lower_case, rules.strips_accents, rules.tokenize_chinese_chars]),
        }
    return Rows(
        ids,
        segment_ids,
        row_splits,
        targets,
        truncated=truncated,
        skipped=len(file.questions) - len(kept),
        empty=kept[(query_lengths[kept] == 0) | (sizes[kept] == 0)],
        extras=extras,
    )


def _lay_out(
    encoded: Encoded,
    tokenizer: Tokenizer,
    row_splits: np.ndarray,
    query_starts: np.ndarray,
    before: np.ndarray,
    doc_starts: np.ndarray,
    length: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids and segment ids of all rows, int32 [T] each."""
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
    """Return whether a token has its maximum context in this window; ties go to the first window.

    Returns:
        bool [T], False outside the context.
    """
    # One slot per token of the context of each question.
    first_place = np.cumsum(sizes) - sizes  # [Q]
    best = np.full(int(sizes.sum()), -1.0)
    owner = np.zeros(len(best), np.int64)
    order = np.argsort(ordinal, kind="stable")
    bounds = np.searchsorted(ordinal[order], np.arange(ordinal.max(initial=-1) + 2))
    # Windows with the same ordinal never share a slot.
    for number in range(len(bounds) - 1):
        for begin in range(bounds[number], bounds[number + 1], _CHUNK):
            rows = order[begin : min(begin + _CHUNK, bounds[number + 1])]
            slots = ranges(first_place[example[rows]] + start[rows], length[rows])
            within = ranges(np.zeros_like(rows), length[rows])
            size = np.repeat(length[rows], length[rows])
            around = np.minimum(within, size - 1 - within) + 0.01 * size
            better = slots[around > best[slots]]
            best[slots] = np.maximum(best[slots], around)
            owner[better] = number
    result = np.zeros(int(row_splits[-1]), bool)
    slots = ranges(first_place[example] + start, length)
    result[ranges(row_splits[:-1] + before, length)] = owner[slots] == np.repeat(ordinal, length)
    return result


def _places_in_normal_text(contexts: Sequence[str], encoded: Encoded, tokenizer: Tokenizer) -> np.ndarray:
    """Return start and end of each token in the normalized words, joined by spaces; int32 [P, 2]."""
    if tokenizer.keeps_tokens:
        return _places_by_offset(contexts, encoded, tokenizer)
    tokens = tokenizer.vocabulary.tokens
    continues = np.array([token.startswith(CONTINUATION) for token in tokens])[encoded.ids]  # [P]
    lengths = np.array([len(token) for token in tokens])[encoded.ids] - len(CONTINUATION) * continues
    words = [split_words(context, tokenizer.rules) for context in contexts]
    word_lengths = np.array([len(word) for split in words for word in split], np.int64)
    word_counts = np.array([len(split) for split in words], np.int64)
    # Every word starts with a token without the continuation prefix.
    word = np.cumsum(~continues) - 1  # [P]
    unknown = encoded.ids == tokenizer.vocabulary.unk_id
    lengths = np.where(unknown, word_lengths[word], lengths)
    # Offset of each word in its context: the previous words, each with a space.
    ends = np.cumsum(word_lengths + 1)
    first_words = np.cumsum(word_counts) - word_counts
    context_ends = np.concatenate([[0], ends])[first_words]  # [C], offset of each context
    word_starts = ends - word_lengths - 1 - np.repeat(context_ends, word_counts)
    # Offset of each token in its word: the previous tokens.
    token_ends = np.cumsum(lengths)
    heads = np.flatnonzero(~continues)  # [words]
    in_word = token_ends - lengths - (token_ends - lengths)[heads[word]]
    starts = word_starts[word] + in_word
    return np.stack([starts, starts + lengths], axis=1).astype(np.int32)


def _places_by_offset(contexts: Sequence[str], encoded: Encoded, tokenizer: Tokenizer) -> np.ndarray:
    """Return the result of `_places_in_normal_text` where a token may have several words, or start within a word."""
    places = []
    for number, context in enumerate(contexts):
        # Of each character of the words: its source in the context, and its place.
        sources: list[int] = []
        characters: list[int] = []
        end = 0
        for word, of_word in split_words_with_sources(context, tokenizer.rules):
            sources += of_word
            characters += range(end, end + len(word))
            end += len(word) + 1
        # The end, for a token without characters in the words. NFD may reorder characters.
        ordered = np.maximum.accumulate([*sources, len(context)])
        place = np.array([*characters, end])
        offsets = encoded.offsets[encoded.splits[number] : encoded.splits[number + 1]]
        first, after = np.searchsorted(ordered, offsets[:, 0]), np.searchsorted(ordered, offsets[:, 1])
        places.append(np.stack([place[first], place[after - 1] + 1], axis=1))
    return np.concatenate(places).astype(np.int32)
