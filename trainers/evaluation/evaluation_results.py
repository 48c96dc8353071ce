"""The results of an evaluation, and their JSON form."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from beambert.common.word_rules import WordRules, without_released_rules
from beambert.trainers.evaluation.pair_scores import PairScores
from beambert.trainers.evaluation.published_pair_scores import published_accuracies
from beambert.trainers.evaluation.text_scores import MaskedLmScores, MeanScore

FORMAT, FORMAT_VERSION = "beambert-evaluation", 1


@dataclass(frozen=True)
class TextResults:
    """The results on text.

    Attributes:
        windows: number of windows.
        tokens: number of scored tokens, without [CLS] and [SEP].
        all_tokens: number of tokens of the files; more than `tokens` with --max_tokens.
        unknown_tokens: number of [UNK] among the scored tokens.
        masked_lm: loss and accuracy with 15 % of the tokens masked.
        negative_log_likelihood: of the tokens, each masked in turn; its exponential is the pseudo-perplexity.
    """

    windows: int
    tokens: int
    all_tokens: int
    unknown_tokens: int
    masked_lm: MaskedLmScores
    negative_log_likelihood: MeanScore

    @property
    def pseudo_perplexity(self) -> MeanScore:
        """Return exp(mean negative log-likelihood), with its standard error to first order."""
        loss = self.negative_log_likelihood
        value = math.exp(min(loss.mean, 700.0))  # Without overflow.
        error = None if loss.standard_error is None else value * loss.standard_error
        return MeanScore(value, error, loss.tokens)


@dataclass(frozen=True)
class PairResults:
    """The results on minimal pairs.

    Attributes:
        all_pairs: number of pairs in the files; more than were scored with --max_pairs.
        equal_tokens: number of pairs whose sentences have the same tokens, which are ties.
        unknown: number of pairs with [UNK].
        scores: the accuracies.
    """

    all_pairs: int
    equal_tokens: int
    unknown: int
    scores: PairScores


@dataclass(frozen=True)
class EvaluationResults:
    """The results of `beambert evaluate`.

    Attributes:
        model: path of the model.
        vocabulary_sha256: hash of the vocabulary.
        word_rules: rules that split text into words.
        max_seq_length: maximum length of a sentence or window in tokens, including [CLS] and [SEP].
        precision: precision of matrix products.
        whole_word: whether the later tokens of the same word were masked too.
        text: results on text; None without text.
        pairs: results on minimal pairs; None without pairs.
    """

    model: str
    vocabulary_sha256: str
    word_rules: WordRules
    max_seq_length: int
    precision: str
    whole_word: bool
    text: TextResults | None
    pairs: PairResults | None

    def to_json(self) -> dict[str, Any]:
        """Return the content of the output file: fractions for accuracies, nats for losses, null where undefined."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "model": self.model,
            "vocabulary_sha256": self.vocabulary_sha256,
            **without_released_rules(asdict(self.word_rules)),
            "max_seq_length": self.max_seq_length,
            "precision": self.precision,
            "whole_word": self.whole_word,
            "text": None if self.text is None else _text_json(self.text),
            "pairs": None if self.pairs is None else _pairs_json(self.pairs),
        }


def _text_json(text: TextResults) -> dict[str, Any]:
    return {
        "windows": text.windows,
        "tokens": text.tokens,
        "all_tokens": text.all_tokens,
        "unknown_tokens": text.unknown_tokens,
        "masked_lm_loss": text.masked_lm.loss._asdict(),
        "masked_lm_accuracy": text.masked_lm.accuracy._asdict(),
        "pseudo_perplexity": text.pseudo_perplexity._asdict(),
        "negative_log_likelihood": text.negative_log_likelihood._asdict(),
    }


def _pairs_json(results: PairResults) -> dict[str, Any]:
    scores = results.scores
    benchmark, published = published_accuracies(scores.fields, len(scores.paradigms))
    return {
        "pairs": scores.mean_of_paradigms.pairs,
        "all_pairs": results.all_pairs,
        "ties": scores.ties,
        "equal_tokens": results.equal_tokens,
        "pairs_with_unknown_tokens": results.unknown,
        "mean_of_paradigms": scores.mean_of_paradigms._asdict(),
        "mean_of_fields": None if scores.mean_of_fields is None else scores.mean_of_fields._asdict(),
        "error_between_paradigms": scores.error_between_paradigms,
        "fields": {name: score._asdict() for name, score in scores.fields.items()},
        "paradigms": [
            {"paradigm": paradigm.name, "field": paradigm.field, **paradigm.score._asdict()}
            for paradigm in scores.paradigms
        ],
        "benchmark": benchmark,
        "published_percent": [line._asdict() for line in published],
    }
