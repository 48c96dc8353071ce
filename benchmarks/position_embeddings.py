"""Compare initial values of further position embeddings, on a released BERT.

The model is cut to its first positions. Then it gets more of them, by each method of `beambert convert
--position_init`. The released model itself, which was trained with all positions, shows what is
lost. All starts train on the same masked words in the same order (`benchmarks/masked_words.py`), on Wikipedia articles;
the validation split is another file.

Every result is added to WORK/results.jsonl at once, and a second call computes only what is missing.

    PYTHONPATH=. python benchmarks/position_embeddings.py MODEL --data ../shared/data --work build/positions
"""

import argparse
import json
import os
import time
from pathlib import Path

from benchmarks.masked_words import MaskedWordTrainer, masked_rows, weights_of, words_of

STARTS = ("released", "tile", "interpolate", "random")
POSITIONS = "bert/embeddings/position_embeddings"
# English Wikipedia has 1.2 tokens of the released vocabulary per word.
WORDS_PER_TOKEN = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a released uncased BERT")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("build/position-embeddings"))
    parser.add_argument("--former", type=int, default=128, help="positions of the cut model")
    parser.add_argument("--length", type=int, default=256, help="positions of the longer models")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--eval_rows", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--precision", default="mixed_bfloat16")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=STARTS)
    args = parser.parse_args()

    args.work.mkdir(parents=True, exist_ok=True)
    results = args.work / "results.jsonl"
    done = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    finished = {(result["start"], result["step"]) for result in done}
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    from beambert.trainers.backends.startup import ensure_backend

    ensure_backend()
    import keras

    from beambert.bert_model.checkpoints.embedding_rows import position_rows

    keras.mixed_precision.set_dtype_policy(args.precision)
    words_per_row = int(WORDS_PER_TOKEN * args.length)
    train, held_out = (
        masked_rows(words_of([str(args.data / "wiki-extracted" / name)], True), words_per_row, rows, seed)
        for name, rows, seed in (
            ("enwiki-2015-00.bz2", args.steps * args.batch_size, 1),
            ("enwiki-2015-05.bz2", args.eval_rows, 2),
        )
    )
    for start in args.starts:
        if (start, args.steps) in finished:
            continue
        config, vocabulary, weights = weights_of(args.model)
        if start != "released":
            longer = position_rows(weights[POSITIONS][: args.former], args.length, start, config.initializer_range)
            weights[POSITIONS][: args.length] = longer
        rate = args.learning_rate
        trainer = MaskedWordTrainer(config, weights, vocabulary, args.length, args.batch_size, args.steps, rate)
        del weights
        for step in trainer.train(train, [0, args.steps // 2, args.steps]):
            result = {"start": start, "step": step, **trainer.evaluate(held_out), "cpu": time.process_time()}
            print(json.dumps(result), flush=True)
            with results.open("a") as file:
                file.write(json.dumps(result) + "\n")
        del trainer
        keras.backend.clear_session()
    for line in results.read_text().splitlines():
        result = json.loads(line)
        print(f"| {result['start']} | {result['step']} | {result['token']:.3f} | {result['word']:.3f} |")


if __name__ == "__main__":
    main()
