"""Measure the SavedModels of `beambert export --tokenizer exact` and `--tokenizer tensorflow_text` against each other.

Both are exported from one model with random weights. The script prints their sizes, the time to load them, and the
latency of a request: of its tokenizer alone, and of the signature serving_default. Requests are sentences of English
Wikipedia, one or a batch of them, and equal for both. The script also counts the sentences of Wikipedia and of the
German XQuAD whose ids differ, uncased and cased, with the released uncased vocabulary.

Both models run in one process and take turns request by request, so that changes of the machine's speed affect both.
The table has medians, and the median of the ratios of all pairs of requests.

    PYTHONPATH=. python benchmarks/export_tokenizers.py ../shared/data tiny base
"""

import bz2
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.features import write_model

import tensorflow as tf  # isort: skip  (benchmarks.features starts it)
import tensorflow_text  # noqa: F401  (the operations of the second model)

from beambert import cli
from beambert.tokenizer.tensorflow_text_tokenizer import TensorFlowTextTokenizer
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import Vocabulary

TOKENIZERS = ("exact", "tensorflow_text")
# Requests by batch size: of the tokenizer, and of the model.
REQUESTS = {1: (400, 60), 32: (200, 15)}
# Base takes seconds for a large batch, of which the tokenizer is less than a thousandth.
LARGE_BATCHES = ("tiny", "mini", "small")
WARM_UP = 5
VOCABULARY = "tokenizer/bert-base-uncased-vocab.txt"


def sentences(data: Path) -> list[str]:
    """Return approximate sentences of English Wikipedia."""
    with bz2.open(data / "wiki-extracted/enwiki-2015-00.bz2", "rt", encoding="utf-8") as file:
        lines = (line.strip() for line in file if not line.startswith("<"))
        texts = (text for line in lines for text in line.split(". ") if len(text) > 20)
        return list(itertools.islice(texts, 20_000))


def german_sentences(data: Path) -> list[str]:
    """Return approximate sentences of the German XQuAD."""
    articles = json.loads((data / "squad/xquad.de.json").read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]
    return [sentence for paragraph in paragraphs for sentence in paragraph.split(". ")]


def num_differing(texts: list[str], vocabulary: Vocabulary, do_lower_case: bool) -> int:
    """Return the number of texts whose ids differ."""
    rows = []
    for encode in (
        Tokenizer(vocabulary, do_lower_case).encode_batch,
        TensorFlowTextTokenizer(vocabulary, do_lower_case).encode_batch,
    ):
        ids, splits = encode(texts)
        rows.append([ids[first:last].tolist() for first, last in itertools.pairwise(splits)])
    return sum(exact != other for exact, other in zip(*rows, strict=True))


def latencies(functions: list[Callable[[tf.Tensor], Any]], requests: Iterator[tf.Tensor], count: int) -> list[Any]:
    """Return the seconds of each request, for each function in turn; the order changes with every request."""
    for request in itertools.islice(requests, WARM_UP):
        for function in functions:
            function(request)
    seconds: list[list[float]] = [[] for _ in functions]
    for number, request in enumerate(itertools.islice(requests, count)):
        turns = range(len(functions))
        for index in turns if number % 2 else reversed(turns):
            start = time.perf_counter()
            functions[index](request)
            seconds[index].append(time.perf_counter() - start)
    return seconds


def batches(texts: list[str], size: int) -> Iterator[tf.Tensor]:
    """Yield batches of texts indefinitely."""
    while True:
        for start in range(0, len(texts) - size + 1, size):
            yield tf.constant(texts[start : start + size])


def megabytes(directory: Path) -> float:
    """Return the size of a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    """Measure the models named after the data folder (default: tiny and base)."""
    data, sizes = Path(sys.argv[1]), sys.argv[2:] or ["tiny", "base"]
    texts = sentences(data)
    print(f"{len(texts):,} sentences, {sum(len(text.encode()) for text in texts) / len(texts):.0f} bytes on average")
    vocabulary = Vocabulary.load(data / VOCABULARY)
    for name, of_language in (("English", texts), ("German", german_sentences(data))):
        for do_lower_case in (True, False):
            count = num_differing(of_language, vocabulary, do_lower_case)
            case = "uncased" if do_lower_case else "cased"
            print(f"{name}, {case}: {count:,} of {len(of_language):,} sentences have other ids")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "model"
            model.mkdir()
            write_model(model, data / VOCABULARY, size)
            loaded = []
            print(f"\nBERT {size}")
            for tokenizer in TOKENIZERS:
                directory = Path(folder) / tokenizer
                if cli.main(["export", str(model), str(directory), "--tokenizer", tokenizer]):
                    sys.exit(1)
                start = time.perf_counter()
                loaded.append(tf.saved_model.load(str(directory)))
                seconds = time.perf_counter() - start
                graph = (directory / "saved_model.pb").stat().st_size / 1e6
                print(f"{tokenizer}: {megabytes(directory):.1f} MB, graph {graph:.1f} MB, loaded in {seconds:.1f} s")
            print(f"{'':34}{'exact':>12}{'tensorflow_text':>18}{'ratio':>8}")
            for batch, (of_tokenizer, of_model) in REQUESTS.items():
                of_model = of_model if batch == 1 or size in LARGE_BATCHES else 0
                for name, functions, count in (
                    ("tokenizer", [saved.tokenizer for saved in loaded], of_tokenizer),
                    ("serving_default", [saved.signatures["serving_default"] for saved in loaded], of_model),
                ):
                    if not count:
                        continue
                    exact, fast = latencies(functions, batches(texts, batch), count)
                    ratio = statistics.median(a / b for a, b in zip(exact, fast, strict=True))
                    medians = [1000 * statistics.median(values) for values in (exact, fast)]
                    print(f"{f'{name}, batch of {batch}':34}{medians[0]:9.2f} ms{medians[1]:15.2f} ms{ratio:8.2f}")


if __name__ == "__main__":
    main()
