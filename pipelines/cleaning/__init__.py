"""Clean and filter documents: cleaning rules, language identification, decontamination, deduplication.

All functions work on strings and numpy arrays and are independent of Beam.
"""
