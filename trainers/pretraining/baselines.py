"""Compute the baselines of a run's training text, before the first step.

This file imports neither Keras nor TensorFlow.
"""

from pathlib import Path

import numpy as np

from beambert.pipelines.dataset import Dataset
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION
from beambert.trainers.data.text_sample import EVALUATED_PREDICTIONS, TextSample, read_sample
from beambert.trainers.metrics.baseline_record import BaselineRecord
from beambert.trainers.metrics.ngram_baselines import MaskRates, NgramModel
from beambert.trainers.metrics.text_measures import TextMeasures, label_fractions, rare_fraction, repeated_fraction


def baselines_of(
    directory: Path, dataset: Dataset, vocabulary: Vocabulary, *, causal: bool, next_sentence: bool
) -> BaselineRecord | None:
    """Return the levels and the measures of a sample of a dataset; None if it has too few readable rows.

    Args:
        directory: dataset directory.
        dataset: the manifest.
        vocabulary: its vocabulary.
        causal: whether the model sees no right neighbors.
        next_sentence: whether next-sentence prediction is trained.
    """
    sample = read_sample(directory, dataset)
    if sample is None:
        return None
    ignored = (vocabulary.cls_id, vocabulary.sep_id)
    model = NgramModel(sample.counted, len(vocabulary), ignored)
    rates = _rates(dataset)
    levels = model.levels(sample.evaluated, rates, vocabulary.mask_id, causal=causal, most=EVALUATED_PREDICTIONS)
    labels = sample.next_sentence_labels if next_sentence else np.zeros(0, np.int32)
    return BaselineRecord.of(levels, _measures(sample, model, rates, vocabulary, labels))


def _rates(dataset: Dataset) -> MaskRates:
    mask, random = (float(dataset.options[name]) for name in ("mask_rate", "random_rate"))
    return MaskRates(unchanged=max(1.0 - mask - random, 0.0), random=random)


def _measures(
    sample: TextSample, model: NgramModel, rates: MaskRates, vocabulary: Vocabulary, labels: np.ndarray
) -> TextMeasures:
    ids = sample.counted.original_ids()
    is_text = sample.counted.is_token & ~np.isin(ids, (vocabulary.cls_id, vocabulary.sep_id))
    tokens = int(model.counts.sum())
    predictions, masked, unchanged, top = label_fractions(sample.evaluated, vocabulary.mask_id)
    fractions = {
        "repeated": repeated_fraction(ids, is_text),
        "rare_vocabulary": rare_fraction(model.counts, _is_learned(vocabulary), tokens * sample.rows / len(ids)),
        "masked": masked,
        "expected_masked": 1.0 - rates.unchanged - rates.random,
        "unchanged": unchanged,
        "expected_unchanged": rates.unchanged,
        "most_frequent_label": top,
        "labeled_1": float(np.mean(labels == 1)) if len(labels) else 0.0,
    }
    rounded = {name: round(value, 4) for name, value in fractions.items()}
    return TextMeasures(tokens=tokens, predictions=predictions, pairs=len(labels), **rounded)


def _is_learned(vocabulary: Vocabulary) -> np.ndarray:
    """Return whether each token is of several characters, bool [V]: every character of a text is in its vocabulary."""
    is_learned = np.array([len(token.removeprefix(CONTINUATION)) > 1 for token in vocabulary.tokens])
    is_text = np.zeros(len(vocabulary), bool)
    is_text[vocabulary.text_ids()] = True
    return is_learned & is_text
