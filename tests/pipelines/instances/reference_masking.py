"""Choose whole words and spans to mask, one row at a time with Python lists: the oracle for `masking`."""

import itertools
import random

Word = list[int]


def segments_of(maskable: list[bool], continues_word: list[bool]) -> list[list[Word]]:
    """Return the segments of a row: each is a list of words, and each word a list of positions."""
    segments: list[list[Word]] = []
    for position, here in enumerate(maskable):
        if not here:
            continue
        if position == 0 or not maskable[position - 1]:
            segments.append([[position]])
        elif continues_word[position]:
            segments[-1][-1].append(position)
        else:
            segments[-1].append([position])
    return segments


def whole_words(words: list[Word], wanted: int) -> list[Word]:
    """Return the words that are chosen if they are visited in this order."""
    taken: list[Word] = []
    for word in words:
        if sum(map(len, taken)) + len(word) <= wanted:
            taken.append(word)
    return taken


def probabilities_of_whole_words(words: list[Word], wanted: int) -> dict[tuple[int, ...], float]:
    """Return the probability of each set of positions, from all orders of the words."""
    orders = list(itertools.permutations(words))
    counts: dict[tuple[int, ...], int] = {}
    for order in orders:
        chosen = tuple(sorted(position for word in whole_words(list(order), wanted) for position in word))
        counts[chosen] = counts.get(chosen, 0) + 1
    return {chosen: count / len(orders) for chosen, count in counts.items()}


def spans(segments: list[list[Word]], wanted: int, rng: random.Random) -> list[list[Word]]:
    """Return the spans of one row."""
    every = [(segment, place) for segment, words in enumerate(segments) for place in range(len(words))]
    chosen: list[list[Word]] = []
    covered: set[tuple[int, int]] = set()
    remaining = wanted

    def fitting(segment: int, place: int, length: int) -> int:
        pieces = 0
        for number in range(length):
            at = (segment, place + number)
            if place + number >= len(segments[segment]) or at in covered:
                return number
            pieces += len(segments[segment][place + number])
            if pieces > remaining:
                return number
        return length

    lengths = list(range(1, 11))
    tries = rounds = 0
    length = min(remaining, rng.choices(lengths, [0.8**n for n in lengths])[0])
    while remaining and rounds < 4 * wanted:
        rounds += 1
        tries += 1
        segment, place = rng.choice(every)
        fits = fitting(segment, place, length)
        if fits == length or (tries >= 4 and fits):
            chosen.append(segments[segment][place : place + fits])
            covered |= {(segment, place + number) for number in range(fits)}
            remaining -= sum(map(len, chosen[-1]))
            tries = 0
            length = min(remaining, rng.choices(lengths, [0.8**n for n in lengths])[0])
    free = [segments[segment][place] for segment, place in every if (segment, place) not in covered]
    rng.shuffle(free)
    return chosen + [[word] for word in whole_words(free, remaining)]
