"""Decide which text of a document is kept: cleaning rules, languages, decontamination, deduplication.

Plain functions over strings and numpy arrays, without Beam.
"""
