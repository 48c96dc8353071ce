"""Dynamic masking in TensorFlow, an independent oracle of the implementation in NumPy."""

import tensorflow as tf


def extend_hash(keys, numbers):
    """Return the hash after one more round of SplitMix64."""
    state = keys + (tf.cast(numbers, tf.uint64) + 1) * tf.constant(0x9E3779B97F4A7C15, tf.uint64)
    for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = shifted(state, shift) * tf.constant(multiplier, tf.uint64)
    return shifted(state, 31)


def shifted(state, shift):
    return tf.bitwise.bitwise_xor(state, tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64)))


def mask_in_tensorflow(features, masking, predictions, keys):
    """Return the result of `mask_batch`, computed with TensorFlow operations."""
    input_ids, input_mask = tf.constant(features["input_ids"]), tf.constant(features["input_mask"])
    length = input_ids.shape[1]

    def random_bits(use, positions):
        bits = extend_hash(tf.constant(keys)[:, None], positions * 3 + use)
        return tf.cast(tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64)), tf.int64)

    maskable = (input_mask > 0) & (input_ids != masking.cls_id) & (input_ids != masking.sep_id)
    expected_count = tf.cast(tf.reduce_sum(input_mask, axis=1), tf.float64) * masking.masked_lm_prob
    wanted = tf.clip_by_value(tf.cast(tf.round(expected_count), tf.int32), 1, predictions)
    wanted = tf.minimum(wanted, tf.reduce_sum(tf.cast(maskable, tf.int32), axis=1))
    order = tf.where(maskable, tf.cast(random_bits(0, tf.range(length)) // 2, tf.int32), -1)
    largest = tf.math.top_k(order, predictions).indices
    positions = tf.sort(tf.where(tf.range(predictions) < wanted[:, None], largest, length), axis=1)
    predicted = positions < length
    positions = tf.where(predicted, positions, 0)
    original = tf.gather(input_ids, positions, batch_dims=1)
    action = tf.cast(random_bits(1, positions), tf.float64) / 2**32
    index = random_bits(2, positions) * len(masking.replacement_ids) // 2**32
    replaced = tf.where(
        action < masking.mask_rate + masking.random_rate, tf.gather(masking.replacement_ids, index), original
    )
    replaced = tf.where(action < masking.mask_rate, masking.mask_id, replaced)
    replaced = tf.where(predicted, replaced, original)
    rows = tf.broadcast_to(tf.range(tf.shape(positions)[0])[:, None], tf.shape(positions))
    masked = {
        "input_ids": tf.tensor_scatter_nd_update(input_ids, tf.stack([rows, positions], axis=-1), replaced),
        "masked_lm_positions": positions,
        "masked_lm_ids": tf.where(predicted, original, 0),
        "masked_lm_weights": tf.cast(predicted, tf.float32),
    }
    return {name: value.numpy() for name, value in masked.items()}
