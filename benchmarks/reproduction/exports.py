"""Compare the exports of a fine-tuned model: outputs, score, latency of single texts on the CPU, and size."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.reproduction.commands import run_beambert

# Format and quantization.
EXPORTS = (("savedmodel", "none"), ("onnx", "none"), ("onnx", "int8"), ("litert", "none"), ("litert", "int8"))
Answer = Callable[[str], np.ndarray]


class Measured(NamedTuple):
    """Probabilities of the texts, float32 [N, labels], and the median latency of a text in seconds."""

    probabilities: np.ndarray
    latency: float


def run(runs: Path, data: Path, work: Path) -> list[list[str]]:
    """Return a row of the table for a model and each export.

    Args:
        runs: directory with finished runs of CoLA; the first one is exported.
        data: data directory.
        work: directory of the exported models.
    """
    finished = sorted(path.parent for path in runs.glob("seed-*/eval_results.json"))
    if not finished:
        sys.exit(f"{runs} has no fine-tuned model: run the part {runs.name} first")
    model = finished[0]
    lines = (data / "glue" / "CoLA" / "dev.tsv").read_text(encoding="utf-8").splitlines()
    columns = [line.split("\t") for line in lines]
    texts, labels = [column[3] for column in columns], np.array([int(column[1]) for column in columns])
    base = measured(_model(model), texts)
    rows = [_row("beambert predict", base, base, labels, 4 * _parameters(model))]
    for kind, quantization in EXPORTS:
        directory = work / f"{kind}-{quantization}"
        if not directory.is_dir():
            run_beambert("export", str(model), str(directory), "--to", kind, "--quantization", quantization)
        found = measured(_OPEN[kind](directory), texts)
        size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        name = kind if quantization == "none" else f"{kind}, {quantization}"
        rows.append(_row(name, found, base, labels, size))
    return rows


def measured(answer: Answer, texts: list[str]) -> Measured:
    """Return the probabilities and the latency of texts, one at a time."""
    for text in texts[:20]:
        answer(text)
    probabilities, seconds = [], []
    for text in texts:
        begin = time.perf_counter()
        probabilities.append(answer(text))
        seconds.append(time.perf_counter() - begin)
    return Measured(np.stack(probabilities), float(np.median(seconds)))


def matthews(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Return the Matthews correlation of binary labels, int [N] each."""
    return float(np.corrcoef(labels, predicted)[0, 1])


def _row(name: str, found: Measured, base: Measured, labels: np.ndarray, size: int) -> list[str]:
    difference = np.abs(found.probabilities - base.probabilities).max()
    score = 100 * matthews(labels, found.probabilities.argmax(axis=1))
    changed = int((found.probabilities.argmax(axis=1) != base.probabilities.argmax(axis=1)).sum())
    return [
        f"export, {name}",
        "" if found is base else f"largest difference of a probability {difference:.1e}",
        f"Matthews {score:.1f}, {changed} of {len(labels):,} labels changed",
        f"{1000 * found.latency:.1f} ms a text, {size / 2**20:.0f} MiB",
    ]


def _parameters(model: Path) -> int:
    """Return the number of parameters of a model for CoLA."""
    from beambert.bert_model.config import BertConfig
    from beambert.bert_model.heads import HEADS
    from beambert.bert_model.size import parameter_counts

    return parameter_counts(BertConfig.load(model / "bert_config.json"), HEADS["classification"], 2).total


def _model(directory: Path) -> Answer:
    from beambert.trainers.inference.model_loading import load_model
    from beambert.trainers.inference.predictor import Predictor

    model = load_model(directory)
    predictor = Predictor(model, top_k=len(model.labels))

    def answer(text: str) -> np.ndarray:
        (found,) = predictor.answers([text], ["text"])
        by_label = {label["label"]: label["probability"] for label in found["labels"]}
        return np.array([by_label[label] for label in model.labels], np.float32)

    return answer


def _savedmodel(directory: Path) -> Answer:
    import tensorflow as tf

    loaded = tf.saved_model.load(str(directory))
    signature = loaded.signatures["serving_default"]

    def answer(text: str) -> np.ndarray:
        assert loaded is not None  # The signature does not keep the variables alive.
        return np.asarray(signature(text=tf.constant([text]))["probabilities"][0])

    return answer


def _onnx(directory: Path) -> Answer:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 1
    session = onnxruntime.InferenceSession(directory / "model.onnx", options)
    return _of_ids(directory, lambda inputs: session.run(None, inputs)[0][0])


def _litert(directory: Path) -> Answer:
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(str(directory / "model.tflite"), num_threads=os.cpu_count())
    runner = interpreter.get_signature_runner()
    return _of_ids(directory, lambda inputs: runner(**inputs)["probabilities"][0])


def _of_ids(directory: Path, probabilities: Callable[[dict[str, Any]], np.ndarray]) -> Answer:
    """Return the function from a text to probabilities for an export that takes token ids.

    Args:
        directory: the export, with its tokenizer.
        probabilities: function of the inputs by name, int32 [1, T] each for T tokens of the text, without padding.
    """
    from beambert.tokenizer.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(str(directory))

    def answer(text: str) -> np.ndarray:
        names = ("input_ids", "input_mask", "segment_ids")
        encoded = tokenizer.encode(text, max_seq_length=128)
        rows = (np.array([row[: sum(encoded[1])]], np.int32) for row in encoded)
        return probabilities(dict(zip(names, rows, strict=True)))

    return answer


_OPEN: dict[str, Callable[[Path], Answer]] = {"savedmodel": _savedmodel, "onnx": _onnx, "litert": _litert}
