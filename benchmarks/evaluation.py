"""Measure the speed of `beambert evaluate` on minimal pairs against a plain loop over masked copies.

The loop masks one token at a time, runs the model on that copy alone, with the logits of every position, and takes the
log-softmax at the masked position. It is measured operation by operation, as a model is called in Python, and with the
forward pass compiled. Both use the same model, tokenizer and pairs. Log-probabilities of both are compared.

Usage: python benchmarks/evaluation.py DATA [MODEL ...], with a model size or a directory for MODEL. DATA has the
directory blimp with the unpacked JSON Lines of BLiMP, or its archive.
"""

import argparse
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from beambert.trainers.backends.tensorflow.startup import start_tensorflow

start_tensorflow()

from beambert.bert_model.config import PRESETS  # noqa: E402
from beambert.bert_model.variable_names import variables_by_tf1_name  # noqa: E402
from beambert.trainers.backends.backend import active_backend  # noqa: E402
from beambert.trainers.evaluation.evaluation_run import encode_pairs  # noqa: E402
from beambert.trainers.evaluation.minimal_pairs import read_pairs, sample_pairs  # noqa: E402
from beambert.trainers.inference.masked_scoring import MaskedScorer, masked_copies  # noqa: E402
from beambert.trainers.inference.model_loading import InferenceModel, load_model  # noqa: E402
from benchmarks.features import write_model  # noqa: E402  (TensorFlow has to be started first)

ROUNDS = 3


def plain_loop(forward: Callable[[dict[str, np.ndarray]], Any], rows: list[np.ndarray], mask_id: int) -> np.ndarray:
    """Return the sum of the log-probabilities of each text, one masked copy at a time."""
    sums = []
    for row in rows:
        total = 0.0
        for number, copy in enumerate(masked_copies(row, mask_id), start=1):
            features = {
                "input_ids": copy[None],
                "input_mask": np.ones((1, len(row)), np.int32),
                "segment_ids": np.zeros((1, len(row)), np.int32),
                "masked_lm_positions": np.arange(len(row), dtype=np.int32)[None],
            }
            logits = np.asarray(forward(features))[0, number].astype(np.float64)
            total += logits[row[number]] - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        sums.append(total)
    return np.array(sums)


def seconds(run: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the seconds that a function takes, the CPU seconds of all its threads, and its result."""
    start, cpu_start = time.perf_counter(), time.process_time()
    result = run()
    return time.perf_counter() - start, time.process_time() - cpu_start, result


def measure(model: InferenceModel, pairs_directory: str, loop_pairs: int, pairs: int) -> None:
    """Print the masked tokens per second of the loops and of the batched scorer, medians of alternating rounds."""
    tokenizer = model.tokenizer()
    all_pairs = read_pairs("DATA", [pairs_directory])
    few = encode_pairs(sample_pairs(all_pairs, loop_pairs), tokenizer, 512).rows
    many = encode_pairs(sample_pairs(all_pairs, pairs), tokenizer, 512).rows
    scorer = MaskedScorer(model, 512)
    variables = list(variables_by_tf1_name(model.model).values())

    def forward(features: dict[str, Any]) -> Any:
        return model.model(features).masked_lm

    backend = active_backend()
    runs: dict[str, tuple[Callable[[], Any], list[np.ndarray]]] = {
        "plain loop": (
            lambda: plain_loop(backend.compiled(forward, variables, once=True), few, model.vocabulary.mask_id),
            few,
        ),
        "plain loop, compiled": (lambda: plain_loop(compiled, few, model.vocabulary.mask_id), few),
        "beambert evaluate": (lambda: scorer.token_log_probabilities(many), many),
    }
    compiled = backend.compiled(forward, variables)
    plain_loop(compiled, few[:2], model.vocabulary.mask_id)
    scorer.token_log_probabilities(few[:64])
    speeds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    results = {}
    for _ in range(ROUNDS):
        for name, (run, rows) in runs.items():
            taken, cpu, results[name] = seconds(run)
            tokens = sum(len(row) - 2 for row in rows)
            speeds[name].append((tokens / taken, tokens / cpu))
    ours = np.array([scores.sum(dtype=np.float64) for scores in scorer.token_log_probabilities(few)])
    difference = np.abs(ours - results["plain loop"]).max()
    medians = {
        name: [statistics.median(column) for column in zip(*rounds, strict=True)] for name, rounds in speeds.items()
    }
    best, best_cpu = medians["beambert evaluate"]
    print(f"{'':24}{'tokens/s':>10}{'ratio':>8}{'per CPU s':>12}{'ratio':>8}")
    for name, (speed, cpu) in medians.items():
        print(f"{name:24}{speed:10,.1f}{best / speed:8.1f}{cpu:12,.1f}{best_cpu / cpu:8.1f}")
    print(f"largest difference of a sum of log-probabilities: {difference:.1e}", flush=True)


def main() -> None:
    """Measure the models that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="*", default=["tiny", "mini", "small"])
    parser.add_argument("--loop", type=int, default=20, help="pairs of the plain loops")
    parser.add_argument("--pairs", type=int, default=670, help="pairs of beambert evaluate")
    parser.add_argument("--precision", default="float32")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = args.data / "blimp"
        if archive := next(directory.glob("*.tar.xz"), None):
            directory = Path(folder, "pairs")
            with tarfile.open(archive) as file:
                file.extractall(directory, filter="data")
        for name in args.models:
            path = Path(name)
            if name in PRESETS:
                path = Path(folder, f"model-{name}")
                path.mkdir()
                write_model(path, args.data / "tokenizer/bert-base-uncased-vocab.txt", name)
            print(f"\n{name}, {args.precision}, {args.loop} and {args.pairs} pairs of BLiMP")
            measure(load_model(path, precision=args.precision), str(directory), args.loop, args.pairs)


if __name__ == "__main__":
    main()
