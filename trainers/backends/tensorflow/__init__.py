"""Train with TensorFlow: devices (tf.distribute), compiled training step, evaluation, activation checkpointing."""
