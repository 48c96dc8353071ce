"""Measure what each cleaning rule is worth to the model: train with all rules, and with each rule left out.

    make bench-rules

English Wikipedia, Project Gutenberg and news pages are cut into pages of 200 to 400 words. A model is trained on half
of them, as in the first run of `benchmarks.small_bert` but with fewer layers. The pages of other articles and books are
dirtied, with the shares of `DIRT`: menus and footers of web sites, near-duplicates, wrongly decoded text, pages in
German, spam, and pages in which half of the words come from menus. `beambert corpus` cleans them, once with the flags
of each row. For each row and seed, the model is trained further on the result, for the same number of steps with the
same vocabulary. All are evaluated on cleaned pages of other articles and books again, and on BLiMP.

A command whose result exists is not run again, so that the benchmark may be stopped at any time.
"""

import argparse
import json
import os
import random
import shlex
import statistics
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from beambert.common.local_files import write_atomic
from beambert.pipelines.cleaning.rules import CleaningOptions
from beambert.pipelines.corpus.document_steps import clean_document
from beambert.pipelines.documents import Document
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file
from beambert.tokenizer import Tokenizer
from benchmarks.quality_filter import dirty
from benchmarks.quality_filter import pages as news_pages
from benchmarks.reproduction.commands import run_beambert
from benchmarks.small_bert.__main__ import MODEL, claim, extract_pairs

WORDS = (200, 400)
WORDS_OF_A_BOOK = 30_000
WORDS_OF_A_MENU = 100
SITES = 60
# Pages that are dirtied or added, as a fraction of the clean ones.
DIRT = {"menus": 0.5, "near-duplicates": 0.3, "mojibake": 0.2, "German": 0.1, "spam": 0.1, "word salad": 0.1}
# The rules of each row that leaves some out: flags that turn them on, or names for --skip_rules.
RULES = {
    "lines of a domain": ["--drop_domain_lines", "3"],
    "near-duplicates": ["--drop_near_duplicates"],
    "mojibake": ["--fix_mojibake"],
    "language": ["--identify_language"],
    "quality model": ["--quality_model", "quality.model", "--min_quality", "0.5"],
    "document rules": "symbols,digits,non_letters,repeated_lines,repeated_ngrams",
    "paragraph rules": "residual_markup,editorial_marks,unicode_nfc,control_characters,boilerplate,no_letters",
}
BEFORE = "before further training"
SEEDS = (1, 2, 3)
# Position embeddings beyond it are not trained.
MAX_LENGTH = 16
EXAMPLES = shlex.split(
    f"--max_seq_length {MAX_LENGTH} --max_predictions_per_seq 3 --masking dynamic --dupe_factor 1 --objective mlm "
    "--short_seq_prob 0"
)
TRAINING = shlex.split(
    "--no_next_sentence --optimizer adamw --lr_schedule wsd --train_batch_size 128 --precision bfloat16 --do_train"
)
# Smaller than the small BERT, which takes eight times as long.
LAYERS = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
START_STEPS = 2000
START = shlex.split("--model model.json --learning_rate 1e-3 --num_warmup_steps 100")
FURTHER = shlex.split("--init_checkpoint start/run --learning_rate 5e-4 --num_warmup_steps 50")
VALIDATION_TOKENS = 6000
PAIRS_OF_A_PARADIGM = 12


class Page(NamedTuple):
    """A document of a web site."""

    lines: list[str]
    url: str


class Texts(NamedTuple):
    """Pages by use. No article, book or news page is in two of them."""

    start: list[list[str]]
    dirtied: list[list[str]]
    validation: list[list[str]]
    quality: list[list[str]]


def cut(paragraphs: Iterable[str], rng: random.Random) -> Iterator[list[str]]:
    """Yield pages of whole paragraphs, each with at least 200 to 400 words; the rest is left out."""
    page, words, least = [], 0, rng.randint(*WORDS)
    for paragraph in paragraphs:
        page.append(paragraph)
        words += len(paragraph.split())
        if words >= least:
            yield page
            page, words, least = [], 0, rng.randint(*WORDS)


def is_german(text: str) -> bool:
    """Return whether a book is German rather than English."""
    words = text[:50_000].split()
    return words.count("und") > words.count("and")


def first_words(paragraphs: list[str], count: int) -> list[str]:
    """Return the first paragraphs, with about `count` words."""
    result = []
    for paragraph in paragraphs:
        if count <= 0:
            break
        result.append(paragraph)
        count -= len(paragraph.split())
    return result


def read_texts(data: Path) -> tuple[Texts, list[list[str]], list[list[str]]]:
    """Return pages of English text, pages of German text, and the menus and footers of web sites."""
    rng = random.Random(0)
    files = sorted((data / "wiki-extracted").glob("*.bz2"))[:2]
    sources = [each.paragraphs for file in files for each in read_file(str(file), ReadOptions())]
    files = sorted((data / "gutenberg").glob("*.txt"))
    books = [each for file in files for each in read_file(str(file), ReadOptions())]
    sources += [first_words(each.paragraphs, WORDS_OF_A_BOOK) for each in books if not is_german(each.text)]
    news = list(news_pages(data / "html-articles"))
    sources += [article for article, _ in news]
    texts = Texts([], [], [], [])
    for number, paragraphs in enumerate(sources):
        use = {0: texts.validation, 1: texts.quality}.get(number % 20, texts.start if number % 2 else texts.dirtied)
        use.extend(cut(paragraphs, rng))
    german = [page for each in books if is_german(each.text) for page in cut(each.paragraphs, rng)]
    return texts, german, [first_words(rest, WORDS_OF_A_MENU) for _, rest in news[:SITES]]


# Dirt


def near_duplicate(lines: list[str], words: list[str], rng: random.Random) -> list[str]:
    """Return a copy of a page in which about 5 % of the words of a line are replaced."""
    copy = list(lines)
    longest = max(range(len(copy)), key=lambda number: len(copy[number]))
    own = copy[longest].split()
    count = max(1, len(" ".join(copy).split()) // 20)
    start = rng.randrange(max(1, len(own) - count))
    own[start : start + count] = rng.choices(words, k=count)
    copy[longest] = " ".join(own)
    return copy


def decoded_wrongly(text: str) -> str:
    """Return UTF-8 text as a program shows it that takes it for cp1252."""
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in text.encode())


def spam(number: int, words: list[str], rng: random.Random) -> list[str]:
    """Return a page of spam: tags, prices, a repeated line, or a repeated slogan, by `number`."""
    if number % 4 == 0:
        return [" ".join(f"#{word} {word} ..." for word in rng.choices(words, k=20)) + "." for _ in range(8)]
    if number % 4 == 1:
        return [
            " ".join(f"{word} {rng.randint(100, 99_999)}.{rng.randint(10, 99)}" for word in rng.choices(words, k=20))
            for _ in range(8)
        ]
    if number % 4 == 2:
        line = " ".join(rng.choices(words, k=15)).capitalize() + "."
        return [other for _ in range(12) for other in (line, " ".join(rng.choices(words, k=8)).capitalize() + ".")]
    slogan = " ".join(rng.choices(words, k=14))
    return [f"{' '.join(rng.choices(words, k=4)).capitalize()} {slogan}." for _ in range(16)]


def dirtied(pages: list[list[str]], german: list[list[str]], menus: list[list[str]]) -> Iterator[Page]:
    """Yield the pages of web sites with all kinds of dirt, in random order."""
    rng = random.Random(1)
    words = [word for page in pages for line in page for word in line.split() if word.isalpha()]
    menu_words = [word for menu in menus for line in menu for word in line.split()]

    def count(kind: str) -> int:
        return round(DIRT[kind] * len(pages))

    mixed = list(pages)
    for number in rng.sample(range(len(pages)), count("mojibake")):
        mixed[number] = [decoded_wrongly(line) for line in mixed[number]]
    copied = rng.sample(pages, count("near-duplicates") // 3)
    mixed += [near_duplicate(page, words, rng) for page in copied for _ in range(3)]
    mixed += rng.sample(german, min(count("German"), len(german)))
    mixed += [spam(number, words, rng) for number in range(count("spam"))]
    mixed += [dirty(page, menu_words, rng) for page in rng.sample(pages, count("word salad"))]
    rng.shuffle(mixed)
    with_menu = set(rng.sample(range(len(mixed)), round(DIRT["menus"] * len(mixed))))
    for number, lines in enumerate(mixed):
        site = number % len(menus)
        half = len(menus[site]) // 2
        menu = (menus[site][:half], menus[site][half:]) if number in with_menu else ([], [])
        yield Page([*menu[0], *lines, *menu[1]], f"https://site{site}.example/{number}")


# The commands


def write_inputs(results: Path, data: Path) -> None:
    """Write the texts of all commands once: clean and dirty pages, good and bad ones, validation texts."""
    if (results / "validation.txt").is_file():
        return
    texts, german, menus = read_texts(data)
    rng = random.Random(2)
    menu_words = [word for menu in menus for line in menu for word in line.split()]
    bad = [dirty(page, menu_words, rng) for page in texts.quality]
    write_pages(results / "dirty.jsonl", dirtied(texts.dirtied, german, menus))
    for name, pages in (("start", texts.start), ("clean", texts.dirtied), ("good", texts.quality), ("bad", bad)):
        write_pages(results / f"{name}.jsonl", [Page(lines, "") for lines in pages])
    cleaned = [clean_document(Document(lines), CleaningOptions()).paragraphs for lines in texts.validation]
    write_atomic(results / "validation.txt", "".join(f"{line}\n" for lines in cleaned for line in lines).encode())


def write_pages(path: Path, pages: Iterable[Page]) -> None:
    """Write pages as JSON lines."""
    rows = (json.dumps({"text": "\n".join(page.lines), "url": page.url}) for page in pages)
    write_atomic(path, "".join(f"{row}\n" for row in rows).encode())


def write_pairs(results: Path) -> None:
    """Write the first pairs of each paradigm of BLiMP whose sentences are not longer than those of the training."""
    tokenizer = Tokenizer.load(results / "vocab.txt")
    (results / "pairs").mkdir(exist_ok=True)
    for source in sorted((results / "blimp/data").glob("*.jsonl")):
        pairs = source.read_text(encoding="utf-8").splitlines(keepends=True)
        sentences = [json.loads(pair)[name] for pair in pairs for name in ("sentence_good", "sentence_bad")]
        _, row_splits = tokenizer.encode_batch(sentences)
        short = (np.diff(row_splits).reshape(-1, 2) <= MAX_LENGTH - 2).all(axis=1)
        kept = [pair for pair, is_short in zip(pairs, short, strict=True) if is_short]
        write_atomic(results / "pairs" / source.name, "".join(kept[:PAIRS_OF_A_PARADIGM]).encode())


def flags_of_rules(left_out: Iterable[str]) -> list[str]:
    """Return the flags of `beambert corpus` without some of the rules."""
    left_out, flags = set(left_out), []
    for name, rule in RULES.items():
        if isinstance(rule, list) and name not in left_out:
            flags += rule
    skipped = [rule for name, rule in RULES.items() if isinstance(rule, str) and name in left_out]
    return [*flags, *(["--skip_rules", ",".join(skipped)] if skipped else [])]


def rows() -> dict[str, tuple[str, list[str]]]:
    """Return file of pages and flags of each row of the table."""
    return {
        "all rules": ("dirty.jsonl", flags_of_rules([])),
        **{f"without {name}": ("dirty.jsonl", flags_of_rules([name])) for name in RULES},
        "no rules": ("dirty.jsonl", flags_of_rules(RULES)),
        "clean text, all rules": ("clean.jsonl", flags_of_rules([])),
    }


def folder_of(row: str) -> str:
    """Return the directory of a row of the table."""
    return row.replace(" ", "-").replace(",", "")


def run_once(results: Path, result: str, *flags: str) -> None:
    """Run a command in the directory of results, unless its result exists."""
    if not (results / result).is_file():
        run_beambert(*flags, directory=results)


def build(results: Path, source: str, folder: str, *flags: str) -> None:
    """Clean pages, and make examples of them."""
    corpus, data = f"{folder}/corpus", f"{folder}/data"
    flags = ("--input", source, "--keep_fields", "url", "--output", corpus, "--vocab_file", "vocab.txt", *flags)
    run_once(results, f"{corpus}/corpus.json", "corpus", *flags)
    run_once(results, f"{data}/dataset.json", "pretraining-data", "--input", corpus, "--output", data, *EXAMPLES)


def train(results: Path, folder: str, run: str, steps: int, *flags: str) -> None:
    """Train on the examples of a directory."""
    output = f"{folder}/{run}"
    flags = ("--data", f"{folder}/data", "--output", output, "--num_train_steps", str(steps), *TRAINING, *flags)
    run_once(results, f"{output}/checkpoints/model.ckpt-{steps}.index", "pretrain", *flags)


def evaluate(results: Path, folder: str, run: str) -> tuple[float, float]:
    """Return the loss of a run on the validation texts, with one token masked at a time, and its BLiMP accuracy."""
    result = f"{folder}/{run}.json"
    texts = ("--texts", "validation.txt", "--max_tokens", str(VALIDATION_TOKENS))
    run_once(results, result, "evaluate", f"{folder}/{run}", *texts, "--pairs", "pairs", "--output", result)
    found = read_json(results / result)
    return found["text"]["negative_log_likelihood"]["mean"], found["pairs"]["mean_of_paradigms"]["accuracy"]


def scores_of(results: Path, steps: int) -> dict[str, list[tuple[float, float]]]:
    """Run all commands, and return loss and accuracy of each row and seed."""
    size = str(read_json(MODEL)["vocab_size"])
    vocabulary = ("--input", "start.jsonl", "--output", "vocab.txt", "--vocab_size", size)
    run_once(results, "vocab.txt", "vocab", *vocabulary)
    write_pairs(results)
    samples = ("--good", "good.jsonl", "--bad", "bad.jsonl", "--output", "quality.model")
    run_once(results, "quality.model", "quality", "train", *samples)
    write_atomic(results / "model.json", json.dumps({**read_json(MODEL), **LAYERS}).encode())
    build(results, "start.jsonl", "start")
    train(results, "start", "run", START_STEPS, *START)
    for name, (source, flags) in rows().items():
        build(results, source, folder_of(name), *flags)

    def score(row_and_seed: tuple[str, int]) -> tuple[float, float]:
        row, seed = row_and_seed
        folder, run = folder_of(row), f"run-{seed}"
        train(results, folder, run, steps, "--seed", str(seed), *FURTHER)
        return evaluate(results, folder, run)

    runs = [(row, seed) for seed in SEEDS for row in rows()]
    scores: dict[str, list[tuple[float, float]]] = {BEFORE: [evaluate(results, "start", "run")] * 3}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (row, _), found in zip(runs, pool.map(score, runs), strict=True):
            scores.setdefault(row, []).append(found)
    return scores


def standard_error(values: list[float]) -> float:
    """Return the standard error of the mean."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def table(results: Path, scores: dict[str, list[tuple[float, float]]]) -> str:
    """Return the scores as a Markdown table: means over the seeds, and differences from all rules, seed by seed."""
    columns = ["rules", "documents kept", "MB kept", "masked-LM loss", "difference", "BLiMP", "difference"]
    lines = [columns, ["---"] * len(columns)]
    for name, of_seeds in scores.items():
        cells = [name, "", ""]
        if name != BEFORE:
            counts = read_json(results / folder_of(name) / "corpus" / "corpus.json")["counts"]
            cells = [name, f"{sum(counts['documents'].values()):,}", f"{counts['bytes'] / 1e6:.2f}"]
        for place, scale, digits in ((0, 1, 3), (1, 100, 2)):
            values = [scale * each[place] for each in of_seeds]
            changes = [value - scale * base[place] for value, base in zip(values, scores["all rules"], strict=True)]
            cells.append(f"{statistics.mean(values):.{digits}f} ± {standard_error(values):.{digits}f}")
            cells.append(f"{statistics.mean(changes):+.{digits}f} ± {standard_error(changes):.{digits}f}")
        if name == "all rules":
            cells[4] = cells[6] = ""
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    """Run the commands without results, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="data directory")
    parser.add_argument("results", type=Path, help="directory of texts, corpora, models and scores")
    parser.add_argument("--steps", type=int, default=600, help="steps of each further training (default: 600)")
    options = parser.parse_args()
    data, results = options.data.resolve(), options.results.resolve()
    claim(results, {"data": str(data), "steps": options.steps})
    extract_pairs(data / "blimp", results / "blimp")
    write_inputs(results, data)
    print(f"\n{table(results, scores_of(results, options.steps))}")


if __name__ == "__main__":
    main()
