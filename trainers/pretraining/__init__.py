"""Pretrain a model on a dataset: flags, recipes, checks, the objective and the run."""
