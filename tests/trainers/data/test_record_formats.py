"""Test that records of every format are read as they were written."""

import dataclasses

import numpy as np
import pytest

from tests.trainers.pretraining_shards import LENGTH, OPTIONS, PREDICTIONS, random_features, write_dataset
from trainers.data.pipeline import train_batches, validation_batches
from trainers.optimization.schedule import Stage

FORMATS = {
    "padded": {},
    "gzip": {"compression": "gzip"},
    "ragged": {"ragged": True},
    "model_garden": {"feature_names": "model_garden"},
    "mlm": {"objective": "mlm"},
    "packed": {"pack": True, "max_instances_per_row": 3},
    "ragged packed gzip": {"pack": True, "max_instances_per_row": 3, "ragged": True, "compression": "gzip"},
    "ragged mlm packed model_garden": {
        "objective": "mlm",
        "pack": True,
        "ragged": True,
        "feature_names": "model_garden",
    },
}


@pytest.mark.parametrize("changes", FORMATS.values(), ids=FORMATS)
def test_every_format_is_read(tmp_path, changes):
    options = dataclasses.replace(OPTIONS, **changes)
    dataset = write_dataset(tmp_path, {("validation", 0): [7], ("train", 0): [7]}, options=options)
    written = random_features(np.random.default_rng(0), 7, LENGTH, PREDICTIONS, instances=dataset.instances_per_row)
    (batch,) = validation_batches(tmp_path, dataset, 7, max_batches=10)
    assert batch.pop("example_weights").tolist() == [1.0] * 7
    assert list(batch) == list(options.names_of_features())
    for name, values in batch.items():
        assert values.dtype == (np.float32 if name.endswith("weights") else np.int32)
        np.testing.assert_array_equal(values, written[name], err_msg=name)
    shapes = train_batches(tmp_path, dataset, [Stage(0, 7, 0, 1, 0)], 0, seed=1).shapes
    assert shapes == {name: (values.shape, values.dtype) for name, values in batch.items()}
