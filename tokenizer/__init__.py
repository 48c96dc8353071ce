"""From text to piece ids, and from text to a vocabulary: numpy only, no Beam, no Keras, no TensorFlow."""
