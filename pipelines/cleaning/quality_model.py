"""Score the quality of a text by logistic regression on hashed words, trained on good and bad texts of the user.

The features are the words of a document and the pairs of neighboring words. GPT-3's filter of Common Crawl is also a
logistic regression on hashed words (Brown et al. 2020, appendix A). A model is one file in the format of safetensors.
"""

import dataclasses
import functools
import hashlib
import json
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from beambert.pipelines.cleaning.ngrams import plain_bytes
from beambert.pipelines.documents import identity
from beambert.pipelines.errors import SourceError
from beambert.pipelines.io.atomic_files import read_bytes
from beambert.pipelines.io.manifest_schemas import ClassCounts, QualityModelReport

FORMAT = "beambert-quality-model-1"
_BUCKET_BITS = 18
BUCKETS = 1 << _BUCKET_BITS
_PAIR_FACTOR = np.uint32(0x9E3779B1)
# Weights are multiples of this, and smaller than _WEIGHT_LIMIT: their sums in float64 are exact, in any order.
_WEIGHT_STEP = 2.0**-16
_WEIGHT_LIMIT = 128.0
_PROBABILITY_DIGITS = 6
# Maximum size of a model file, header included; larger files are not read completely.
MAX_FILE_BYTES = 4 * BUCKETS + (1 << 16)

# Training: a class keeps the documents with the smallest IDs, a random sample, up to this number of words and pairs.
MAX_NGRAMS = 30_000_000
MIN_DOCUMENTS = 20
_EPOCHS = 3
_BATCH = 64
_LEARNING_RATE = 0.2
_DECAY = 1e-5
SNIPPET_CHARACTERS = 120


def ngram_buckets(text: str) -> np.ndarray:
    """Return the hash bucket of each word of a text and of each pair of neighboring words: uint32 [max(0, 2 W - 1)]."""
    words = plain_bytes(text).split()
    hashes = np.fromiter(map(zlib.crc32, words), np.uint32, len(words))
    return np.concatenate([hashes, hashes[:-1] * _PAIR_FACTOR + hashes[1:]]) >> np.uint32(32 - _BUCKET_BITS)


@dataclasses.dataclass(frozen=True)
class QualityModel:
    """A quality model.

    Attributes:
        weights: float64 [BUCKETS], whose values are float32.
        bias: logit of a text without words.
        report: validation results, for people: numbers of documents, accuracy, and the table of calibration.
    """

    weights: np.ndarray
    bias: float
    report: QualityModelReport

    def probability(self, text: str) -> float:
        """Return the probability that a text is good, if good and bad texts are equally frequent: 0 to 1, 6 digits."""
        return _probability(self.weights, self.bias, ngram_buckets(text))

    def to_bytes(self) -> bytes:
        """Return the content of a model file, which safetensors reads too."""
        header = {
            "__metadata__": {"format": FORMAT, "report": json.dumps(self.report, sort_keys=True)},
            "bias": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            "weights": {"dtype": "F32", "shape": [BUCKETS], "data_offsets": [4, 4 + 4 * BUCKETS]},
        }
        encoded = json.dumps(header, sort_keys=True).encode()
        encoded += b" " * (-len(encoded) % 8)
        values = np.concatenate([[self.bias], self.weights]).astype("<f4")
        return struct.pack("<Q", len(encoded)) + encoded + values.tobytes()


def parse(content: bytes, path: str) -> QualityModel:
    """Return the model of a file.

    Args:
        content: bytes of the file, at most the first `MAX_FILE_BYTES` + 1.
        path: its path, for messages.

    Raises:
        SourceError: it is not a quality model, or is corrupt.
    """
    problem = f"{path} is not a quality model of this version of beambert"
    try:
        (size,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8 : 8 + size])
        metadata = header["__metadata__"]
        if metadata["format"] != FORMAT:
            raise ValueError(metadata["format"])
        report = msgspec.json.decode(metadata["report"], type=QualityModelReport)
    except (ValueError, KeyError, TypeError, struct.error, RecursionError, OverflowError) as error:
        raise SourceError(f"{problem}; train one with beambert quality train") from error
    values = content[8 + size :]
    if len(values) != 4 * (BUCKETS + 1):
        raise SourceError(
            f"{path} is corrupt: {len(values):,} bytes of weights, not {4 * (BUCKETS + 1):,}; copy it again"
        )
    numbers = np.frombuffer(values, "<f4").astype(np.float64)
    if not (np.abs(numbers) <= _WEIGHT_LIMIT).all():
        raise SourceError(f"{path} is corrupt: a weight is no number up to {_WEIGHT_LIMIT:g}; copy it again")
    return QualityModel(numbers[1:], float(numbers[0]), report)


@functools.lru_cache(maxsize=4)
def load(path: str, sha256: str = "") -> QualityModel:
    """Read a model from any Beam filesystem; the result is cached in the process.

    Args:
        path: the file.
        sha256: its hex SHA-256 when the job started, or "".

    Raises:
        SourceError: it is missing, is not a quality model, or has changed.
    """
    content = read_model(path)
    if sha256 and hashlib.sha256(content).hexdigest() != sha256:
        raise SourceError(f"--quality_model {path} has changed since the job started; run the same command again")
    return parse(content, f"--quality_model {path}")


def checksum(path: str) -> str:
    """Return the hex SHA-256 of a model file. Raise SourceError as `load` does."""
    content = read_model(path)
    parse(content, f"--quality_model {path}")
    return hashlib.sha256(content).hexdigest()


def read_model(path: str) -> bytes:
    """Return the content of a model file. Raise SourceError if it cannot be read."""
    try:
        return read_bytes(path, MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise SourceError(f"--quality_model {path} does not exist; check the path") from error
    except OSError as error:
        raise SourceError(f"--quality_model {path} cannot be read ({error}); check the path") from error


class Example(NamedTuple):
    """A training document: its ID, its `ngram_buckets` and its first characters."""

    id: bytes
    buckets: np.ndarray
    snippet: str


class TextSample:
    """The distinct texts of a class: those with the smallest IDs, up to `MAX_NGRAMS`, in any order of arrival.

    Attributes:
        seen: number of texts with words.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._examples: dict[bytes, Example] = {}
        self._ngrams = 0

    def add(self, text: str) -> None:
        """Add a text; one without words is left out."""
        example = Example(identity([text]), ngram_buckets(text), " ".join(text[:SNIPPET_CHARACTERS].split()))
        if not len(example.buckets):
            return
        self.seen += 1
        if example.id not in self._examples:
            self._examples[example.id] = example
            self._ngrams += len(example.buckets)
        if self._ngrams > 2 * MAX_NGRAMS:
            self._examples = {kept.id: kept for kept in self.examples()}
            self._ngrams = sum(len(kept.buckets) for kept in self._examples.values())

    def examples(self) -> list[Example]:
        """Return the sample, in order of the IDs."""
        kept, ngrams = [], 0
        for _, example in sorted(self._examples.items()):
            if ngrams >= MAX_NGRAMS:
                break
            kept.append(example)
            ngrams += len(example.buckets)
        return kept


class Trained(NamedTuple):
    """A trained model, and validation examples with their probabilities: (probability, whether good, snippet)."""

    model: QualityModel
    validation: list[tuple[float, bool, str]]


def train(good: Sequence[Example], bad: Sequence[Example]) -> Trained:
    """Train a model; 80% of each class are the training part, 10% calibrate it, and 10% validate it.

    Both classes have the same total weight. The result depends on the texts only, not on their order.

    Args:
        good, bad: examples in order of their IDs, at least `MIN_DOCUMENTS` each.
    """
    parts: list[list[tuple[Example, bool]]] = [[], [], []]
    for examples, is_good in ((good, True), (bad, False)):
        for number, example in enumerate(examples):
            parts[{0: 1, 5: 2}.get(number % 10, 0)].append((example, is_good))
    training, calibration, validation = (sorted(part, key=lambda pair: pair[0].id) for part in parts)
    weights, bias = _fit([pair[0].buckets for pair in training], np.array([pair[1] for pair in training]))
    logits = np.array([_logit(weights, bias, example.buckets) for example, _ in calibration])
    scale, shift = _calibrate(logits, np.array([is_good for _, is_good in calibration]))
    bound = _WEIGHT_LIMIT - _WEIGHT_STEP
    rounded = np.round(np.clip(weights * scale, -bound, bound) / _WEIGHT_STEP) * _WEIGHT_STEP
    bias = float(np.float32(np.clip(bias * scale + shift, -bound, bound)))
    scored = [
        (_probability(rounded, bias, example.buckets), is_good, example.snippet) for example, is_good in validation
    ]
    documents: ClassCounts = {"good": len(good), "bad": len(bad)}
    report = validation_report([(probability, is_good) for probability, is_good, _ in scored], documents)
    return Trained(QualityModel(rounded, bias, report), scored)


def _logit(weights: np.ndarray, bias: float, buckets: np.ndarray) -> float:
    return bias + float(weights[buckets].sum()) / math.sqrt(len(buckets) or 1)


def _probability(weights: np.ndarray, bias: float, buckets: np.ndarray) -> float:
    return round(1 / (1 + math.exp(-max(-700.0, _logit(weights, bias, buckets)))), _PROBABILITY_DIGITS)


def _class_weights(is_good: np.ndarray) -> np.ndarray:
    """Return a weight for each example: both classes have the same sum, and the mean is 1."""
    share = is_good.mean()
    return np.where(is_good, 0.5 / share, 0.5 / (1 - share))


def _fit(documents: Sequence[np.ndarray], is_good: np.ndarray) -> tuple[np.ndarray, float]:
    """Return weights and bias of a logistic regression, by AdaGrad (Duchi et al. 2011) with L2 regularization."""
    weights, bias = np.zeros(BUCKETS), 0.0
    squares, bias_square = np.full(BUCKETS, 1e-8), 1e-8
    importance = _class_weights(is_good)
    for _ in range(_EPOCHS):
        for start in range(0, len(documents), _BATCH):
            batch = documents[start : start + _BATCH]
            lengths = np.array([len(buckets) for buckets in batch])
            buckets, norms = np.concatenate(batch), 1 / np.sqrt(lengths)
            rows = np.repeat(np.arange(len(batch)), lengths)
            logits = np.bincount(rows, weights[buckets], len(batch)) * norms + bias
            errors = _sigmoid(logits) - is_good[start : start + _BATCH]
            errors *= importance[start : start + _BATCH] / len(batch)
            gradient = np.bincount(buckets, (errors * norms)[rows], BUCKETS) + _DECAY * weights
            squares += gradient * gradient
            weights -= _LEARNING_RATE * gradient / np.sqrt(squares)
            bias_square += errors.sum() ** 2
            bias -= _LEARNING_RATE * errors.sum() / math.sqrt(bias_square)
    return weights, float(bias)


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(logits, -700, 700)))


def _calibrate(logits: np.ndarray, is_good: np.ndarray) -> tuple[float, float]:
    """Return (scale, shift) of logits, at which their probabilities are calibrated (Platt 1999, by Newton's method)."""
    positives, negatives = int(is_good.sum()), int((~is_good).sum())
    targets = np.where(is_good, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    importance = _class_weights(is_good)
    features = np.stack([logits, np.ones_like(logits)], axis=-1)  # [N, 2]
    parameters = np.zeros(2)
    for _ in range(100):
        probabilities = _sigmoid(features @ parameters)
        gradient = features.T @ (importance * (probabilities - targets))
        curvature = importance * probabilities * (1 - probabilities)
        hessian = (features * curvature[:, np.newaxis]).T @ features + 1e-6 * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        parameters -= step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-10:
            break
    return max(0.0, float(parameters[0])), float(parameters[1])


def validation_report(scored: Sequence[tuple[float, bool]], documents: ClassCounts) -> QualityModelReport:
    """Return the results on validation documents.

    Args:
        scored: probability and whether the document is good.
        documents: documents by class, those of the training included.

    Returns:
        "documents". "validation": validation documents by class. "accuracy": mean of both classes at the threshold 0.5.
        "calibration": for each fifth of the probabilities, (documents, mean probability, fraction of good ones), with
        both classes weighted equally; None for an empty one. "thresholds": for each, (threshold, fraction of good kept,
        of bad kept).
    """
    probabilities = np.array([probability for probability, _ in scored])
    is_good = np.array([good for _, good in scored])
    importance = _class_weights(is_good)
    bins = np.minimum((probabilities * 5).astype(int), 4)
    calibration: list[tuple[int, float, float] | None] = []
    for number in range(5):
        inside = bins == number
        total = importance[inside].sum()
        if not total:
            calibration.append(None)
            continue
        mean, good = (float(importance[inside] @ values[inside] / total) for values in (probabilities, is_good))
        calibration.append((int(inside.sum()), round(mean, 4), round(good, 4)))
    kept = {
        threshold: [float((probabilities[kind] >= threshold).mean()) for kind in (is_good, ~is_good)]
        for threshold in (0.1, 0.3, 0.5, 0.7, 0.9)
    }
    return {
        "documents": documents,
        "validation": {"good": int(is_good.sum()), "bad": int((~is_good).sum())},
        "accuracy": round((kept[0.5][0] + 1 - kept[0.5][1]) / 2, 4),
        "calibration": calibration,
        "thresholds": [(threshold, round(good, 4), round(bad, 4)) for threshold, (good, bad) in kept.items()],
    }


def nearest(
    validation: Sequence[tuple[float, bool, str]], threshold: float, count: int
) -> Iterator[tuple[float, bool, str]]:
    """Yield the `count` validation examples whose probability is the nearest to a threshold, by probability."""
    yield from sorted(sorted(validation, key=lambda row: (abs(row[0] - threshold), row))[:count])
