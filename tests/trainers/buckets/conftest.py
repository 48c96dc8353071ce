import pytest

from beambert.trainers.buckets import objects


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """An emulator of Cloud Storage, which environment variables point to."""
    from tests.deploy.dataflow.gcp_stand_in import stand_in

    with stand_in(tmp_path_factory.mktemp("cloud")) as here, pytest.MonkeyPatch.context() as patch:
        for name, value in here.environment.items():
            patch.setenv(name, value)
        objects._client.cache_clear()
        yield here
    objects._client.cache_clear()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A separate cache directory for each test."""
    monkeypatch.setenv("BEAMBERT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
