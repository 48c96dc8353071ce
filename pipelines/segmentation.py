"""Paragraphs to sentences, with sentencex by language."""

import sentencex

from pipelines.cleaning import fold_whitespace


def split_sentences(text: str, language: str) -> list[str]:
    """Splits one paragraph into its sentences, whitespace folded, none empty.

    Args:
        text: one paragraph; a sentence never crosses paragraphs.
        language: ISO 639 code, such as "en"; sentencex falls back to a related language, then to English.
    """
    folded = (fold_whitespace(sentence) for sentence in sentencex.segment(language, fold_whitespace(text)))
    return [sentence for sentence in folded if sentence]


def document_sentences(paragraphs: list[str], language: str, segmented: bool) -> list[str]:
    """The sentences of a document in order; paragraphs that are sentences already stay whole."""
    if segmented:
        return [sentence for sentence in map(fold_whitespace, paragraphs) if sentence]
    return [sentence for paragraph in paragraphs for sentence in split_sentences(paragraph, language)]
