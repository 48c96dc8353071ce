"""Define the batches of an input pipeline: numpy arrays, read from any index, by whichever backend trains.

This file imports neither Keras nor TensorFlow.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class InputShard(NamedTuple):
    """The part of each batch that an input pipeline reads.

    Attributes:
        replicas: number of replicas that share a batch.
        first_replica: index of the pipeline's first replica.
        local_replicas: number of the pipeline's replicas.
    """

    replicas: int = 1
    first_replica: int = 0
    local_replicas: int = 1


@dataclass(frozen=True)
class Batches:
    """The batches of one input pipeline, readable from any index.

    Attributes:
        count: number of elements.
        shapes: shape and dtype of each feature; None for a dimension that differs by element.
        from_index: function of an index; returns an iterator over the elements from that index on, dicts of numpy
            arrays. Each iterator reads on its own and raises the error of the reader where it occurs.
    """

    count: int
    shapes: Mapping[str, tuple[tuple[int | None, ...], np.dtype]]
    from_index: Callable[[int], Iterator[dict[str, np.ndarray]]]

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """Return an iterator over all elements."""
        return self.from_index(0)

    def __len__(self) -> int:
        """Return the number of elements."""
        return self.count
