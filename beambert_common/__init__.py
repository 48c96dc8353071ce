"""Share what every package uses: the command line, errors as one line, JSON with types, signals, the terminal.

It depends on no other package of beambert.
"""
