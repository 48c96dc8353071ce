"""Diagnose a pretraining run that stays on a level: causes that its measured facts show, with figure and remedy.

The rules are pure functions of `RunFacts`. Their limits are set between the figures of runs with and without each
fault (`docs/guides/loss-stuck.md`, tests/trainers/metrics). This file imports neither Keras nor TensorFlow.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from beambert.trainers.metrics.ngram_baselines import BIGRAM, UNCHANGED, UNIGRAM
from beambert.trainers.metrics.text_measures import TextMeasures

# Metrics of training lines: update-to-weight ratio, and root mean square of the weights.
UPDATE_RATIO, WEIGHT_RMS = "update_ratio", "weight_rms"

# Causes of findings.
LABELS, REPETITION, ONE_CLASS, VOCABULARY = "labels_or_masks", "repeated_lines", "one_class", "vocabulary_too_large"
LEARNING_RATE, WARMUP, TOO_FEW = "learning_rate_too_high", "warmup_too_short", "too_few_steps"

# Of the windows of a sample: 1% on Wikipedia, 7% in SST-2, whose lines contain each other.
_MOST_REPEATED = 0.3
_MOST_RARE = 0.5
# With fewer predictions or labels, a deviation may be chance.
_LEAST_LABELS = 200
# A smaller sample is of a test, or of text that is too little for any vocabulary.
_LEAST_TOKENS = 10_000
# Nats by which neighbors must improve on frequencies: labels that do not belong to the text gain nothing.
_LEAST_NEIGHBOR_GAIN = 0.05
_MOST_FREQUENT_LABEL = 0.5
# Root mean square of an update, relative to that of the initial weights: at most 0.07 in runs that learn, at least 0.17
# in runs whose rate or warm-up keeps them on the plateau.
_HIGHEST_UPDATE = 0.12
# The same, relative to the learning rate. Adam's steps are 0.2 to 0.3 of the rate after their first hundreds, and
# without bias correction several times longer before (`beambert.trainers.optimization.optimizers`).
_LONGEST_STEP = 0.6
_USUAL_STEP = 0.3
# The median of the second half, relative to the learning rate: at least 0.2 in runs that learn or are too short, and at
# most 0.05 in runs that have collapsed. For stationary gradients it is sqrt((1 - b1) / (1 + b1)) = 0.23 or more.
_SHORTEST_STEP = 0.1
# Fraction of a run after which a level is not a phase of its beginning.
_PLAIN_AFTER = 0.5
# Log lines over which the loss of a run is averaged, and with fewer of which a run is not diagnosed.
_LINES = 3
# A run is on the level of token frequencies until it has gained this fraction of the distance to that of neighbors.
_LEAST_GAIN = 0.05


class Finding(NamedTuple):
    """A cause that a run does not learn.

    Attributes:
        cause: identifier of the cause.
        figure: what was measured.
        remedy: what to do about it.
    """

    cause: str
    figure: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.figure}. {self.remedy}"


class Update(NamedTuple):
    """The last update before a line of the log.

    Attributes:
        step: step of the line.
        ratio: update-to-weight ratio.
        rms: root mean square of the update.
        learning_rate: learning rate of the step.
    """

    step: int
    ratio: float
    rms: float
    learning_rate: float


class RunFacts(NamedTuple):
    """The measured facts of a pretraining run.

    Attributes:
        step: number of completed steps.
        num_train_steps, num_warmup_steps: steps of the schedule.
        learning_rate: peak learning rate.
        initial_rms: root mean square of the initial weights.
        losses: (step, masked_lm_loss in nats) of the training lines, by step.
        updates: measured updates of the same lines.
        levels: masked-LM loss of each level.
        text: measures of the training text; None if they are unknown.
        tokens: training tokens so far, with padding.
        parameters: number of parameters; None if unknown.
        is_pretrained: whether training began with the weights, and so with the vocabulary, of another model.
    """

    step: int
    num_train_steps: int
    num_warmup_steps: int
    learning_rate: float
    initial_rms: float
    losses: Sequence[tuple[int, float]]
    updates: Sequence[Update]
    levels: Mapping[str, float]
    text: TextMeasures | None
    tokens: int = 0
    parameters: int | None = None
    is_pretrained: bool = False


def findings_of_text(text: TextMeasures, levels: Mapping[str, float]) -> list[Finding]:
    """Return the causes that the training text shows, before the first step.

    Args:
        text: measures of the training text.
        levels: masked-LM loss of each level.
    """
    return [*_broken_labels(text, levels), *_one_class(text), *_repetition(text), *_vocabulary(text)]


def findings_of_run(facts: RunFacts) -> list[Finding]:
    """Return the causes that a run does not learn, at its current step; empty for a healthy run.

    Causes of the text do not depend on the steps. Those of the optimizer require that the run is on the level of token
    frequencies after half of its steps, and a run that is too short has ended there.
    """
    findings = [] if facts.text is None else findings_of_text(facts.text, facts.levels)
    if facts.is_pretrained:
        # The tokens that the new text lacks were learned from other text.
        findings = [finding for finding in findings if finding.cause != VOCABULARY]
    is_long = len(facts.losses) >= _LINES and facts.step >= max(_PLAIN_AFTER * facts.num_train_steps, 1)
    if findings or not is_long or not is_on_plateau(facts):
        return findings
    findings = [*_updates(facts)]
    if not findings and facts.step >= facts.num_train_steps:
        findings = [*_too_few(facts)]
    return findings


def is_on_plateau(facts: RunFacts) -> bool:
    """Return whether the training loss is not clearly below the level of token frequencies; False without levels."""
    if UNIGRAM not in facts.levels or not facts.losses:
        return False
    level = _without_neighbors(facts.levels)
    distance = level - facts.levels.get(BIGRAM, level)
    return _recent_loss(facts) > level - _LEAST_GAIN * max(distance, 0.0)


def _broken_labels(text: TextMeasures, levels: Mapping[str, float]) -> Iterator[Finding]:
    figure = _broken_label_figure(text, levels)
    if figure is not None:
        yield Finding(LABELS, figure, "Build the data again, and look at it with `beambert inspect`.")


def _broken_label_figure(text: TextMeasures, levels: Mapping[str, float]) -> str | None:
    """Return the figure that shows that labels or masks are broken; None if none does."""
    broken = "Labels or masks are broken:"
    if not text.predictions:
        return f"{broken} the sample of the training text has no masked tokens"
    if text.predictions < _LEAST_LABELS:
        return None
    masked, unchanged = text.expected_masked, text.expected_unchanged
    if text.masked < 0.5 * masked - _standard_error(masked, text.predictions):
        return f"{broken} [MASK] is at {text.masked:.1%} of the positions to predict, not at {masked:.1%}"
    if text.unchanged < 0.5 * unchanged - _standard_error(unchanged, text.predictions):
        return f"{broken} {text.unchanged:.1%} of the labels are the visible token, not {unchanged:.1%}"
    if text.most_frequent_label > _MOST_FREQUENT_LABEL:
        return f"{broken} {text.most_frequent_label:.1%} of the labels are the same token"
    if BIGRAM in levels and levels[BIGRAM] > _without_neighbors(levels) - _LEAST_NEIGHBOR_GAIN:
        return (
            f"Labels do not belong to their text: with the neighbors the loss is {levels[BIGRAM]:.3f}, without "
            f"{_without_neighbors(levels):.3f}"
        )
    return None


def _one_class(text: TextMeasures) -> Iterator[Finding]:
    if text.pairs >= _LEAST_LABELS and text.labeled_1 in (0.0, 1.0):
        yield Finding(
            ONE_CLASS,
            f"All {text.pairs:,} next-sentence labels in the sample are {text.labeled_1:.0f}",
            "Build the data again, or train with --no_next_sentence.",
        )


def _repetition(text: TextMeasures) -> Iterator[Finding]:
    if text.tokens >= _LEAST_TOKENS and text.repeated > _MOST_REPEATED:
        yield Finding(
            REPETITION,
            f"Lines are repeated: {text.repeated:.0%} of the training text occurs four times or more in a sample of "
            f"{text.tokens:,} tokens",
            "Build the data again with --drop_repeated_paragraphs or --drop_near_duplicates.",
        )


def _vocabulary(text: TextMeasures) -> Iterator[Finding]:
    if text.tokens >= _LEAST_TOKENS and text.rare_vocabulary > _MOST_RARE:
        yield Finding(
            VOCABULARY,
            f"The vocabulary is too large for the text: {text.rare_vocabulary:.0%} of its tokens occur fewer than 20 "
            "times in a copy of the data",
            "Build the data with a smaller --vocab_size, or from more text.",
        )


def _updates(facts: RunFacts) -> Iterator[Finding]:
    if not facts.updates:
        return
    longest = max(facts.updates, key=lambda update: update.rms)
    if longest.rms < _HIGHEST_UPDATE * facts.initial_rms:
        yield from _collapse(facts)
        return
    figure = (
        f"at step {longest.step:,} an update had {longest.ratio:.1%} of the length of the weights, and "
        f"{longest.rms / facts.initial_rms:.0%} of that of the initial weights"
    )
    # A longer warm-up helps only if the usual updates of the peak rate are short enough.
    is_rate = _USUAL_STEP * facts.learning_rate > _HIGHEST_UPDATE * facts.initial_rms
    if not is_rate and longest.rms > _LONGEST_STEP * longest.learning_rate:
        yield Finding(
            WARMUP,
            f"The warm-up of {facts.num_warmup_steps:,} steps is too short: {figure}",
            "Train again with more --num_warmup_steps, or with --optimizer adamw.",
        )
    else:
        yield _too_high(facts, figure, 5)


def _collapse(facts: RunFacts) -> Iterator[Finding]:
    """Yield a finding if gradients have shrunk to a small part of what they were, after which no run here recovered."""
    later = [update for update in facts.updates if update.step > facts.step / 2 and update.learning_rate > 0]
    if not later:
        return
    part = statistics.median(update.rms / update.learning_rate for update in later)
    if part < _SHORTEST_STEP:
        figure = (
            f"training has collapsed, with updates of {part:.1%} of the learning rate since step {later[0].step:,} "
            "instead of at least 20%"
        )
        yield _too_high(facts, figure, 2)


def _too_high(facts: RunFacts, figure: str, divisor: int) -> Finding:
    rate = facts.learning_rate
    return Finding(
        LEARNING_RATE,
        f"The learning rate is too high: {figure}",
        f"Train again with a --learning_rate below {rate:g}, such as {rate / divisor:g}.",
    )


def _too_few(facts: RunFacts) -> Iterator[Finding]:
    size = f" for {facts.parameters:,} parameters" if facts.parameters else ""
    yield Finding(
        TOO_FEW,
        f"Too few steps: {facts.step:,} steps with {facts.tokens:,} tokens{size} end at a masked-LM loss of "
        f"{_recent_loss(facts):.3f}, near the level of token frequencies ({_without_neighbors(facts.levels):.3f})",
        "Begin with sequences of 16 tokens (docs/guides/small-bert.md), train for more steps (a higher "
        "--num_train_steps continues this run), or train a smaller model.",
    )


def _recent_loss(facts: RunFacts) -> float:
    return statistics.fmean(loss for _, loss in facts.losses[-_LINES:])


def _without_neighbors(levels: Mapping[str, float]) -> float:
    return levels[UNCHANGED] if UNCHANGED in levels else levels[UNIGRAM]


def _standard_error(fraction: float, count: int) -> float:
    return 3 * math.sqrt(fraction * (1 - fraction) / count)
