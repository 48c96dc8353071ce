"""Fixtures: a stand-in of the Cloud TPU service, and the wheel that workers install."""

import pytest

from beambert.deploy.tpu.job import build_wheel
from tests.deploy.tpu.tpu_cloud import Cloud


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def empty_cloud(tmp_path, wheel):
    return Cloud(tmp_path, wheel)
