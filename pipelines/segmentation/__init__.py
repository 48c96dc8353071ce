"""Segment paragraphs into sentences: pure functions of strings, independent of Beam."""
