"""Create pretraining instances as numpy arrays: sampling, packing, layout in rows, noise and masking.

The functions use neither Beam nor files. The trainer uses the same functions for dynamic masking.
"""
