"""Compile the training step of the JAX backend for a TPU slice with the TPU compiler; no TPU is needed."""
