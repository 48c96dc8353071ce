"""Run training steps on devices: one package per library, behind the interface in `trainers.backends.backend`."""
