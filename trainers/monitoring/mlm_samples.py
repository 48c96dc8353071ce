"""Masked examples with the model's predictions filled in, as text to read while it trains."""

import re
from collections.abc import Mapping

import numpy as np

from beambert_common.unicode_text import escape_unprintable
from tokenizer.vocabulary import Vocabulary
from tokenizer.wordpiece import CONTINUATION

# Written to the word before them, to the word after them, or to both.
_CLOSING = frozenset(",.;:!?)]}%'’”-–/")
_OPENING = frozenset("([{$#@'’“-–/")
_TOKENS_BEFORE = 6
# A filled mask in a line: original, prediction, probability. Special tokens are never masked, a bracket may be.
# No token of text is longer; without a bound, a line without blanks takes time that grows with its square.
FILLED = re.compile(r"\[((?:##)?\[|[^\s\[]{1,250})→(\S{1,250}) (\d+%)\]")


def mlm_samples(
    features: Mapping[str, np.ndarray],
    logits: np.ndarray,
    vocabulary: Vocabulary,
    examples: int = 5,
    most_tokens: int = 48,
) -> list[str]:
    """Return the first examples of a batch as a line of text each, masks filled.

    A masked token reads `[original→prediction 12%]`, with the probability of the prediction; [CLS] and the last [SEP]
    are left out. Spaces are where English has them, which is a guess: normalization took them away.

    Args:
        features: of a batch: input_ids [B, S], masked_lm_positions, masked_lm_ids and masked_lm_weights [B, P], and,
            where there are any, input_mask or sequence_ids [B, S] and example_weights [B].
        logits: of the masked-LM head, [B, P, V or more].
        vocabulary: of V tokens.
        examples: how many to show, at most; rows that only fill the batch up, or with nothing masked, are passed over.
        most_tokens: of a line; of longer rows, those from shortly before the first mask on are shown.
    """
    real = features.get("input_mask", features.get("sequence_ids", np.ones_like(features["input_ids"]))) > 0  # [B, S]
    weights = features["masked_lm_weights"] > 0  # [B, P]
    wanted = weights.any(axis=1) & (features.get("example_weights", np.ones(len(weights))) > 0)
    return [
        _line(
            features["input_ids"][row][real[row]],
            features["masked_lm_positions"][row][weights[row]],
            features["masked_lm_ids"][row][weights[row]],
            logits[row][weights[row], : len(vocabulary)],
            vocabulary,
            most_tokens,
        )
        for row in np.flatnonzero(wanted)[:examples]
    ]


def _line(
    ids: np.ndarray, positions: np.ndarray, originals: np.ndarray, logits: np.ndarray, vocabulary: Vocabulary, most: int
) -> str:
    """Return one row without padding as text: ids [n], positions and originals [m], logits [m, V]."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    best = shifted.argmax(axis=-1)  # [m]
    shares = 1 / np.exp(shifted).sum(axis=-1)  # [m]: the best token's exponential is 1.
    texts = [escape_unprintable(vocabulary.tokens[token]) for token in ids]
    glued = [text.startswith(CONTINUATION) for text in texts]
    texts = [text.removeprefix(CONTINUATION) for text in texts]
    for position, original, token, share in zip(positions, originals, best, shares, strict=True):
        was, is_now = (escape_unprintable(vocabulary.tokens[number]) for number in (original, token))
        texts[position] = f"[{was}→{is_now} {share:.0%}]"
        glued[position] = was.startswith(CONTINUATION)
    start = 1 if len(ids) and ids[0] == vocabulary.cls_id else 0
    end = len(ids) - 1 if len(ids) and ids[-1] == vocabulary.sep_id else len(ids)
    is_long = end - start > most
    first = max(start, min(int(positions.min()) - min(_TOKENS_BEFORE, most // 4), end - most)) if is_long else start
    last = min(end, first + most)
    line = "… " if first > start else ""
    for position in range(first, last):
        space = not glued[position] and texts[position] not in _CLOSING
        if position > first and space and texts[position - 1] not in _OPENING:
            line += " "
        line += texts[position]
    return line + (" …" if last < end else "")
