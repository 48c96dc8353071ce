"""Read and write model weights as TF1 checkpoints, Hugging Face models and native models of beambert.

Names are imported on first use. No format needs TensorFlow.
"""

from typing import TYPE_CHECKING

from beambert.common.imports import lazy_exports

if TYPE_CHECKING:
    from beambert.bert_model.checkpoints.reader import Checkpoint, CheckpointFiles, find_files, open_checkpoint
    from beambert.bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "Checkpoint": "beambert.bert_model.checkpoints.reader",
            "CheckpointFiles": "beambert.bert_model.checkpoints.reader",
            "find_files": "beambert.bert_model.checkpoints.reader",
            "open_checkpoint": "beambert.bert_model.checkpoints.reader",
            "CheckpointError": "beambert.bert_model.checkpoints.stored_tensors",
            "StoredTensor": "beambert.bert_model.checkpoints.stored_tensors",
        },
    )

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointFiles",
    "StoredTensor",
    "find_files",
    "open_checkpoint",
]
