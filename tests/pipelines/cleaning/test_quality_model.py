"""Test the quality model: features and scores against plain Python, training, calibration and corrupt files."""

import itertools
import json
import math
import random
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.cleaning import quality_model
from beambert.pipelines.cleaning.quality_model import (
    BUCKETS,
    QualityModel,
    TextSample,
    load,
    nearest,
    ngram_buckets,
    parse,
    train,
    validation_report,
)
from beambert.pipelines.errors import SourceError

WORDS = [f"w{number}" for number in range(300)]


def bucket(*words: str) -> int:
    hashes = [zlib.crc32(word.encode()) for word in words]
    value = hashes[0] if len(words) == 1 else (hashes[0] * 0x9E3779B1 + hashes[1]) % 2**32
    return value >> 14


def texts(seed: int, count: int, good: float) -> list[str]:
    """Return texts whose words are of the first half of WORDS with a probability of `good`."""
    rng = random.Random(seed)
    return [
        " ".join(rng.choice(WORDS[:150] if rng.random() < good else WORDS[150:]) for _ in range(rng.randint(5, 60)))
        for _ in range(count)
    ]


def sample(of: list[str]) -> TextSample:
    result = TextSample()
    for text in of:
        result.add(text)
    return result


@pytest.fixture(scope="module")
def trained():
    return train(sample(texts(1, 400, 0.6)).examples(), sample(texts(2, 400, 0.4)).examples())


def test_features_are_words_and_pairs_without_case_and_punctuation():
    expected = [bucket("die"), bucket("größe"), bucket("x"), bucket("die", "größe"), bucket("größe", "x")]
    assert ngram_buckets("Die Größe: (X)\n").tolist() == expected
    assert ngram_buckets("one").tolist() == [bucket("one")]
    assert ngram_buckets(" ... ").tolist() == []


@given(text=st.text(alphabet="ab ß.-ע\n", max_size=30))
@settings(max_examples=50)
def test_a_score_is_the_sum_of_the_weights_over_the_root_of_their_number(trained, text):
    words = "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()
    buckets = [bucket(word) for word in words] + [bucket(*pair) for pair in itertools.pairwise(words)]
    weights = trained.model.weights
    logit = math.fsum(weights[number] for number in buckets) / max(1, len(buckets)) ** 0.5 + trained.model.bias
    assert trained.model.probability(text) == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-6)


def test_a_model_distinguishes_the_classes(trained):
    for good, expected in ((0.6, 0.9), (0.4, 0.1)):
        of_class = [trained.model.probability(text) for text in texts(3, 300, good)]
        assert np.mean([(each >= 0.5) == (expected > 0.5) for each in of_class]) > 0.75
    assert trained.model.report["documents"] == {"good": 400, "bad": 400}
    assert trained.model.report["validation"] == {"good": 40, "bad": 40}
    assert len(trained.validation) == 80


def test_probabilities_are_calibrated():
    """Test with classes that overlap: of the texts with about the same probability, that share is good."""
    model = train(sample(texts(4, 2000, 0.55)).examples(), sample(texts(5, 1000, 0.45)).examples()).model
    good, bad = (np.array([model.probability(text) for text in texts(6, 1500, share)]) for share in (0.55, 0.45))
    for low, high in ((0.0, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 1.0)):
        inside = [scores[(scores >= low) & (scores < high)] for scores in (good, bad)]
        assert min(map(len, inside)) > 50
        assert np.concatenate(inside).mean() == pytest.approx(len(inside[0]) / sum(map(len, inside)), abs=0.08)


def test_calibration_recovers_scale_and_shift():
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 1, 20_000)
    is_good = rng.random(20_000) < 1 / (1 + np.exp(-2 * logits))
    scale, shift = quality_model._calibrate(logits + 0.5, is_good)
    assert (scale, shift) == (pytest.approx(2, abs=0.1), pytest.approx(-1, abs=0.1))
    # A score without information is not inverted, and separable classes keep finite weights.
    assert quality_model._calibrate(-logits, is_good)[0] == 0
    assert 0 < quality_model._calibrate(np.array([-1.0, 1.0]), np.array([False, True]))[0] < 10


def test_the_same_texts_in_any_order_give_the_same_bytes(trained):
    good, bad = texts(1, 400, 0.6), texts(2, 400, 0.4)
    random.Random(1).shuffle(good)
    again = train(sample([*good, *good[:50]]).examples(), sample(bad[::-1]).examples())
    assert again.model.to_bytes() == trained.model.to_bytes()
    assert again.validation == trained.validation


def test_the_sample_of_many_texts_does_not_depend_on_their_order(monkeypatch):
    monkeypatch.setattr(quality_model, "MAX_NGRAMS", 1000)
    many = texts(1, 300, 0.5)
    examples = sample(many).examples()
    ids = [each.id for each in examples]
    assert [each.id for each in sample(many[::-1]).examples()] == ids
    sizes = [len(each.buckets) for each in examples]
    assert sum(sizes[:-1]) < 1000 <= sum(sizes)
    monkeypatch.undo()
    assert [each.id for each in sample(many).examples()][: len(ids)] == ids


def test_weights_sum_exactly_in_any_order(trained):
    weights = trained.model.weights
    assert (weights * 2**16 == np.round(weights * 2**16)).all()
    assert (weights.astype(np.float32) == weights).all()


def test_a_file_is_read_again_and_by_safetensors(trained, tmp_path):
    content = trained.model.to_bytes()
    model = parse(content, "m")
    assert (model.weights == trained.model.weights).all()
    assert (model.bias, model.report) == (trained.model.bias, trained.model.report)
    numpy = pytest.importorskip("safetensors.numpy")
    tensors = numpy.load(content)
    assert (tensors["weights"] == model.weights).all()
    assert tensors["bias"].tolist() == [model.bias]


def test_the_results_on_validation_documents():
    scored = [(0.05, False), (0.15, True), (0.55, True), (0.95, True), (0.85, False)]
    assert validation_report(scored, {"good": 30, "bad": 20}) == {
        "documents": {"good": 30, "bad": 20},
        "validation": {"good": 3, "bad": 2},
        "accuracy": 0.5833,
        # Good documents weigh a third, bad ones a half.
        "calibration": [(2, 0.09, 0.4), None, (1, 0.55, 1.0), None, (2, 0.89, 0.4)],
        "thresholds": [(0.1, 1.0, 0.5), (0.3, 0.6667, 0.5), (0.5, 0.6667, 0.5), (0.7, 0.3333, 0.5), (0.9, 0.3333, 0.0)],
    }


def test_the_examples_nearest_to_a_threshold():
    rows = [(0.9, True, "a"), (0.45, False, "b"), (0.52, True, "c"), (0.1, False, "d")]
    assert list(nearest(rows, 0.5, 2)) == [(0.45, False, "b"), (0.52, True, "c")]


def with_header(header: object, weights: bytes = bytes(4 * (BUCKETS + 1))) -> bytes:
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + weights


CLASSES = {"good": 30, "bad": 20}
REPORT = {"documents": CLASSES, "validation": CLASSES, "accuracy": 0.5, "calibration": [None], "thresholds": []}
VALID = {"__metadata__": {"format": "beambert-quality-model-1", "report": json.dumps(REPORT)}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not a quality model"),
        (b"A text.\n" * 9, "is not a quality model"),
        (b"PK\x03\x04" + bytes(100), "is not a quality model"),
        (b"\x80\x04\x95" + bytes(100), "is not a quality model"),
        (struct.pack("<Q", 2**63) + b"{}", "is not a quality model"),
        (with_header([]), "is not a quality model"),
        (with_header({"weights": {}}), "is not a quality model"),
        (
            with_header({"__metadata__": VALID["__metadata__"] | {"format": "beambert-quality-model-2"}}),
            "is not a quality model",
        ),
        (
            # corpus.json takes the report over.
            with_header({"__metadata__": VALID["__metadata__"] | {"report": '{"accuracy": "<b>"}'}}),
            "is not a quality model",
        ),
        (
            # The report of a dataset shows both classes.
            with_header({"__metadata__": VALID["__metadata__"] | {"report": json.dumps(REPORT | {"documents": {}})}}),
            "is not a quality model",
        ),
        (with_header(VALID, bytes(100)), "is corrupt: 100 bytes of weights"),
        (with_header(VALID, bytes(4 * (BUCKETS + 2))), "is corrupt"),
        (with_header(VALID, struct.pack("<f", math.nan) * (BUCKETS + 1)), "is corrupt: a weight is no number"),
        (with_header(VALID, struct.pack("<f", 1e30) * (BUCKETS + 1)), "is corrupt: a weight is no number"),
    ],
)
def test_other_files_are_one_line(content, says):
    with pytest.raises(SourceError, match=f"^m {says}") as caught:
        parse(content, "m")
    assert "\n" not in str(caught.value)


@given(data=st.data())
@settings(max_examples=100)
def test_a_changed_header_is_an_error_or_a_model(data):
    content = bytearray(with_header(VALID, bytes(16)))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with pytest.raises(SourceError):
        parse(bytes(content), "m")


def test_a_large_file_is_not_read_completely(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SourceError, match="large is not a quality model"):
        load(str(tmp_path / "large"))


def test_a_text_without_words_has_the_probability_of_the_bias():
    assert QualityModel(np.zeros(BUCKETS), 0.0, REPORT).probability("...") == 0.5
    assert QualityModel(np.zeros(BUCKETS), -128.0, REPORT).probability("") == 0.0
