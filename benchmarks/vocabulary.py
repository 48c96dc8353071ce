"""Measure time and fit of the vocabulary learner and others, on the same words and the same validation words.

    python benchmarks/vocabulary.py ../shared/data [--skip_slow]        or: make bench-vocab

There are two sets of text. The validation text of both is the second half of a Wikipedia file, which neither contains:

- 30 MB: three files of extracted English Wikipedia.
- 100 MB: all available text: the rest of these files, 53 books (a tenth of it German), the raw XML of two Wikipedia
  dumps, GLUE's tables and SQuAD's contexts and questions.

The others are tensorflow_text's learner (on counts, four minutes for 30 MB, not run on 100 MB; --skip_slow skips it),
Hugging Face's WordPieceTrainer, byte-pair encoding alone (the first stage of beambert's learner), and the released
English vocabulary, which was learned from other text.
"""

import argparse
import bz2
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beambert.common.word_rules import WordRules
from beambert.tokenizer.learner import count_words, learn_vocabulary, merge_pairs, reserved_tokens
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.tokenizer.wordpiece import coverage

VOCAB_SIZE = 30_000
ALPHABET_LIMIT = 1000


def wikipedia(data: Path, number: int) -> list[str]:
    """Return the lines of one file of extracted English Wikipedia, about 10 MB."""
    with bz2.open(data / f"wiki-extracted/enwiki-2015-0{number}.bz2", "rt", encoding="utf-8") as file:
        return [line for line in file.read().split("\n") if line and not line.startswith("<")]


def other_text(data: Path) -> list[str]:
    """Yield the lines of books, dumps, GLUE and SQuAD."""
    lines = []
    for path in sorted(data.glob("gutenberg/*.txt")) + sorted(data.glob("glue/*/*.tsv")):
        content = path.read_bytes()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("latin-1")
        lines += text.split("\n")
    for path in sorted(data.glob("wiki-dump/*.bz2")):
        lines += bz2.decompress(path.read_bytes()).decode("utf-8", errors="replace").split("\n")
    for article in json.loads((data / "squad/xquad.en.json").read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            lines += [paragraph["context"], *(question["question"] for question in paragraph["qas"])]
    return lines


def merged_only(word_counts: Counter[str], vocab_size: int) -> list[str]:
    """Learn by byte-pair encoding alone, on the alphabet of beambert's learner."""
    characters: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            characters[character] += count
    alphabet = set(sorted(characters, key=lambda character: (-characters[character], character))[:ALPHABET_LIMIT])
    counts = {word: count for word, count in word_counts.items() if alphabet.issuperset(word)}
    pieces = dict.fromkeys(reserved_tokens(0))
    pieces |= dict.fromkeys(
        sorted({word[0] for word in counts} | {"##" + character for word in counts for character in word[1:]})
    )
    for piece in merge_pairs(list(counts), list(counts.values())):
        pieces[piece] = None
        if len(pieces) == vocab_size:
            break
    return list(pieces)


def tensorflow_text(word_counts: Counter[str], vocab_size: int) -> list[str]:
    """Learn with tensorflow_text from word counts."""
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

    return learner.learn(word_counts, vocab_size, list(SPECIAL_TOKENS), max_unique_chars=ALPHABET_LIMIT)


def hugging_face(lines: list[str], vocab_size: int) -> list[str]:
    """Learn with Hugging Face's trainer, which counts the words of the text."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        limit_alphabet=ALPHABET_LIMIT,
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return list(tokenizer.get_vocab())


@contextmanager
def sign_of_life(name: str) -> Iterator[None]:
    """Print the time every 30 seconds while the body runs."""
    stop = threading.Event()
    start = time.monotonic()

    def report() -> None:
        while not stop.wait(30):
            print(f"    {name} running for {time.monotonic() - start:.0f} s ...", flush=True)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def measure(
    name: str, learn: Callable[[], list[str]], held_out: Counter[str], before: tuple[float, float] = (0.0, 0.0)
) -> None:
    """Print a row: wall-clock and CPU seconds (all threads, plus those spent `before`), size, fit."""
    wall, cpu = time.monotonic(), time.process_time()
    try:
        with sign_of_life(name):
            pieces = learn()
    except ImportError as error:
        print(f"  {name:<38}{error.name} is not installed: pip install -e '.[bench]'")
        return
    wall, cpu = time.monotonic() - wall + before[0], time.process_time() - cpu + before[1]
    print(f"  {name:<38}{wall:7.1f} s {cpu:7.1f} s {len(pieces):7}   {coverage(held_out, set(pieces))}", flush=True)


def compare(title: str, lines: list[str], held_out: Counter[str], data: Path, slow: bool) -> None:
    """Print the table of one set of text."""
    size = sum(len(line.encode()) + 1 for line in lines) / 1e6
    wall, cpu = time.monotonic(), time.process_time()
    word_counts = count_words(lines, WordRules())
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    print(f"\n{title}: {size:.1f} MB, {word_counts.total():,} words, {len(word_counts):,} distinct", flush=True)
    print(f"  {'':38}{'wall clock':>9} {'CPU':>8} {'tokens':>8}   on validation words (counting took {wall:.1f} s)")
    measure(
        "beambert, counting included",
        lambda: learn_vocabulary(word_counts, VOCAB_SIZE, alphabet_limit=ALPHABET_LIMIT),
        held_out,
        (wall, cpu),
    )
    measure(
        "byte-pair encoding alone, the same way", lambda: merged_only(word_counts, VOCAB_SIZE), held_out, (wall, cpu)
    )
    measure("Hugging Face tokenizers, from text", lambda: hugging_face(lines, VOCAB_SIZE), held_out)
    if slow:
        measure("tensorflow_text, on the counts alone", lambda: tensorflow_text(word_counts, VOCAB_SIZE), held_out)
    released = list(Vocabulary.load(data / "tokenizer/bert-base-uncased-vocab.txt").tokens)
    measure("released bert-base-uncased", lambda: released, held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of real data")
    parser.add_argument("--skip_slow", action="store_true", help="skip tensorflow_text's learner")
    args = parser.parse_args()
    files = [wikipedia(args.data, number) for number in range(6)]
    half = len(files[5]) // 2
    held_out = count_words(files[5][half:], WordRules())
    print(f"{VOCAB_SIZE:,} tokens; validation: {held_out.total():,} words of enwiki-2015-05", flush=True)
    compare("30 MB", [line for lines in files[:3] for line in lines], held_out, args.data, not args.skip_slow)
    everything = [line for lines in [*files[:5], files[5][:half], other_text(args.data)] for line in lines]
    compare("100 MB", everything, held_out, args.data, slow=False)


if __name__ == "__main__":
    main()
