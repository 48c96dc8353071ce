import pytest


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """An emulator of Cloud Storage, which the environment variables select."""
    from tests.deploy.dataflow.gcp_stand_in import stand_in

    with stand_in(tmp_path_factory.mktemp("cloud")) as here, pytest.MonkeyPatch.context() as patch:
        for name, value in here.environment.items():
            patch.setenv(name, value)
        yield here
