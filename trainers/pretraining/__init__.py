"""Pretrain a model on a dataset: flags, recipes, validation of flags and data, objective, run."""
