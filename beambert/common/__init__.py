"""Shared utilities: command line, one-line errors, typed JSON, signals, terminal output.

This package depends on no other package of beambert.
"""
