"""What all tests share."""

import contextlib
import os
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

ROOT = Path(__file__).parent.parent

# No test depends on the speed of the machine. The environment of tests/parity has no Hypothesis.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    settings.register_profile("beambert", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("beambert")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the repository; BEAMBERT_REQUIRE_DATA=1 makes its absence a failure."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        message = f"real data is not here: {os.path.relpath(path, ROOT)} (see CONTRIBUTING.md)"
        if os.environ.get("BEAMBERT_REQUIRE_DATA") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return path
