"""The published procedure, one document at a time with Python lists: the oracle for `pipelines.instances`.

It is told its draws, so that both can be given the same ones.
"""

from collections.abc import Iterator


def sample_document(
    documents: list[list[list[int]]], index: int, target: int, draws: Iterator[tuple[float, float, float, float]]
) -> Iterator[tuple[list[int], list[int], bool]]:
    """Yields (A, B, is random next) of one document before truncation.

    A draw is four uniforms: the end of A, whether B is random, which other document, which of its sentences.
    """
    document = documents[index]
    chunk: list[list[int]] = []
    i = 0
    while i < len(document):
        chunk.append(document[i])
        if i == len(document) - 1 or sum(map(len, chunk)) >= target:
            end, random_next, which, where = next(draws)
            a_end = 1 if len(chunk) == 1 else 1 + int(end * (len(chunk) - 1))
            a = [token for sentence in chunk[:a_end] for token in sentence]
            b: list[int] = []
            if len(chunk) == 1 or random_next < 0.5:
                others = [other for other in range(len(documents)) if other != index]
                other = documents[others[int(which * len(others))]]
                for sentence in other[int(where * len(other)) :]:
                    b.extend(sentence)
                    if len(b) >= target - len(a):
                        break
                i -= len(chunk) - a_end
                yield a, b, True
            else:
                b = [token for sentence in chunk[a_end:] for token in sentence]
                yield a, b, False
            chunk = []
        i += 1


def truncated_lengths(a: int, b: int, max_num_tokens: int) -> tuple[int, int]:
    """Removes one token at a time from the longer, from B when they are equal."""
    while a + b > max_num_tokens:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b
