"""Measure the speed of `beambert features` against transformers on a CPU, in tokens per second.

Both compute the mean of the last layer's vectors for the same texts, with the same weights, number of threads and
precision. beambert reads the texts in file order, as the command does. transformers runs as its pipelines do: batches
of 32 in file order, each padded to its longest text, with its fast tokenizer and SDPA attention. "sorted" gives it the
same texts sorted by length. Padding is not counted as tokens. Tokenization is measured, and start-up is not.

Each library runs in a process of its own. They take turns, so that changes of the machine's speed affect all of them.
The table has the median of all rounds, and ratios of it. `--startup` measures `beambert fill-mask` from the start of
the process to its end instead. On a busy machine, `--threads 1 --cpu` gives ratios that other processes hardly
change.

    PYTHONPATH=. python benchmarks/inference.py ../shared/data uncased_L-12_H-768_A-12 --precisions float32
    PYTHONPATH=. python benchmarks/inference.py ../shared/data uncased_L-12_H-768_A-12 --startup
"""

import argparse
import bz2
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LENGTH, BATCH_SIZE = 128, 32
LIBRARIES = ("beambert", "transformers", "transformers, sorted")
# Function of texts to the number of their tokens.
Run = Callable[[list[str]], int]


def wikipedia(data: Path) -> list[str]:
    """Return paragraphs and headings of Wikipedia."""
    with bz2.open(data / "wiki-extracted/enwiki-2015-00.bz2", "rt", encoding="utf-8") as file:
        lines = (line.strip() for line in file if not line.startswith("<"))
        return [line for _, line in zip(range(2000), filter(None, lines), strict=False)]


def sst2(data: Path) -> list[str]:
    """Return the sentences of the validation split of SST-2."""
    rows = (data / "glue/SST-2/dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [row.split("\t")[0] for row in rows]


TEXTS = {"wikipedia": wikipedia, "sst2": sst2}


def beambert(model: str, precision: str) -> Run:
    """Return the forward pass of `beambert features --pooling mean`."""
    from beambert.trainers.backends.startup import ensure_backend

    ensure_backend("tensorflow")
    from beambert.trainers.commands.features import FeatureExtractor

    extractor = FeatureExtractor(Path(model), [-1], "mean", LENGTH, precision=precision)
    return lambda texts: sum(len(features.input_ids) for features in extractor.extract(texts))


def transformers(model: str, precision: str) -> Run:
    """Return a plain loop over batches, as in a pipeline of transformers."""
    import torch
    from transformers import AutoModel, BertTokenizerFast
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    tokenizer = BertTokenizerFast.from_pretrained(model)
    network = AutoModel.from_pretrained(model, dtype=getattr(torch, precision)).eval()

    def run(texts: list[str]) -> int:
        tokens = 0
        with torch.inference_mode():
            for start in range(0, len(texts), BATCH_SIZE):
                batch = tokenizer(
                    texts[start : start + BATCH_SIZE],
                    padding=True,
                    truncation=True,
                    max_length=LENGTH,
                    return_tensors="pt",
                )
                hidden = network(**batch).last_hidden_state  # [B, S, H]
                mask = batch["attention_mask"].unsqueeze(-1)  # [B, S, 1]
                _mean = (hidden.float() * mask).sum(1) / mask.sum(1)  # [B, H]
                tokens += int(mask.sum())
        return tokens

    return run


def worker(library: str, model: str, precision: str, threads: int, clock: str, path: str) -> None:
    """Print tokens and seconds of one pass over the texts in a JSON file, for every line of stdin."""
    seconds = getattr(time, clock)
    # TensorFlow has as many threads as there are processors.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    texts = json.loads(Path(path).read_text(encoding="utf-8"))
    run = (beambert if library == "beambert" else transformers)(model, precision)
    if library.endswith("sorted"):
        texts = sorted(texts, key=len)
    # A second call, because the first batch of beambert may run without a graph.
    for _ in range(2):
        run(texts[: 2 * BATCH_SIZE])
    print("ready", flush=True)
    for _ in sys.stdin:
        start = seconds()
        tokens = run(texts)
        print(json.dumps([tokens, seconds() - start]), flush=True)


def measure(
    texts: list[str], models: dict[str, str], precision: str, options: argparse.Namespace, folder: Path
) -> dict[str, tuple[int, float]]:
    """Return tokens and median seconds of each library."""
    clock = "process_time" if options.cpu else "perf_counter"
    path = folder / "texts.json"
    path.write_text(json.dumps(texts), encoding="utf-8")
    processes, results = {}, {library: [] for library in models}  # type: ignore[var-annotated]
    for library, model in models.items():
        command = [
            sys.executable,
            __file__,
            "--worker",
            library,
            model,
            precision,
            str(options.threads),
            clock,
            str(path),
        ]
        processes[library] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    for library, process in processes.items():
        if answer(process) != "ready":
            sys.exit(f"{library} did not start")
    for _ in range(options.rounds):
        for library, process in processes.items():
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            results[library].append(json.loads(answer(process)))
            print(f"{library}, {precision}: {results[library][-1][1]:.2f} s", file=sys.stderr)
    for process in processes.values():
        process.communicate()
    return {
        library: (pairs[0][0], statistics.median(seconds for _, seconds in pairs)) for library, pairs in results.items()
    }


def answer(process: subprocess.Popen[str]) -> str:
    """Return the next line that a worker prints."""
    return process.stdout.readline().strip()  # type: ignore[union-attr]


def measure_startup(model: str, rounds: int) -> None:
    """Print the seconds of `beambert fill-mask` for one text, with compiled modules and files in the page cache."""
    print("| backend | precision | seconds |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for backend in ("tensorflow", "jax"):
            if importlib.util.find_spec(backend) is None:
                continue
            for precision in ("float32", "bfloat16"):
                command = [sys.executable, "-m", "beambert", "fill-mask", model, "The capital of France is [MASK]."]
                command += ["--backend", backend, "--precision", precision]
                seconds = []
                for _ in range(rounds + 1):
                    start = time.perf_counter()
                    subprocess.run(command, check=True, capture_output=True, env=environment)
                    seconds.append(time.perf_counter() - start)
                # The first one writes the compiled modules.
                print(f"| {backend} | {precision} | {statistics.median(seconds[1:]):.2f} |", flush=True)


def main() -> None:
    """Measure, and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="Directory with wiki-extracted/ and glue/")
    parser.add_argument("model", help="BERT model with a masked-LM head, in any format")
    parser.add_argument("--texts", nargs="+", choices=tuple(TEXTS), default=tuple(TEXTS))
    parser.add_argument("--precisions", nargs="+", choices=("float32", "bfloat16"), default=("float32", "bfloat16"))
    parser.add_argument("--count", type=int, default=256, help="Number of texts, drawn at random")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cpu", action="store_true", help="CPU seconds instead of wall-clock seconds")
    parser.add_argument("--startup", action="store_true")
    args = parser.parse_args()
    if args.startup:
        measure_startup(args.model, args.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        models = {"beambert": args.model}
        if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
            print("torch or transformers is not installed: only beambert is measured", file=sys.stderr)
        else:
            converted = str(Path(folder) / "model")
            command = [sys.executable, "-m", "beambert", "convert", args.model, converted, "--to", "huggingface"]
            subprocess.run(command, check=True, capture_output=True)
            models.update(dict.fromkeys(LIBRARIES[1:], converted))
        columns = [f"{library}, tokens/s" for library in models] + [f"ratio to {library}" for library in LIBRARIES[1:]]
        print(
            f"{args.count} texts, at most {LENGTH} tokens each, {args.threads} threads, {args.rounds} rounds, "
            f"{'CPU' if args.cpu else 'wall-clock'} time\n"
        )
        print(f"| texts | precision | tokens | {' | '.join(columns)} |\n|{'---|' * (3 + len(columns))}")
        for name in args.texts:
            texts = TEXTS[name](args.data)
            texts = random.Random(0).sample(texts, min(args.count, len(texts)))
            for precision in args.precisions:
                print_row(name, precision, measure(texts, models, precision, args, Path(folder)))


def print_row(name: str, precision: str, results: dict[str, Any]) -> None:
    """Print a row of the table."""
    speeds = {library: tokens / seconds for library, (tokens, seconds) in results.items()}
    others = [f"{speeds['beambert'] / speeds[library]:.2f}" if library in speeds else "" for library in LIBRARIES[1:]]
    cells: list[Any] = [name, precision, f"{results['beambert'][0]:,}"]
    print(f"| {' | '.join([*cells, *(f'{speed:,.0f}' for speed in speeds.values()), *others])} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6], sys.argv[7])
    else:
        main()
