"""Fine-tuning tasks: each reads its files, and converts logits to scores and predictions.

This package imports neither TensorFlow nor Keras.
"""
