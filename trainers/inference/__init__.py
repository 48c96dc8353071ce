"""Inference with trained models: predictions, hidden states, and the signatures of exported models."""
