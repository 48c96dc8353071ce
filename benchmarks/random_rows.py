"""Make random examples for timing training steps, masked as the released BERT's data is."""

import numpy as np


def random_features(vocab_size: int, batch_size: int, length: int, predictions: int) -> dict[str, np.ndarray]:
    """Return a batch of examples with two segments each, equal at every call.

    Args:
        vocab_size: number of tokens in the vocabulary.
        batch_size: number of sequences, B.
        length: positions of a sequence, S.
        predictions: masked positions of a sequence, P.

    Returns:
        The seven features of the released code: [B, S], [B, P] and [B, 1], int32; masked_lm_weights float32.
    """
    generator = np.random.default_rng(0)
    positions = np.stack([generator.permutation(length)[:predictions] for _ in range(batch_size)])
    return {
        "input_ids": generator.integers(0, vocab_size, (batch_size, length)).astype(np.int32),
        "input_mask": np.ones((batch_size, length), np.int32),
        "segment_ids": np.repeat([np.arange(length) >= length // 2], batch_size, axis=0).astype(np.int32),
        "masked_lm_positions": np.sort(positions).astype(np.int32),
        "masked_lm_ids": generator.integers(0, vocab_size, (batch_size, predictions)).astype(np.int32),
        "masked_lm_weights": np.ones((batch_size, predictions), np.float32),
        "next_sentence_labels": generator.integers(0, 2, (batch_size, 1)).astype(np.int32),
    }
