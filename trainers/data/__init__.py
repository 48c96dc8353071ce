"""Read pretraining shards as batches: example order, record parsing, dynamic masking, verification.

`as_tf_dataset` gives them to users of tf.data. Names are imported on first use; importing the package does not import
TensorFlow.
"""

from typing import TYPE_CHECKING

from beambert.common.imports import lazy_exports

if TYPE_CHECKING:
    from beambert.trainers.data.tf_dataset import as_tf_dataset
else:
    __getattr__ = lazy_exports(__name__, {"as_tf_dataset": "beambert.trainers.data.tf_dataset"})

__all__ = ["as_tf_dataset"]
