"""The members of `trainers.backends.backend.Backend` for TensorFlow."""

from trainers.backends.tensorflow.distribution import Distribution
from trainers.backends.tensorflow.evaluation import compiled, evaluation_of, outputs_of
from trainers.backends.tensorflow.train_step import Trainer

open_distribution = Distribution.open
make_trainer = Trainer
__all__ = ["compiled", "evaluation_of", "make_trainer", "open_distribution", "outputs_of"]
