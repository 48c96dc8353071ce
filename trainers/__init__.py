"""Pretrain, fine-tune and run BERT: the training loop, its objectives, and inference.

Names are imported on first use, so that parsing flags does not import TensorFlow.
"""

from typing import TYPE_CHECKING

from beambert_common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from trainers.data.batches import Batches, InputShard
    from trainers.errors import TaskDataError, TrainingError
    from trainers.finetuning.finetuning_task import FinetuningTask
    from trainers.inference.model_loading import InferenceModel, load_model
    from trainers.inference.predictor import Predictor
    from trainers.objective import Objective
    from trainers.optimization.optimizer_options import OptimizerOptions
    from trainers.optimization.optimizers import Optimizer
    from trainers.training.loop import LoopConfig, TrainData, train
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "Batches": "trainers.data.batches",
            "InputShard": "trainers.data.batches",
            "TaskDataError": "trainers.errors",
            "TrainingError": "trainers.errors",
            "FinetuningTask": "trainers.finetuning.finetuning_task",
            "InferenceModel": "trainers.inference.model_loading",
            "load_model": "trainers.inference.model_loading",
            "Predictor": "trainers.inference.predictor",
            "Objective": "trainers.objective",
            "OptimizerOptions": "trainers.optimization.optimizer_options",
            "Optimizer": "trainers.optimization.optimizers",
            "LoopConfig": "trainers.training.loop",
            "TrainData": "trainers.training.loop",
            "train": "trainers.training.loop",
        },
    )

__all__ = [
    "Batches",
    "FinetuningTask",
    "InferenceModel",
    "InputShard",
    "LoopConfig",
    "Objective",
    "Optimizer",
    "OptimizerOptions",
    "Predictor",
    "TaskDataError",
    "TrainData",
    "TrainingError",
    "load_model",
    "train",
]
