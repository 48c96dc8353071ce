"""Measure tokenizer speed against tensorflow_text and Hugging Face, on English and on mixed scripts.

    make bench-tokenizer
    python benchmarks/tokenization.py ../shared/data

The unit is CPU seconds of this process, one thread, from a list of str to ids. Every tokenizer starts each round with
empty caches. (This file is not named tokenizer.py, which would shadow the package.)
"""

import bz2
import json
import os
import statistics
import sys
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow_text
import tokenizers

from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary

BATCH = 4000
ROUNDS = 5
MIXED_BYTES = 3_000_000

Encode = Callable[[list[str]], object]


def english(data: Path) -> list[str]:
    """Return approximate sentences of one file of extracted English Wikipedia, about 10 MB."""
    with bz2.open(data / "wiki-extracted/enwiki-2015-00.bz2", "rt", encoding="utf-8") as file:
        paragraphs = [line for line in file.read().split("\n") if line and not line.startswith("<")]
    return [sentence for paragraph in paragraphs for sentence in paragraph.split(". ")]


def mixed_scripts(data: Path) -> list[str]:
    """Return repeated lines with at least a quarter of non-Latin text: Wikipedia source, 23 languages."""
    golden = (data / "segmentation/golden_rules.jsonl").read_text(encoding="utf-8").splitlines()
    lines = [json.loads(line)["text"] for line in golden]
    for name in ("enwiki-206-pages", "enwiki-2022-251-pages-truncated"):
        source = bz2.BZ2Decompressor().decompress((data / f"wiki-dump/{name}.xml.bz2").read_bytes())
        lines += source.decode("utf-8", "ignore").split("\n")
    chosen = [line for line in lines if 4 * sum(not _is_latin(character) for character in line) > len(line) > 0]
    return chosen * -(-MIXED_BYTES // sum(len(line.encode()) for line in chosen))


def _is_latin(character: str) -> bool:
    return character.isascii() or unicodedata.name(character, "LATIN").startswith("LATIN")


def makers(vocabulary: Vocabulary, vocab_file: Path) -> dict[str, Callable[[], Encode]]:
    """Return functions that create each tokenizer."""

    def hugging_face() -> Encode:
        made = tokenizers.BertWordPieceTokenizer(str(vocab_file), lowercase=True)
        encode = made._tokenizer.encode_batch_fast
        return lambda texts: [encoding.ids for encoding in encode(texts, add_special_tokens=False)]

    def tensorflow() -> Encode:
        return tensorflow_text.FastBertTokenizer(list(vocabulary.tokens), lower_case_nfd_strip_accents=True).tokenize

    return {
        "tensorflow_text.FastBertTokenizer": tensorflow,
        "Hugging Face BertWordPieceTokenizer": hugging_face,
        "beambert, compiled": lambda: Tokenizer(vocabulary, compiled=True).encode_batch,
        "beambert, compiled, with offsets": lambda: Tokenizer(vocabulary, compiled=True).encode_batch_with_offsets,
        "beambert, Python": lambda: Tokenizer(vocabulary, compiled=False).encode_batch,
    }


def megabytes_a_second(make: Callable[[], Encode], batches: list[list[str]], size: float) -> float:
    encode = make()
    start = time.process_time()
    for batch in batches:
        encode(batch)
    return size / (time.process_time() - start)


def main(data: Path) -> None:
    vocab_file = data / "tokenizer/bert-base-uncased-vocab.txt"
    tokenizers_by_name = makers(Vocabulary.load(vocab_file), vocab_file)
    for title, texts in (("English", english(data)), ("mixed scripts", mixed_scripts(data))):
        size = sum(len(text.encode()) for text in texts) / 1e6
        batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        rates: dict[str, list[float]] = {name: [] for name in tokenizers_by_name}
        # In rounds, so that other load slows all of them.
        for _ in range(ROUNDS):
            for name, make in tokenizers_by_name.items():
                rates[name].append(megabytes_a_second(make, batches, size))
        medians = {name: statistics.median(found) for name, found in rates.items()}
        fast_bert, hugging_face, *_ = medians.values()
        print(f"\n{title}, {size:.1f} MB of UTF-8")
        print(f"{'':36}{'MB per CPU second':>22}{'x FastBert':>12}{'x HF':>8}")
        for name, median in medians.items():
            spread = f"{median:.1f} ({min(rates[name]):.1f}-{max(rates[name]):.1f})"
            print(f"{name:36}{spread:>22}{median / fast_bert:12.2f}{median / hugging_face:8.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
