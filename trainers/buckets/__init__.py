"""Cloud Storage for training and inference: copies of inputs, and outputs that are uploaded while the command runs.

The rest of the trainers reads and writes local files only. This package imports neither Keras, TensorFlow nor Beam.
"""
