"""Compare the losses of a released BERT with an extended vocabulary, by the initialization of the new embeddings.

The domain is eight plays of Shakespeare in the spelling of the first folio (Project Gutenberg); two further plays are
the validation split. All starts train on the same masked words in the same order (`benchmarks/masked_words.py`):

- unextended: the released model with its own vocabulary;
- mean: `beambert extend-vocab`, whose new embeddings are means of former ones;
- random: the same vocabulary, with random new embeddings and zero biases, as for a new BERT;
- scratch: the same vocabulary and shape, with random weights.

Every result is added to WORK/results.jsonl at once, and a second call computes only what is missing.

    PYTHONPATH=. python benchmarks/extend_vocabulary.py MODEL --data ../shared/data --work build/extend
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.masked_words import MaskedWordTrainer, masked_rows, weights_of, words_of

TRAIN = ("0ws0110", "0ws0210", "0ws0410", "0ws0610", "0ws1010", "0ws1810", "0ws2510", "0ws3610")
HELD_OUT = ("0ws4010", "0ws4110")
STARTS = ("unextended", "mean", "random", "scratch")
# With 1.2 tokens per word, nearly all rows fit.
WORDS_PER_ROW, LENGTH = 96, 128
RANDOM_DEVIATION = 0.02


def start_weights(start: str, model: str, extended: str) -> tuple:
    """Return configuration, vocabulary and weights of a start."""
    config, vocabulary, weights = weights_of(model if start == "unextended" else extended)
    if start == "random":
        former = weights_of(model)[0].vocab_size
        generator = np.random.default_rng(0)
        words = weights["bert/embeddings/word_embeddings"]
        words[former:] = generator.normal(0, RANDOM_DEVIATION, words[former:].shape)
        weights["cls/predictions/output_bias"][former:] = 0
    return config, vocabulary, {} if start == "scratch" else weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a released uncased BERT")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("build/extend-vocabulary"))
    parser.add_argument("--num_tokens", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--eval_rows", type=int, default=64)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--scratch_learning_rate", type=float, default=1e-4)
    parser.add_argument("--precision", default="mixed_bfloat16")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=STARTS)
    args = parser.parse_args()

    args.work.mkdir(parents=True, exist_ok=True)
    extended, results = args.work / "extended", args.work / "results.jsonl"
    train_files, held_out_files = (
        [str(args.data / "gutenberg" / f"{name}.txt") for name in names] for names in (TRAIN, HELD_OUT)
    )
    if not extended.exists():
        command = ["extend-vocab", args.model, "--num_tokens", str(args.num_tokens), "--output", str(extended)]
        subprocess.run([sys.executable, "-m", "beambert", *command, "--input", *train_files], check=True)
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    finished = {(result["start"], result["step"]) for result in done}

    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    from beambert.trainers.backends.startup import ensure_backend

    ensure_backend()
    import keras

    keras.mixed_precision.set_dtype_policy(args.precision)
    train_rows = masked_rows(words_of(train_files, True), WORDS_PER_ROW, args.steps * args.batch_size, seed=1)
    held_out = masked_rows(words_of(held_out_files, True), WORDS_PER_ROW, args.eval_rows, seed=2)
    evaluate_at = [0, args.steps // 4, args.steps // 2, args.steps]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, {time.strftime('%Y-%m-%d')}")
    for start in args.starts:
        if (start, args.steps) in finished:
            continue
        config, vocabulary, weights = start_weights(start, args.model, str(extended))
        rate = args.scratch_learning_rate if start == "scratch" else args.learning_rate
        trainer = MaskedWordTrainer(config, weights, vocabulary, LENGTH, args.batch_size, args.steps, rate)
        del weights
        for step in trainer.train(train_rows, evaluate_at):
            result = {"start": start, "step": step, **trainer.evaluate(held_out), "cpu": time.process_time()}
            print(json.dumps(result), flush=True)
            with results.open("a") as file:
                file.write(json.dumps(result) + "\n")
        del trainer
        keras.backend.clear_session()
    for line in results.read_text().splitlines():
        result = json.loads(line)
        print(
            f"| {result['start']} | {result['step']} | {result['token']:.3f} | {result['word']:.3f} "
            f"| {result['character']:.3f} |"
        )


if __name__ == "__main__":
    main()
