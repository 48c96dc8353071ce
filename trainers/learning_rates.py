"""The learning rate of each step, as `optimization.py` of google-research/bert has it."""

import tensorflow as tf


def learning_rate_at(
    step: tf.Tensor, peak: float, num_train_steps: int, num_warmup_steps: int, power: float = 1.0
) -> tf.Tensor:
    """The learning rate of one step: linear warm-up from 0, then polynomial decay to 0.

    As in the released code, step 0 of a run with warm-up has rate 0, and the decay is counted from step 0, not from
    the end of warm-up: at step num_warmup_steps the rate drops from about `peak` to
    peak * (1 - num_warmup_steps / num_train_steps) ** power.

    Args:
        step: int scalar, number of updates made so far.
        peak: the rate that warm-up climbs to.
        num_train_steps: the step at which the rate reaches 0; it stays there.
        num_warmup_steps: steps of warm-up, 0 for none.
        power: of the decay: 1 is a line; below 1 the rate stays high and falls late, above 1 it falls early. The
            decay is `tf.compat.v1.train.polynomial_decay` to 0 without cycles.

    Returns:
        float32 scalar.
    """
    done = tf.cast(tf.minimum(tf.cast(step, tf.int64), num_train_steps), tf.float32)
    decayed = peak * tf.pow(1.0 - done / num_train_steps, power)
    if num_warmup_steps == 0:
        return decayed
    return tf.where(done < num_warmup_steps, peak * done / num_warmup_steps, decayed)
