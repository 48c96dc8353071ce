"""Evaluation of pretrained models without training: masked-LM metrics of text, and minimal pairs."""
