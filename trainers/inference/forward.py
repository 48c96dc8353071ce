"""Run a model on batches of texts, compiled by the backend that was started.

JAX compiles every shape separately, which takes seconds. Under JAX, batches are therefore padded to few shapes. Padding
changes values by rounding errors only: it is masked, and examples do not depend on each other.

Letters in shapes: B texts, S positions.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from beambert.bert_model.layers import library_activation
from beambert.bert_model.variable_names import variables_by_tf1_name
from beambert.trainers.backends.backend import active_backend
from beambert.trainers.errors import TrainingError
from beambert.trainers.inference.model_loading import InferenceModel

# Default size of a batch in tokens on a CPU: its tensors stay in the cache, and a matrix product has enough rows.
TOKENS_A_BATCH = 2048
# Default size in texts on other devices.
TEXTS_A_BATCH = 32
# Default size in tokens on other devices, where most texts are short.
TOKENS_A_DEVICE_BATCH = 16384
# Without JAX, widths are rounded up to a multiple of this.
LENGTH_MULTIPLE = 8
# Under JAX, to a power of two from the first on, or three quarters of one from the second on.
LEAST_STATIC_LENGTH = 32
LEAST_THREE_QUARTERS = 96
# For short texts, both from this length on.
LEAST_SHORT_LENGTH = 8

Features = dict[str, np.ndarray]


class TextForward:
    """A forward pass over texts, in batches of similar lengths.

    Args:
        inference_model: the model.
        function: function of input_ids, input_mask and segment_ids int32 [B, S], and masked_lm_positions int32 [B, P]
            where they are given, as a dict; returns a structure of tensors [B, ...].
        max_seq_length: maximum number of positions.
        batch_size: maximum batch size in texts; None for `TOKENS_A_BATCH` tokens on a CPU, and `TEXTS_A_BATCH` texts on
            other devices.
        short_texts: whether most texts are shorter than `LEAST_STATIC_LENGTH` tokens. Widths are then rounded up less,
            with more compilations under JAX, and default batches have `TOKENS_A_DEVICE_BATCH` tokens on other devices.
    """

    def __init__(
        self,
        inference_model: InferenceModel,
        function: Callable[[Any], Any],
        max_seq_length: int,
        batch_size: int | None = None,
        *,
        short_texts: bool = False,
    ) -> None:
        self._on_cpu = all(device.startswith("cpu") for device in keras.distribution.list_devices())
        self.max_seq_length = max_seq_length
        self.batch_size = batch_size if batch_size or self._on_cpu or short_texts else TEXTS_A_BATCH
        self._path = inference_model.path
        self._pad_id = inference_model.vocabulary.pad_id
        self._static = keras.backend.backend() == "jax"
        self._short_texts = short_texts
        variables = list(variables_by_tf1_name(inference_model.model).values())
        self._compiled = active_backend().compiled(function, variables)
        self._once = active_backend().compiled(function, variables, once=True)
        self._calls = 0
        # Elsewhere oneDNN is off by default, and this form slow.
        if not self._static and platform.machine() in ("x86_64", "AMD64"):
            for layer in inference_model.model.encoder.layers:
                layer.intermediate.activation = library_activation(inference_model.config)

    def batches(
        self,
        rows: Sequence[np.ndarray],
        segments: Sequence[np.ndarray],
        positions: Sequence[np.ndarray] | None = None,
        labels: Sequence[np.ndarray] | None = None,
    ) -> Iterator[tuple[list[int], Any]]:
        """Yield the indices of the texts of each batch, and the outputs, a structure of numpy arrays [B or more, ...].

        Args:
            rows: token ids of N texts, int32 [S_i].
            segments: segment ids of N texts, int32 [S_i].
            positions: masked_lm_positions of N texts, int [P_i]; outputs at their padding are undefined.
            labels: masked_lm_ids of N texts, int [K_i], padded the same way.

        Raises:
            TrainingError: an output is NaN or infinite.
        """
        batches = list(batches_by_length([len(row) for row in rows], self._texts_of_length))
        # A single batch, as for a text on the command line, takes less time than compiling a graph for it.
        run = self._once if len(batches) == 1 and not self._calls else self._compiled
        self._calls += 1
        for batch in batches:
            features = self.features([rows[i] for i in batch], [segments[i] for i in batch])
            for name, values in (("masked_lm_positions", positions), ("masked_lm_ids", labels)):
                if values is not None:
                    chosen = [values[i] for i in batch]
                    most = max(map(len, chosen))
                    features[name] = padded(chosen, width=power_of_two(most) if self._static else most)
            if self._static:
                texts = self._texts_of_length(len(rows[batch[-1]]))
                extra = padded_batch_size(len(batch), texts, len(rows)) - len(batch)
                features = {name: np.pad(values, [(0, extra), (0, 0)], "edge") for name, values in features.items()}
            outputs = run(features)
            if not all(np.isfinite(values).all() for values in keras.tree.flatten(outputs)):
                raise TrainingError(
                    f"{self._path} computes NaN: its weights are not finite; use a checkpoint from before the weights "
                    "became NaN"
                )
            yield batch, outputs

    def _texts_of_length(self, length: int) -> int:
        """Return the maximum size of a batch whose longest text has a number of tokens."""
        if self.batch_size is not None:
            return self.batch_size
        return max(1, (TOKENS_A_BATCH if self._on_cpu else TOKENS_A_DEVICE_BATCH) // self._width(length))

    def _width(self, length: int) -> int:
        return padded_length(length, self.max_seq_length, static=self._static, short_texts=self._short_texts)

    def features(self, rows: Sequence[np.ndarray], segments: Sequence[np.ndarray]) -> Features:
        """Return input_ids, input_mask and segment_ids, int32 [B, S], for B rows and their segment ids, int32 [S_i]."""
        width = self._width(max(map(len, rows)))
        input_mask = np.arange(width) < np.array([[len(row)] for row in rows])
        return {
            "input_ids": padded(rows, self._pad_id, width),
            "input_mask": input_mask.astype(np.int32),
            "segment_ids": padded(segments, 0, width),
        }


def padded(rows: Sequence[np.ndarray], value: int = 0, width: int = 0) -> np.ndarray:
    """Return B rows of different lengths as a padded matrix.

    Args:
        rows: B rows, int [S_i] each.
        value: padding value.
        width: number of columns S, at least the longest length.

    Returns:
        int32 [B, S].
    """
    matrix = np.full((len(rows), width), value, np.int32)
    for number, row in enumerate(rows):
        matrix[number, : len(row)] = row
    return matrix


def batches_by_length(lengths: Sequence[int], batch_size: Callable[[int], int]) -> Iterator[list[int]]:
    """Yield batches of indices with similar lengths, shortest first, to limit padding.

    Args:
        lengths: lengths of the texts.
        batch_size: function from the longest length of a batch to the maximum number of its texts.
    """
    batch: list[int] = []
    for index in np.argsort(lengths, kind="stable").tolist():
        if batch and len(batch) >= batch_size(lengths[index]):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def padded_length(length: int, limit: int, *, static: bool, short_texts: bool = False) -> int:
    """Return the number of positions of a batch.

    Args:
        length: length of the longest text.
        limit: maximum number of positions, at least `length`.
        static: whether to return one of few lengths: a power of two, or three quarters of one.
        short_texts: whether to round less: without `static` not at all, with it from `LEAST_SHORT_LENGTH` on.
    """
    if not static:
        multiple = 1 if short_texts else LENGTH_MULTIPLE
        return min(-(-length // multiple) * multiple, limit)
    power = max(power_of_two(length), LEAST_SHORT_LENGTH if short_texts else LEAST_STATIC_LENGTH)
    three_quarters = power * 3 // 4
    least = LEAST_SHORT_LENGTH if short_texts else LEAST_THREE_QUARTERS
    return min(three_quarters if max(length, least) <= three_quarters else power, limit)


def padded_batch_size(count: int, batch_size: int, total: int) -> int:
    """Return the static size of a batch.

    Args:
        count: number of texts in the batch.
        batch_size: maximum batch size.
        total: number of texts of all batches. A single batch, as for a text on the command line, is padded to a power
            of two only, to save time.
    """
    return batch_size if total > batch_size else min(power_of_two(count), batch_size)


def power_of_two(number: int) -> int:
    """Return the least power of two that is at least a positive number."""
    return 1 << (number - 1).bit_length()
