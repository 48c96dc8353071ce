"""Train with JAX: devices (a mesh of all GPUs or TPU cores), compiled training step, evaluation, input, start-up."""
