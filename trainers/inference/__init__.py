"""Load a trained model and run it on texts: predictions, hidden states, signatures of exported models."""
