"""Define the fine-tuning tasks: each reads its files and turns logits into scores and answers.

No TensorFlow and no Keras.
"""
