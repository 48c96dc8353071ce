"""Words and their counts: the input of vocabulary learning."""

from collections import Counter
from collections.abc import Iterable, Mapping

from tokenizer.normalization import prepare_chunks, split_words
from tokenizer.wordpiece import MAX_WORD_CHARACTERS

# Distinct chunks between two clearances of `count_words`, some 150 bytes each.
_MAX_CHUNKS = 1_000_000


def count_words(texts: Iterable[str], do_lower_case: bool) -> Counter[str]:
    """Count each word of the texts; words are those of `tokenizer.normalization.split_words`.

    Memory grows with the number of distinct words, not with the amount of text. Counts of parts of a corpus add up to
    the counts of the whole; of a large corpus, `most_frequent` bounds each part's before adding.
    """
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(prepare_chunks([text])[0].split())
        if len(chunks) > _MAX_CHUNKS:
            _add_words(words, chunks, do_lower_case)
            chunks.clear()
    _add_words(words, chunks, do_lower_case)
    return words


def _add_words(words: Counter[str], chunks: Counter[str], do_lower_case: bool) -> None:
    for chunk, count in chunks.items():
        for word in split_words(chunk, do_lower_case):
            words[word] += count


def most_frequent(word_counts: Mapping[str, int], limit: int, min_count: int = 1) -> dict[str, int]:
    """Return at most `limit` words to learn from, the most frequent, equals in the order of code points.

    Never a word of more than 200 characters, which is "[UNK]" under every vocabulary, nor one counted less than
    min_count times. Depends on the words and counts alone, not on their order.
    """
    kept = {
        word: count for word, count in word_counts.items() if count >= min_count and len(word) <= MAX_WORD_CHARACTERS
    }
    if len(kept) <= limit:
        return kept
    return dict(sorted(kept.items(), key=lambda item: (-item[1], item[0]))[:limit])
