"""Pretrain, fine-tune and run BERT: the training loop, its objectives, and inference.

Names are imported on first use, so that parsing flags does not import TensorFlow.
"""

from typing import TYPE_CHECKING

from beambert.common.imports import lazy_exports

if TYPE_CHECKING:
    from beambert.trainers.data.pipeline import Batches, InputShard
    from beambert.trainers.errors import TaskDataError, TrainingError
    from beambert.trainers.finetuning.finetuning_task import FinetuningTask
    from beambert.trainers.inference.model_loading import InferenceModel, load_model
    from beambert.trainers.inference.predictor import Predictor
    from beambert.trainers.objective import Objective
    from beambert.trainers.optimization.optimizers import Optimizer
    from beambert.trainers.options import OptimizerOptions, TrainingOptions
    from beambert.trainers.training.loop import TrainData, train
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "Batches": "beambert.trainers.data.pipeline",
            "InputShard": "beambert.trainers.data.pipeline",
            "TaskDataError": "beambert.trainers.errors",
            "TrainingError": "beambert.trainers.errors",
            "FinetuningTask": "beambert.trainers.finetuning.finetuning_task",
            "InferenceModel": "beambert.trainers.inference.model_loading",
            "load_model": "beambert.trainers.inference.model_loading",
            "Predictor": "beambert.trainers.inference.predictor",
            "Objective": "beambert.trainers.objective",
            "OptimizerOptions": "beambert.trainers.options",
            "Optimizer": "beambert.trainers.optimization.optimizers",
            "TrainingOptions": "beambert.trainers.options",
            "TrainData": "beambert.trainers.training.loop",
            "train": "beambert.trainers.training.loop",
        },
    )

__all__ = [
    "Batches",
    "FinetuningTask",
    "InferenceModel",
    "InputShard",
    "Objective",
    "Optimizer",
    "OptimizerOptions",
    "Predictor",
    "TaskDataError",
    "TrainData",
    "TrainingError",
    "TrainingOptions",
    "load_model",
    "train",
]
