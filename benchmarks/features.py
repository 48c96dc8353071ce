"""Measure the speed of `beambert features` against a plain loop like the released extract_features.py.

The released script requires TensorFlow 1. The loop replaces it: it tokenizes texts one by one, pads all of them to
max_seq_length, uses batches of 32, rounds each value with Python's `round` and writes each line with `json.dumps`.
It runs the same model in the same compiled function as `beambert features`.

The script prints a table of seconds and ratios. A warm-up run comes first, so one-time costs are excluded.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from beambert.trainers.backends.tensorflow.startup import start_tensorflow

start_tensorflow()

import keras  # noqa: E402  (TensorFlow has to be started first)

from beambert.bert_model.checkpoints import tf1  # noqa: E402
from beambert.bert_model.checkpoints.stored_tensors import StoredTensor  # noqa: E402
from beambert.bert_model.config import BertConfig  # noqa: E402
from beambert.bert_model.pretraining import BertForPretraining  # noqa: E402
from beambert.bert_model.variable_names import variables_by_tf1_name  # noqa: E402
from beambert.trainers.commands.features import FeatureExtractor, split_pair  # noqa: E402
from beambert.trainers.inference.feature_writers import FORMATS, FeatureWriter  # noqa: E402

LAYERS = [-1, -2, -3, -4]
LENGTH = 128
BATCH_SIZE = 32
PAIRS = 100


def write_model(directory: Path, vocabulary: Path, size: str) -> None:
    """Write a model in the released layout with random weights."""
    config = BertConfig.preset(size, vocab_size=len(vocabulary.read_text(encoding="utf-8").splitlines()))
    keras.utils.set_random_seed(0)
    values = {name: value.numpy() for name, value in variables_by_tf1_name(BertForPretraining(config)).items()}
    tensors = {name: StoredTensor(v.shape, "float32", lambda v=v: v) for name, v in values.items()}
    tf1.write(directory / "bert_model.ckpt", tensors)
    (directory / "bert_config.json").write_text(config.to_json(), encoding="utf-8")
    (directory / "vocab.txt").write_bytes(vocabulary.read_bytes())


def plain(extractor: FeatureExtractor, lines: list[str], output: Path) -> None:
    """Extract features as the released script does, in a loop."""
    pieces = extractor.layout.vocabulary
    examples = [extractor.tokenizer.encode(*split_pair(line), LENGTH) for line in lines]
    with output.open("w", encoding="utf-8") as file:
        for start in range(0, len(examples), BATCH_SIZE):
            batch = examples[start : start + BATCH_SIZE]
            inputs = {
                name: np.array([example[part] for example in batch], np.int32)
                for part, name in enumerate(("input_ids", "input_mask", "segment_ids"))
            }
            layers = extractor._forward._compiled(inputs)
            for row, (ids, mask, _) in enumerate(batch):
                features = [
                    {
                        "token": pieces[ids[place]],
                        "layers": [
                            {"index": index, "values": [round(float(x), 6) for x in layer[row, place : place + 1].flat]}
                            for index, layer in zip(LAYERS, layers, strict=True)
                        ],
                    }
                    for place in range(sum(mask))
                ]
                file.write(json.dumps({"linex_index": start + row, "features": features}) + "\n")


def ours(extractor: FeatureExtractor, lines: list[str], output: Path) -> None:
    """Extract features as `beambert features` does, without its start-up."""
    with FeatureWriter(output, output.suffix[1:], extractor.layout) as writer:
        for features in extractor.extract(lines):
            writer.write(features)


def computed(extractor: FeatureExtractor, lines: list[str], _: Path) -> None:
    """Compute the features without writing a file."""
    for _features in extractor.extract(lines):
        pass


def seconds(run: Callable[[FeatureExtractor, list[str], Path], None], *args: object) -> float:
    """Return the seconds of the faster of two runs."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        run(*args)  # type: ignore[arg-type]
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Measure the models named after the data folder (default: mini and small)."""
    data, sizes = Path(sys.argv[1]), sys.argv[2:] or ["mini", "small"]
    table = (data / "glue/MRPC/dev.tsv").read_text(encoding="utf-8-sig")
    rows = table.splitlines()[1 : PAIRS + 1]
    lines = [" ||| ".join(row.split("\t")[3:5]) for row in rows] + [row.split("\t")[3] for row in rows]
    print(f"{len(lines)} texts of MRPC, half of them pairs; layers {LAYERS}, max_seq_length {LENGTH}, batches of 32")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            write_model(Path(folder), data / "tokenizer/bert-base-uncased-vocab.txt", size)
            extractor = FeatureExtractor(Path(folder), LAYERS, max_seq_length=LENGTH, batch_size=BATCH_SIZE)
            tokens = sum(len(features.input_ids) for features in extractor.extract(lines))
            plain(extractor, lines[:BATCH_SIZE], Path(folder) / "warm.jsonl")
            base = seconds(plain, extractor, lines, Path(folder) / "plain.jsonl")
            print(f"\nBERT {size}: {tokens / len(lines):.0f} tokens per text")
            print(f"{'plain loop, JSON lines':<28}{base:7.2f} s")
            for kind in FORMATS:
                taken = seconds(ours, extractor, lines, Path(folder) / f"ours.{kind}")
                print(f"{f'beambert features, {kind}':<28}{taken:7.2f} s   {base / taken:5.1f} times as fast")
            taken = seconds(computed, extractor, lines, Path(folder))
            print(f"{'  model only':<28}{taken:7.2f} s")


if __name__ == "__main__":
    main()
