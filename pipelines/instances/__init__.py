"""Make pretraining instances as numpy arrays: sampling, packing, layout in rows, noise and masking.

No Beam and no files; the trainer draws dynamic masks with the same functions.
"""
