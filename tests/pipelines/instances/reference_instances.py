"""Sample instances by the published procedure in plain Python, one at a time on lists: the oracle of sampling.

It covers the steps of google-research/bert's create_pretraining_data.py from token IDs to features: pairs, truncation,
layout and masks. Sentence order pairs and full sentences are covered in addition to next sentence pairs. All random
numbers come from `draws`, so that those of another implementation can be used.
"""

import dataclasses
from collections.abc import Iterator

Document = list[list[int]]


@dataclasses.dataclass
class Instance:
    """Segments A and B as in a row, and the number of tokens truncated from each; B may be empty."""

    a: list[int]
    b: list[int]
    label: int
    cut_a: int = 0
    cut_b: int = 0


class GivenDraws:
    """Random draws of another implementation.

    Args:
        arrays: arrays of draws by purpose. The index is the number of the document, sentence or chunk, counted over
            all documents.
    """

    def __init__(self, **arrays) -> None:
        self._arrays = arrays

    def uniform(self, what: str, number: int) -> float:
        return float(self._arrays[what][number])

    def front_cuts(self, segment: str, number: int, cuts: int) -> int:
        front = int(self._arrays[f"front_{segment}"][number])
        assert front <= cuts
        return front


def _target(number: int, max_num_tokens: int, short_seq_prob: float, draws) -> int:
    if draws.uniform("short", number) < short_seq_prob:
        return 2 + int(draws.uniform("length", number) * (max_num_tokens - 1))
    return max_num_tokens


def _joined(sentences: list[list[int]]) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def truncated_lengths(a: int, b: int, max_num_tokens: int) -> tuple[int, int]:
    """Return the lengths after removing one token at a time from the longer segment, or from B if they are equal."""
    while a + b > max_num_tokens:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def _fitted(a: list[int], b: list[int], label: int, max_num_tokens: int, number: int, draws) -> Instance:
    a_length, b_length = truncated_lengths(len(a), len(b), max_num_tokens)
    cut_a, cut_b = len(a) - a_length, len(b) - b_length
    front_a, front_b = draws.front_cuts("a", number, cut_a), draws.front_cuts("b", number, cut_b)
    return Instance(a[front_a:][:a_length], b[front_b:][:b_length], label, cut_a, cut_b)


def next_sentence_pairs(
    documents: list[Document], max_seq_length: int, short_seq_prob: float, draws
) -> Iterator[Instance]:
    """Yield the pairs of at least two documents, document by document."""
    max_num_tokens = max_seq_length - 3
    sentences_before = made = 0
    for number, document in enumerate(documents):
        target = _target(number, max_num_tokens, short_seq_prob, draws)
        chunk: Document = []
        i = 0
        while i < len(document):
            chunk.append(document[i])
            if i == len(document) - 1 or sum(map(len, chunk)) >= target:
                first = sentences_before + i + 1 - len(chunk)
                a_end = 1
                if len(chunk) >= 2:
                    a_end += int(draws.uniform("a_end", first) * (len(chunk) - 1))
                a, b, label = _joined(chunk[:a_end]), [], 0
                if len(chunk) == 1 or draws.uniform("random_next", first) < 0.5:
                    label = 1
                    other = int(draws.uniform("document", made) * (len(documents) - 1))
                    other_document = documents[other + 1 if other >= number else other]
                    for sentence in other_document[int(draws.uniform("sentence", made) * len(other_document)) :]:
                        b.extend(sentence)
                        if len(b) >= target - len(a):
                            break
                    i -= len(chunk) - a_end
                else:
                    b = _joined(chunk[a_end:])
                yield _fitted(a, b, label, max_num_tokens, made, draws)
                made += 1
                chunk = []
            i += 1
        sentences_before += len(document)


def sentence_order_pairs(
    documents: list[Document], max_seq_length: int, short_seq_prob: float, draws
) -> Iterator[Instance]:
    """Yield pairs of neighboring segments, swapped or not; a chunk of one sentence is split within the sentence."""
    max_num_tokens = max_seq_length - 3
    chunks = made = 0
    for number, document in enumerate(documents):
        target = _target(number, max_num_tokens, short_seq_prob, draws)
        chunk: Document = []
        for i, sentence in enumerate(document):
            chunk.append(sentence)
            if i < len(document) - 1 and sum(map(len, chunk)) < target:
                continue
            parts = chunk if len(chunk) > 1 else [[token] for token in chunk[0]]
            if len(parts) > 1:
                end = 1 + int(draws.uniform("split", chunks) * (len(parts) - 1))
                first, second = _joined(parts[:end]), _joined(parts[end:])
                swapped = draws.uniform("swap", chunks) < 0.5
                a, b = (second, first) if swapped else (first, second)
                yield _fitted(a, b, int(swapped), max_num_tokens, made, draws)
                made += 1
            chunks += 1
            chunk = []


def full_sentences(documents: list[Document], max_seq_length: int, short_seq_prob: float, draws) -> Iterator[Instance]:
    """Yield as many whole sentences of one document as fit; longer sentences are split into runs."""
    longest = max_seq_length - 2
    for number, document in enumerate(documents):
        target = _target(number, longest, short_seq_prob, draws)
        runs = [sentence[at : at + longest] for sentence in document for at in range(0, len(sentence), longest)]
        a: list[int] = []
        for run in runs:
            if a and len(a) + len(run) > target:
                yield Instance(a, [], 0)
                a = []
            a = a + run
        yield Instance(a, [], 0)
