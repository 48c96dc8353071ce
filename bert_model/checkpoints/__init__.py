"""Read and write model weights as TF1 checkpoints, Hugging Face models and native models of beambert.

Names are imported on first use. No format needs TensorFlow.
"""

from typing import TYPE_CHECKING

from beambert_common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from bert_model.checkpoints.checkpoint_files import CheckpointFiles, find_files
    from bert_model.checkpoints.reader import Checkpoint, open_checkpoint
    from bert_model.checkpoints.stored_tensors import CheckpointError, StoredTensor
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "Checkpoint": "bert_model.checkpoints.reader",
            "CheckpointFiles": "bert_model.checkpoints.checkpoint_files",
            "find_files": "bert_model.checkpoints.checkpoint_files",
            "open_checkpoint": "bert_model.checkpoints.reader",
            "CheckpointError": "bert_model.checkpoints.stored_tensors",
            "StoredTensor": "bert_model.checkpoints.stored_tensors",
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
