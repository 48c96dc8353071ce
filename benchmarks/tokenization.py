"""Speed of the tokenizer beside tensorflow_text's.

    python benchmarks/tokenization.py ../shared/data

Times are CPU seconds of this process. (This file is not called tokenizer.py, which would hide the package.)
"""

import bz2
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tokenizer.tokenizer import Tokenizer
from tokenizer.vocabulary import Vocabulary

BATCH = 4000


def paragraphs(data: Path, number: int) -> list[str]:
    """The lines of text of one file of extracted English Wikipedia, about 10 MB."""
    with bz2.open(data / f"wiki-extracted/enwiki-2015-0{number}.bz2", "rt", encoding="utf-8") as file:
        return [line for line in file.read().split("\n") if line and not line.startswith("<")]


def megabytes(texts: list[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def compare_speed(vocabulary: Vocabulary, texts: list[str]) -> None:
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    size = megabytes(texts)

    def rate(encode: Callable[[list[str]], object]) -> str:
        return f"{size / seconds(lambda: [encode(batch) for batch in batches]):5.1f} MB/s"

    tokenizer = Tokenizer(vocabulary)
    print(f"encode_batch on {size:.1f} MB: cold {rate(tokenizer.encode_batch)}")
    print("  warm", *(rate(tokenizer.encode_batch) for _ in range(3)))
    try:
        import tensorflow_text
    except ImportError:
        print("  tensorflow_text is not installed: nothing to compare with")
        return
    fast = tensorflow_text.FastBertTokenizer(list(vocabulary.pieces), lower_case_nfd_strip_accents=True)
    print("  tensorflow_text.FastBertTokenizer", *(rate(fast.tokenize) for _ in range(3)))


def main(data: Path) -> None:
    released = Vocabulary.load(data / "tokenizer/bert-base-uncased-vocab.txt")
    texts = paragraphs(data, 0)
    compare_speed(released, [sentence for text in texts for sentence in text.split(". ")])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
