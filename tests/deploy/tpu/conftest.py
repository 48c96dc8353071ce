"""Fixtures: a stand-in of the Cloud TPU service, and the wheel that workers install."""

import pytest

from beambert.deploy.tpu.job import build_wheel
from tests.deploy.tpu.tpu_cloud import Cloud


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def cloud_with_data(tmp_path, wheel):
    """The service, with a dataset in its bucket."""
    cloud = Cloud(tmp_path, wheel)
    (cloud.bucket("gs://bucket/data")).mkdir(parents=True)
    (cloud.bucket("gs://bucket/data") / "dataset.json").write_text("{}")
    return cloud
