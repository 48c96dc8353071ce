"""The published procedure for SQuAD, one question and one token at a time: the oracle of the SQuAD tests.

It is written from the known behavior of run_squad.py, uses the reference tokenizer, and shares nothing with the code
under test.
"""

import math
from dataclasses import dataclass, field
from functools import cache

from tests.tokenizer.reference_tokenizer import published_pieces, published_words


class PlainTokenizer:
    """The reference tokenizer with a cache of texts and words."""

    def __init__(self, pieces, lower):
        vocabulary = set(pieces)
        self.ids = {piece: number for number, piece in enumerate(pieces)}
        self.lower = lower
        self.words = cache(lambda text: published_words(text, lower))
        self.pieces_of_word = cache(lambda word: published_pieces(word, vocabulary))

    def __call__(self, text):
        return [piece for word in self.words(text) for piece in self.pieces_of_word(word)]


@dataclass
class Window:
    question: int
    tokens: list
    segments: list
    target: tuple
    word_of: dict = field(default_factory=dict)  # Word index by position, in the context only.
    max_context: set = field(default_factory=set)  # Positions with maximum context.


def words_of(context):
    """Return the words, and for each character the index of the last word that has started, -1 before the first."""
    words, of_character, inside = [], [], False
    for character in context:
        if character in " \t\r\n\u202f":
            inside = False
        elif inside:
            words[-1] += character
        else:
            words.append(character)
            inside = True
        of_character.append(len(words) - 1)
    return words, of_character


def answer_in_pieces(words, of_character, starts, pieces, answer, tokenize):
    """Return the first and last token of an answer (text, start), or None if it is skipped."""
    text, start = answer
    if not words:
        return None
    first, last = of_character[start], of_character[start + len(text) - 1]
    # Unlike the released code, white space within a word of the context is that of the answer.
    if " ".join(text.split()) not in " ".join(" ".join(words[first : last + 1]).split()):
        return None
    first, last = first % len(words), last % len(words)
    begin, end = starts[first], starts[last + 1] - 1
    if begin > end:
        return None  # The released code trains on it.
    wanted = tokenize(text)
    for left in range(begin, end + 1):
        for right in range(end, left - 1, -1):
            if pieces[left : right + 1] == wanted:
                return left, right
    return begin, end


def windows_of(contexts, questions, tokenize, length, stride, longest_query, training):
    """Return the windows of all questions, and the number of skipped questions.

    Questions are (text, number of the context, [(answer, start), ...]).
    """
    windows, skipped = [], 0
    for number, (question, context, answers) in enumerate(questions):
        words, of_character = words_of(contexts[context])
        pieces, word_of_piece, starts = [], [], []
        for word_number, word in enumerate(words):
            starts.append(len(pieces))
            for piece in tokenize(word):
                pieces.append(piece)
                word_of_piece.append(word_number)
        starts.append(len(pieces))
        spans = [answer_in_pieces(words, of_character, starts, pieces, answer, tokenize) for answer in answers]
        span = next((span for span in spans if span), None)
        if training and answers and not span:
            skipped += 1
            continue
        query = tokenize(question)[:longest_query]
        room = length - len(query) - 3
        places, at = [], 0
        while pieces:
            size = min(room, len(pieces) - at)
            places.append((at, size))
            if at + size == len(pieces):
                break
            at += min(size, stride)
        for at, size in places:
            tokens = ["[CLS]", *query, "[SEP]", *pieces[at : at + size], "[SEP]"]
            segments = [0] * (len(query) + 2) + [1] * (size + 1)
            target = (0, 0)
            if span and at <= span[0] and span[1] < at + size:
                target = tuple(place - at + len(query) + 2 for place in span)
            window = Window(number, tokens, segments, target)
            for place in range(at, at + size):
                position = place - at + len(query) + 2
                window.word_of[position] = word_of_piece[place]
                scores = [
                    (min(place - other, other + many - 1 - place) + 0.01 * many, -other)
                    for other, many in places
                    if other <= place < other + many
                ]
                if -max(scores)[1] == at:
                    window.max_context.add(position)
            windows.append(window)
    return windows, skipped


def final_text(predicted, original, tokenize):
    """Return the part of the original words that equals the joined tokens; all words where they cannot be aligned."""
    normal = " ".join(tokenize.words(original))
    at = normal.find(predicted)
    solid = [place for place, character in enumerate(original) if character != " "]
    if at < 0 or len(solid) != len(normal.replace(" ", "")):
        return original
    first = len(normal[:at].replace(" ", ""))
    last = first + len(predicted.replace(" ", "")) - 1
    return original[solid[first] : solid[last] + 1]


def answers_of(question, contexts, context, windows, logits, tokenize, n_best, longest, version_2):
    """Return n-best list of (text, start logit, end logit), probabilities and null odds of one question."""
    words, _ = words_of(contexts[context])
    candidates, nulls = [], []
    for window, (starts, ends) in zip(windows, logits, strict=True):
        if window.question != question:
            continue
        nulls.append((float(starts[0]) + float(ends[0]), float(starts[0]), float(ends[0])))
        best_starts = sorted(range(len(starts)), key=lambda i: -starts[i])[:n_best]
        best_ends = sorted(range(len(ends)), key=lambda i: -ends[i])[:n_best]
        for start in best_starts:
            for end in best_ends:
                if start not in window.max_context or end not in window.word_of or not 0 <= end - start < longest:
                    continue
                candidates.append(
                    (float(starts[start]) + float(ends[end]), window, start, end, starts[start], ends[end])
                )
    null = min(nulls, key=lambda entry: entry[0], default=(0.0, 0.0, 0.0))
    if version_2:
        candidates.append((null[0], None, 0, 0, null[1], null[2]))
    candidates.sort(key=lambda candidate: -candidate[0])
    listed, best = [], None
    for score, window, start, end, start_logit, end_logit in candidates:
        if window is None:
            text = ""
        else:
            predicted = " ".join(window.tokens[start : end + 1]).replace(" ##", "").replace("##", "")
            original = " ".join(words[window.word_of[start] : window.word_of[end] + 1])
            text = final_text(" ".join(predicted.split()), original, tokenize)
            best = best or (text, score)
        if len(listed) < n_best and text not in [entry[0] for entry in listed]:
            listed.append((text, float(start_logit), float(end_logit)))
    if version_2 and "" not in [entry[0] for entry in listed]:
        listed.append(("", null[1], null[2]))
    if not listed:
        listed.append(("empty", 0.0, 0.0))
    powers = [math.exp(entry[1] + entry[2] - max(a + b for _, a, b in listed)) for entry in listed]
    probabilities = [power / sum(powers) for power in powers]
    odds = (null[0] - best[1] if best else None) if version_2 else None
    return listed, probabilities, odds
