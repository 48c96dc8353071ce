"""Train with TensorFlow: devices (tf.distribute), the compiled training step, evaluation, rematerialization."""
