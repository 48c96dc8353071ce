"""Segment paragraphs into sentences."""

import functools
import random
from collections.abc import Callable, Iterator

import sentencex

from beambert.pipelines.cleaning.rules import fold_whitespace
from beambert.pipelines.segmentation.sentence_boundaries import boundaries

# Much longer than a paragraph of prose.
_WINDOW_CHARACTERS = 1 << 15


def split_sentences(text: str, language: str, abbreviations: str = "") -> list[str]:
    """Segment one paragraph into non-empty sentences with folded whitespace; all other text is preserved.

    A sentence longer than `sentence_boundaries.MAX_SENTENCE_CHARACTERS` is split after punctuation, else at a space,
    else at any character.

    Args:
        text: one paragraph; a sentence never crosses paragraphs.
        language: language code such as "en", "pt-BR" or "zh_Hans"; only the first subtag is used. For a language that
            sentencex does not support, the rules of a related language or of English are used.
        abbreviations: more abbreviations that never end a sentence, one a line, without final periods.
    """
    folded = fold_whitespace(text)
    code = language.replace("_", "-").lower().split("-")[0]
    sentences = []
    start = 0
    for end in boundaries(folded, code, abbreviations):
        sentences.append(folded[start:end].strip())
        start = end
    return [sentence for sentence in sentences if sentence]


def split_lines(text: str, language: str) -> list[str]:  # noqa: ARG001
    """Return every non-blank line of a paragraph as a sentence, with folded whitespace."""
    return [sentence for sentence in map(fold_whitespace, text.splitlines()) if sentence]


def split_with_sentencex(text: str, language: str) -> list[str]:
    """Segment one paragraph with sentencex alone into non-empty sentences with folded whitespace."""
    folded = map(fold_whitespace, _segment(fold_whitespace(text), language))
    return [sentence for sentence in folded if sentence]


def _segment(text: str, language: str) -> Iterator[str]:
    """Yield the sentences that sentencex finds in a text, reading long texts in windows.

    The time of sentencex is quadratic in the length of a text with unbalanced quotes or brackets.
    """
    start = 0
    while len(text) - start > _WINDOW_CHARACTERS:
        sentences = sentencex.segment(language, text[start : start + _WINDOW_CHARACTERS])
        # The last sentence may continue beyond the window: the next window starts with it.
        complete = sentences[:-1] or sentences
        yield from complete
        start += sum(map(len, complete))
    yield from sentencex.segment(language, text[start:])


# Values of --segmenter.
SEGMENTERS: dict[str, Callable[[str, str], list[str]]] = {
    "rules": split_sentences,
    "lines": split_lines,
    "sentencex": split_with_sentencex,
}


def paragraph_segmenter(
    language: str, segmented: bool, segmenter: str = "rules", abbreviations: str = ""
) -> Callable[[str], list[str]]:
    """Return a function that returns the sentences of a paragraph; if `segmented`, every paragraph already is one.

    `abbreviations` are those of `split_sentences`, which is the segmenter "rules".
    """
    if segmented:
        return lambda paragraph: [sentence] if (sentence := fold_whitespace(paragraph)) else []
    if segmenter == "rules":
        return functools.partial(split_sentences, language=language, abbreviations=abbreviations)
    split = SEGMENTERS[segmenter]
    return lambda paragraph: split(paragraph, language)


def truncate_sentences(sentences: list[str], share: float, document_id: bytes) -> list[str]:
    """Truncate a random fraction of sentences at a random word, so that the model also sees incomplete text.

    The README of google-research/bert recommends it ("Pre-training with BERT": truncate 2 % of the input segments).

    Args:
        sentences: the sentences of one document, with folded whitespace.
        share: fraction of the sentences to truncate, from 0 to 1.
        document_id: document ID, the seed of all random choices.

    Returns:
        As many non-empty sentences. A sentence of one word is truncated at a character.
    """
    if not share:
        return sentences
    generator = random.Random(document_id)  # noqa: S311
    return [_cut_off(sentence, generator) if generator.random() < share else sentence for sentence in sentences]


def _cut_off(sentence: str, generator: random.Random) -> str:
    """Return a sentence truncated after a random word, or after a random character if it has one word."""
    blank = " " if " " in sentence else ""
    units = sentence.split(" ") if blank else list(sentence)
    return blank.join(units[: 1 + int(generator.random() * (len(units) - 1))])
