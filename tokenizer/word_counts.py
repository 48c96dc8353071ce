"""Count the words of texts, the input of vocabulary learning."""

from collections import Counter
from collections.abc import Iterable, Mapping

from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import prepare_chunks, split_words
from beambert.tokenizer.wordpiece import MAX_WORD_CHARACTERS

# Distinct chunks after which `count_words` empties its buffer, about 150 bytes each.
_MAX_CHUNKS = 1_000_000


def count_words(texts: Iterable[str], rules: WordRules) -> Counter[str]:
    """Count the words of texts, as split by `beambert.tokenizer.normalization.split_words`.

    Memory is proportional to the number of distinct words, not to the size of the text. Counts of parts of a corpus can
    be added. For a large corpus, limit the counts of each part with `most_frequent` before adding.

    Args:
        texts: The texts.
        rules: Rules that split the texts into words.
    """
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(prepare_chunks([text], rules.tokenize_chinese_chars)[0].split())
        if len(chunks) > _MAX_CHUNKS:
            _add_words(words, chunks, rules)
            chunks.clear()
    _add_words(words, chunks, rules)
    return words


def _add_words(words: Counter[str], chunks: Counter[str], rules: WordRules) -> None:
    for chunk, count in chunks.items():
        for word in split_words(chunk, rules):
            words[word] += count


def most_frequent(word_counts: Mapping[str, int], limit: int, min_count: int = 1) -> dict[str, int]:
    """Return the `limit` most frequent words; the result does not depend on the order of word_counts.

    Words of more than 200 characters, which are always "[UNK]", are excluded.

    Args:
        word_counts: Occurrences of each word.
        limit: Maximum number of words (ties: order of code points).
        min_count: Minimum occurrences of a word.
    """
    kept = {
        word: count for word, count in word_counts.items() if count >= min_count and len(word) <= MAX_WORD_CHARACTERS
    }
    if len(kept) <= limit:
        return kept
    return dict(sorted(kept.items(), key=lambda item: (-item[1], item[0]))[:limit])
