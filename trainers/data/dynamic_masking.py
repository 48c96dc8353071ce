"""Masks drawn while reading, for data built with `--masking dynamic`; the rules of `pipelines.instances.masking`."""

import dataclasses
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipelines.dataset import VOCAB_FILE_NAME, Dataset
from pipelines.errors import DatasetError
from tokenizer.vocabulary import Vocabulary
from trainers.data.stateless_random import extend_hash
from trainers.objective import Features


@dataclasses.dataclass(frozen=True)
class DynamicMasking:
    """The options and vocabulary arrays that a dataset's masks are drawn by.

    Attributes:
        masked_lm_prob: share of tokens to predict.
        mask_rate, random_rate: how many of them become [MASK] or a random token; the others stay.
        mask_id, cls_id, sep_id: ids of [MASK], [CLS] and [SEP].
        replacement_ids: int32 [k], what random tokens are drawn from: all but special and [unused] tokens.
    """

    masked_lm_prob: float
    mask_rate: float
    random_rate: float
    mask_id: int
    cls_id: int
    sep_id: int
    replacement_ids: np.ndarray

    @classmethod
    def from_dataset(cls, directory: Path, dataset: Dataset) -> "DynamicMasking | None":
        """Return the masking of the manifest and vocab.txt; None if the records contain masks already.

        Raises:
            DatasetError: the manifest does not say how many tokens are to be masked.
            VocabularyError: vocab.txt is missing, or no vocabulary.
        """
        if "masked_lm_ids" in dataset.features:
            return None
        try:
            rates = {name: float(dataset.options[name]) for name in ("masked_lm_prob", "mask_rate", "random_rate")}
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{directory} holds examples without masks, and its dataset.json does not say how to draw them "
                f"({error!r}); build the data again"
            ) from error
        vocab = Vocabulary.load(directory / VOCAB_FILE_NAME)
        return cls(
            **rates,
            mask_id=vocab.mask_id,
            cls_id=vocab.cls_id,
            sep_id=vocab.sep_id,
            replacement_ids=vocab.text_ids(),
        )


# What the numbers of one position are for.
_CHOICE, _ACTION, _REPLACEMENT = range(3)


def mask_batch(features: Features, masking: DynamicMasking, predictions: int, keys: tf.Tensor) -> Features:
    """Draw a uniform choice of tokens to predict in every row, and the replacement of each.

    A row of `length` tokens gets round(length * masked_lm_prob) predictions, at least 1, at most P and what is
    neither [CLS] nor [SEP] nor padding.

    Args:
        features: input_ids and input_mask int32 [B, L] and others, which stay as they are.
        masking: the rates and tokens.
        predictions: P, at most L.
        keys: uint64 [B], a random number for each row (`trainers.data.stateless_random.stateless_hash`); it
            alone decides its masks.

    Returns:
        The features, input_ids with the replacements, and masked_lm_positions (ascending, then zeros) and
        masked_lm_ids int32 [B, P], masked_lm_weights float32 [B, P].
    """
    input_ids, input_mask = features["input_ids"], features["input_mask"]
    length = input_ids.shape[1]

    def random_bits(use: int, positions: tf.Tensor) -> tf.Tensor:
        """Return 32 random bits for each of some positions of every row, int64."""
        bits = extend_hash(keys[:, None], positions * 3 + use)
        return tf.cast(tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64)), tf.int64)

    maskable = (input_mask > 0) & (input_ids != masking.cls_id) & (input_ids != masking.sep_id)  # [B, L]
    # In float64 and to the even neighbor, as numpy has it.
    share = tf.cast(tf.reduce_sum(input_mask, axis=1), tf.float64) * masking.masked_lm_prob  # [B]
    wanted = tf.clip_by_value(tf.cast(tf.round(share), tf.int32), 1, predictions)
    wanted = tf.minimum(wanted, tf.reduce_sum(tf.cast(maskable, tf.int32), axis=1))

    # The tokens with the largest of independent keys are a uniform choice without replacement.
    order = tf.where(maskable, tf.cast(random_bits(_CHOICE, tf.range(length)) // 2, tf.int32), -1)
    largest = tf.math.top_k(order, predictions).indices  # [B, P]
    positions = tf.sort(tf.where(tf.range(predictions) < wanted[:, None], largest, length), axis=1)
    predicted = positions < length
    # Position 0 is [CLS], which is never predicted: what is written there below is what was there.
    positions = tf.where(predicted, positions, 0)
    original = tf.gather(input_ids, positions, batch_dims=1)  # [B, P]

    action = tf.cast(random_bits(_ACTION, positions), tf.float64) / 2**32
    index = random_bits(_REPLACEMENT, positions) * len(masking.replacement_ids) // 2**32
    replaced = tf.where(
        action < masking.mask_rate + masking.random_rate, tf.gather(masking.replacement_ids, index), original
    )
    replaced = tf.where(action < masking.mask_rate, masking.mask_id, replaced)
    replaced = tf.where(predicted, replaced, original)
    rows = tf.broadcast_to(tf.range(tf.shape(positions)[0])[:, None], tf.shape(positions))
    return {
        **features,
        "input_ids": tf.tensor_scatter_nd_update(input_ids, tf.stack([rows, positions], axis=-1), replaced),
        "masked_lm_positions": positions,
        "masked_lm_ids": tf.where(predicted, original, 0),
        "masked_lm_weights": tf.cast(predicted, tf.float32),
    }
