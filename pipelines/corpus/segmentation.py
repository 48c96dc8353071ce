"""Split paragraphs into sentences."""

import random
from collections.abc import Callable, Iterator

import sentencex

from pipelines.cleaning.rules import fold_whitespace
from pipelines.corpus.sentence_boundaries import boundaries

# Far more than a paragraph of prose has.
_WINDOW_CHARACTERS = 1 << 15


def split_sentences(text: str, language: str) -> list[str]:
    """Split one paragraph into its sentences, whitespace folded, none empty; only whitespace is lost.

    A sentence longer than `sentence_boundaries.MAX_SENTENCE_CHARACTERS` is cut after punctuation, or at a blank,
    or anywhere.

    Args:
        text: one paragraph; a sentence never crosses paragraphs.
        language: language code, such as "en", "pt-BR" or "zh_Hans", of which the first subtag counts. One that
            sentencex does not support is read as a related language, or else as English.
    """
    folded = fold_whitespace(text)
    code = language.replace("_", "-").lower().split("-")[0]
    sentences = []
    start = 0
    for end in boundaries(folded, code):
        sentences.append(folded[start:end].strip())
        start = end
    return [sentence for sentence in sentences if sentence]


def split_lines(text: str, language: str) -> list[str]:  # noqa: ARG001
    """Return every line of a paragraph as a sentence, whitespace folded, none empty."""
    return [sentence for sentence in map(fold_whitespace, text.splitlines()) if sentence]


def split_with_sentencex(text: str, language: str) -> list[str]:
    """Split one paragraph with sentencex alone, whitespace folded, none empty."""
    folded = map(fold_whitespace, _segment(fold_whitespace(text), language))
    return [sentence for sentence in folded if sentence]


def _segment(text: str, language: str) -> Iterator[str]:
    """Yield sentencex's sentences of a text; one longer than a window is read by windows.

    sentencex takes time that grows with the square of the text where marks have no partner.
    """
    start = 0
    while len(text) - start > _WINDOW_CHARACTERS:
        pieces = sentencex.segment(language, text[start : start + _WINDOW_CHARACTERS])
        # The window cuts the last sentence in two: the next window begins with it.
        kept = pieces[:-1] or pieces
        yield from kept
        start += sum(map(len, kept))
    yield from sentencex.segment(language, text[start:])


# The choices of --segmenter.
SEGMENTERS: dict[str, Callable[[str, str], list[str]]] = {
    "rules": split_sentences,
    "lines": split_lines,
    "sentencex": split_with_sentencex,
}


def document_sentences(paragraphs: list[str], language: str, segmented: bool, segmenter: str = "rules") -> list[str]:
    """Return a document's sentences in order; paragraphs that are sentences already stay whole."""
    if segmented:
        return [sentence for sentence in map(fold_whitespace, paragraphs) if sentence]
    split = SEGMENTERS[segmenter]
    return [sentence for paragraph in paragraphs for sentence in split(paragraph, language)]


def truncate_sentences(sentences: list[str], share: float, document_id: bytes) -> list[str]:
    """Cut a share of a document's sentences off at a random word, so that a model also sees incomplete text.

    The released README advises it ("Pre-training with BERT": truncate 2 % of the input segments).

    Args:
        sentences: of one document, whitespace folded.
        share: of the sentences to cut, 0 to 1.
        document_id: the identity of the document, which decides what is cut and where.

    Returns:
        As many sentences, none empty; one of a single word is cut at a character, one of a single character stays.
    """
    if not share:
        return sentences
    generator = random.Random(document_id)  # noqa: S311
    return [_cut_off(sentence, generator) if generator.random() < share else sentence for sentence in sentences]


def _cut_off(sentence: str, generator: random.Random) -> str:
    blank = " " if " " in sentence else ""
    units = sentence.split(" ") if blank else list(sentence)
    return blank.join(units[: 1 + int(generator.random() * (len(units) - 1))])
