"""Convert pretraining examples to readable text with masks, and compute their statistics.

`beambert inspect` and the samples of `report.html` use it.
"""

import dataclasses

import numpy as np

from beambert.common.formatting import escape_unprintable
from beambert.pipelines.errors import DatasetError
from beambert.pipelines.examples.statistics import Statistics
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION

# Names of the labels 0 and 1 by objective.
LABELS = {"nsp": ("IsNext", "NotNext"), "sop": ("in order", "swapped")}
_INTEGERS = (
    *("input_ids", "input_mask", "segment_ids", "sequence_ids"),
    *("masked_lm_positions", "masked_lm_ids", "next_sentence_labels"),
)
MASK, OTHER, SAME = "mask", "other", "same"


@dataclasses.dataclass(frozen=True)
class Example:
    """One example without padding, with n positions.

    Attributes:
        input_ids: int64 [n], input tokens of the model.
        original_ids: int64 [n], tokens before masking.
        is_masked: bool [n], True for tokens to predict.
        segment_ids: int64 [n].
        instances: (start, end, label or None) of each instance; empty for a row without tokens.
        row_length: number of positions, including padding.
        masks: whether the example has masks, which is False with dynamic masking.
    """

    input_ids: np.ndarray
    original_ids: np.ndarray
    is_masked: np.ndarray
    segment_ids: np.ndarray
    instances: list[tuple[int, int, int | None]]
    row_length: int
    masks: bool


@dataclasses.dataclass(frozen=True)
class Span:
    """A run of text without masked tokens, or one masked token.

    Attributes:
        text: the text, or the original token.
        kind: "" for text; `MASK`, `OTHER` or `SAME` for a masked token, by its replacement.
        instead: the replacement of a masked token.
        glued: whether the span follows without a space.
    """

    text: str
    kind: str = ""
    instead: str = ""
    glued: bool = False

    def __str__(self) -> str:
        """Return the text, or a masked token as `[original→replacement]`."""
        return f"[{self.text}→{self.instead}]" if self.kind else self.text


@dataclasses.dataclass(frozen=True)
class InstanceText:
    """An instance as text: the spans of A and B (empty without B), the label, and token counts."""

    a: list[Span]
    b: list[Span]
    label: int | None
    a_tokens: int
    b_tokens: int
    masked: int


def decode(features: dict[str, np.ndarray], vocab_size: int) -> Example:
    """Return the example of a record in any format of beambert or google-research/bert.

    Raises:
        DatasetError: the features are invalid, or inconsistent with each other or with the vocabulary size.
    """
    for name in _INTEGERS:
        if name in features and features[name].dtype.kind not in "iu":
            raise DatasetError(
                f"{name} has values that are missing or are not integers; give a shard of pretraining examples"
            )
    ids = features["input_ids"]
    row_length = len(ids)
    sequence = features.get("sequence_ids")
    if sequence is None:
        sequence = features.get("input_mask", np.ones(row_length, np.int64))
    segment_ids = features.get("segment_ids", np.zeros(row_length, np.int64))
    if len(sequence) != row_length or len(segment_ids) != row_length:
        raise DatasetError("the features have different lengths; give a shard of pretraining examples")
    used = int(np.count_nonzero(sequence))
    if not sequence[:used].all():
        raise DatasetError("the row has padding before tokens; give a shard of pretraining examples")
    positions = features.get("masked_lm_positions", np.zeros(0, np.int64))
    labels = features.get("masked_lm_ids", np.zeros(0, np.int64))
    weights = features.get("masked_lm_weights", np.ones(len(positions), np.float32))
    if not len(positions) == len(labels) == len(weights):
        raise DatasetError("the masked_lm features have different lengths; give a shard of pretraining examples")
    positions, labels = positions[weights > 0], labels[weights > 0]
    invalid = positions[(positions < 0) | (positions >= row_length)]
    if len(invalid):
        raise DatasetError(
            f"masked position {invalid[0]} in an example of {row_length} positions; the shard is corrupt"
        )
    original_ids = ids.copy()
    original_ids[positions] = labels
    tokens = np.concatenate([ids, original_ids])
    invalid = tokens[(tokens < 0) | (tokens >= vocab_size)]
    if len(invalid):
        raise DatasetError(
            f"token id {invalid[0]}, but the vocabulary has {vocab_size} tokens; give the vocabulary of the shard with "
            "--vocab_file"
        )
    is_masked = np.zeros(row_length, bool)
    is_masked[positions] = True
    starts = np.flatnonzero(np.diff(sequence[:used], prepend=0))
    ends = np.append(starts[1:], used)[: len(starts)]
    next_labels = features.get("next_sentence_labels", np.zeros(0, np.int64))[: len(starts)]
    invalid = next_labels[(next_labels != 0) & (next_labels != 1)]
    if len(invalid):
        raise DatasetError(f"label {invalid[0]} in next_sentence_labels must be 0 or 1; the shard is corrupt")
    instances = [
        (int(start), int(end), int(next_labels[number]) if number < len(next_labels) else None)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return Example(
        input_ids=ids[:used],
        original_ids=original_ids[:used],
        is_masked=is_masked[:used],
        segment_ids=segment_ids[:used],
        instances=instances,
        row_length=row_length,
        masks="masked_lm_positions" in features,
    )


def as_text(example: Example, vocab: Vocabulary) -> list[InstanceText]:
    """Return every instance of an example as text, without [CLS] and [SEP] at their regular positions."""
    texts = []
    for start, end, label in example.instances:
        positions = np.arange(start, end)
        segments = []
        for segment in (0, 1):
            run = positions[example.segment_ids[start:end] == segment]
            if segment == 0 and len(run) and example.original_ids[run[0]] == vocab.cls_id:
                run = run[1:]
            if len(run) and example.original_ids[run[-1]] == vocab.sep_id:
                run = run[:-1]
            segments.append(run)
        a, b = segments
        texts.append(
            InstanceText(
                a=_spans(example, a, vocab),
                b=_spans(example, b, vocab),
                label=label,
                a_tokens=len(a),
                b_tokens=len(b),
                masked=int(np.count_nonzero(example.is_masked[start:end])),
            )
        )
    return texts


def _spans(example: Example, positions: np.ndarray, vocab: Vocabulary) -> list[Span]:
    """Return the spans of text and masked tokens at consecutive positions."""
    spans: list[Span] = []
    for position in positions:
        original = escape_unprintable(vocab.tokens[example.original_ids[position]])
        glued = original.startswith(CONTINUATION) and bool(spans)
        if example.is_masked[position]:
            seen = example.input_ids[position]
            same = seen == example.original_ids[position]
            kind = MASK if seen == vocab.mask_id else SAME if same else OTHER
            instead = "MASK" if kind == MASK else escape_unprintable(vocab.tokens[seen])
            spans.append(Span(original, kind, instead, glued))
            continue
        text = original.removeprefix(CONTINUATION) if glued else original
        if spans and not spans[-1].kind:
            joined = f"{spans[-1].text}{'' if glued else ' '}{text}"
            spans[-1] = dataclasses.replace(spans[-1], text=joined)
        else:
            spans.append(Span(text, glued=glued))
    return spans


def count(statistics: Statistics, example: Example, vocab: Vocabulary) -> None:
    """Add one example to statistics, as far as its features allow. Text is counted in every copy."""
    statistics.rows += 1
    statistics.positions += example.row_length
    statistics.row_lengths = _count_one(statistics.row_lengths, len(example.input_ids))
    for start, end, label in example.instances:
        statistics.instances += 1
        statistics.instances_labeled_1 += label or 0
        statistics.instance_tokens += end - start
        statistics.instance_lengths = _count_one(statistics.instance_lengths, end - start)
    masked = example.is_masked
    statistics.add_masks(example.input_ids[masked], example.original_ids[masked], vocab.mask_id)
    statistics.masked_in_row = _count_one(statistics.masked_in_row, int(np.count_nonzero(masked)))
    text = example.original_ids
    statistics.add_tokens(text[(text != vocab.cls_id) & (text != vocab.sep_id)], vocab)


def _count_one(histogram: np.ndarray, value: int) -> np.ndarray:
    if value >= len(histogram):
        histogram = np.concatenate([histogram, np.zeros(value + 1 - len(histogram), np.int64)])
    histogram[value] += 1
    return histogram
