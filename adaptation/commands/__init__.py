"""Define the commands that adapt a model, and their flags."""
