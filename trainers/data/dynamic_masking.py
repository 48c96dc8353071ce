"""Draw masks while reading data built with `--masking dynamic`, by the rules of `pipelines.instances.masking`."""

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
    """The masking options and the vocabulary of a dataset.

    Attributes:
        masked_lm_prob: fraction of tokens to predict.
        mask_rate, random_rate: fractions of these that become [MASK] or a random token; the others are unchanged.
        mask_id, cls_id, sep_id: ids of [MASK], [CLS] and [SEP].
        replacement_ids: int32 [k], candidates for random tokens: all except special and [unused] tokens.
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
        """Return the dynamic masking of a dataset; None if its records already contain masks.

        Raises:
            DatasetError: the manifest does not record the masking options.
            VocabularyError: vocab.txt is missing, or not a valid vocabulary.
        """
        if "masked_lm_ids" in dataset.features:
            return None
        try:
            rates = {name: float(dataset.options[name]) for name in ("masked_lm_prob", "mask_rate", "random_rate")}
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{directory} has examples without masks, but dataset.json does not record the masking options "
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


# Purposes of the random numbers at a position.
_CHOICE, _ACTION, _REPLACEMENT = range(3)


def mask_batch(features: Features, masking: DynamicMasking, predictions: int, keys: tf.Tensor) -> Features:
    """Mask a uniform sample of the tokens in every row.

    A row of `length` tokens gets round(length * masked_lm_prob) predictions, at least 1 and at most P, and at most the
    number of tokens other than [CLS], [SEP] and padding.

    Args:
        features: input_ids and input_mask, int32 [B, L], and others, which are unchanged.
        masking: rates and vocabulary.
        predictions: P, at most L.
        keys: uint64 [B], hash keys (`trainers.data.stateless_random.stateless_hash`); the masks of a row depend only
            on its key.

    Returns:
        The features with masked input_ids, and with masked_lm_positions (ascending, padded with 0) and masked_lm_ids,
        int32 [B, P], and masked_lm_weights, float32 [B, P].
    """
    input_ids, input_mask = features["input_ids"], features["input_mask"]
    length = input_ids.shape[1]

    def random_bits(use: int, positions: tf.Tensor) -> tf.Tensor:
        """Return 32 random bits for each position, int64."""
        bits = extend_hash(keys[:, None], positions * 3 + use)
        return tf.cast(tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64)), tf.int64)

    maskable = (input_mask > 0) & (input_ids != masking.cls_id) & (input_ids != masking.sep_id)  # [B, L]
    # Rounded half to even in float64, as in numpy.
    expected_count = tf.cast(tf.reduce_sum(input_mask, axis=1), tf.float64) * masking.masked_lm_prob  # [B]
    wanted = tf.clip_by_value(tf.cast(tf.round(expected_count), tf.int32), 1, predictions)
    wanted = tf.minimum(wanted, tf.reduce_sum(tf.cast(maskable, tf.int32), axis=1))

    # The tokens with the largest independent keys are a uniform sample without replacement.
    order = tf.where(maskable, tf.cast(random_bits(_CHOICE, tf.range(length)) // 2, tf.int32), -1)
    largest = tf.math.top_k(order, predictions).indices  # [B, P]
    positions = tf.sort(tf.where(tf.range(predictions) < wanted[:, None], largest, length), axis=1)
    predicted = positions < length
    # Padding uses position 0, [CLS], which is never predicted; its id is written back unchanged below.
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
