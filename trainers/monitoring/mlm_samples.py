"""Format masked-LM samples: masked examples as text, with the predictions of the model."""

import re
from collections.abc import Mapping

import numpy as np

from beambert.common.formatting import escape_unprintable
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.tokenizer.wordpiece import CONTINUATION

# Punctuation without a space before it, or after it.
_CLOSING = frozenset(",.;:!?)]}%'’”-–/")
_OPENING = frozenset("([{$#@'’“-–/")
_TOKENS_BEFORE = 6
# A prediction in a sample: original token, predicted token, probability. Special tokens are never masked; a bracket
# may be. The bound on the token length avoids quadratic time on text without spaces.
FILLED = re.compile(r"\[((?:##)?\[|[^\s\[]{1,250})→(\S{1,250}) (\d+%)\]")


def mlm_samples(
    features: Mapping[str, np.ndarray],
    logits: np.ndarray,
    vocabulary: Vocabulary,
    examples: int = 5,
    most_tokens: int = 48,
) -> list[str]:
    """Return the first examples of a batch as text with predictions, one line per example.

    A masked token is shown as `[original→prediction 12%]`, with the probability of the prediction; [CLS] and the last
    [SEP] are omitted. Spaces follow English typography, since normalization removed the original ones.

    Args:
        features: features of a batch: input_ids [B, S], masked_lm_positions, masked_lm_ids and masked_lm_weights
            [B, P], and optionally input_mask or sequence_ids [B, S] and example_weights [B].
        logits: logits of the masked-LM head, [B, P, V or more].
        vocabulary: vocabulary of V tokens.
        examples: maximum number of lines; padding examples and examples without masks are skipped.
        most_tokens: maximum number of tokens per line; a longer example is shown from shortly before its first mask.
    """
    real = features.get("input_mask", features.get("sequence_ids", np.ones_like(features["input_ids"]))) > 0  # [B, S]
    weights = features["masked_lm_weights"] > 0  # [B, P]
    selected = weights.any(axis=1) & (features.get("example_weights", np.ones(len(weights))) > 0)
    return [
        _line(
            features["input_ids"][row][real[row]],
            features["masked_lm_positions"][row][weights[row]],
            features["masked_lm_ids"][row][weights[row]],
            logits[row][weights[row], : len(vocabulary)],
            vocabulary,
            most_tokens,
        )
        for row in np.flatnonzero(selected)[:examples]
    ]


def _line(
    ids: np.ndarray, positions: np.ndarray, originals: np.ndarray, logits: np.ndarray, vocabulary: Vocabulary, most: int
) -> str:
    """Return an example without padding as text: ids [n], positions and originals [m], logits [m, V]."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    best = shifted.argmax(axis=-1)  # [m]
    probabilities = 1 / np.exp(shifted).sum(axis=-1)  # [m]; the exponential of the best token is 1
    texts = [escape_unprintable(vocabulary.tokens[token]) for token in ids]
    is_subword = [text.startswith(CONTINUATION) for text in texts]
    texts = [text.removeprefix(CONTINUATION) for text in texts]
    for position, original, token, probability in zip(positions, originals, best, probabilities, strict=True):
        original_text, predicted_text = (escape_unprintable(vocabulary.tokens[i]) for i in (original, token))
        texts[position] = f"[{original_text}→{predicted_text} {probability:.0%}]"
        is_subword[position] = original_text.startswith(CONTINUATION)
    start = 1 if len(ids) and ids[0] == vocabulary.cls_id else 0
    end = len(ids) - 1 if len(ids) and ids[-1] == vocabulary.sep_id else len(ids)
    is_long = end - start > most
    first = max(start, min(int(positions.min()) - min(_TOKENS_BEFORE, most // 4), end - most)) if is_long else start
    last = min(end, first + most)
    line = "… " if first > start else ""
    for position in range(first, last):
        space = not is_subword[position] and texts[position] not in _CLOSING
        if position > first and space and texts[position - 1] not in _OPENING:
            line += " "
        line += texts[position]
    return line + (" …" if last < end else "")
