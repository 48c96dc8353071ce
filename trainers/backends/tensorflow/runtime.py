"""The members of `beambert.trainers.backends.backend.Backend` for TensorFlow."""

from beambert.trainers.backends.tensorflow.distribution import Distribution
from beambert.trainers.backends.tensorflow.evaluation import compiled, evaluation_of, outputs_of
from beambert.trainers.backends.tensorflow.train_step import Trainer

open_distribution = Distribution.open
make_trainer = Trainer
__all__ = ["compiled", "evaluation_of", "make_trainer", "open_distribution", "outputs_of"]
