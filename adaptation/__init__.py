"""Adapt existing models to other text; these commands read text files and a model.

They need Beam for reading, but neither TensorFlow nor Keras.
"""
