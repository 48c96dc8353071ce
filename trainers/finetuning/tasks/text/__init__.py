"""Classify or score texts and pairs of texts: GLUE, XNLI, multiple choice and the user's own tables."""
