"""The members of `beambert.trainers.backends.backend.Backend` for JAX."""

from beambert.trainers.backends.jax.distribution import open_distribution
from beambert.trainers.backends.jax.evaluation import compiled, evaluation_of, outputs_of
from beambert.trainers.backends.jax.train_step import Trainer

make_trainer = Trainer
__all__ = ["compiled", "evaluation_of", "make_trainer", "open_distribution", "outputs_of"]
