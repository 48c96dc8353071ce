"""Models and exports that are made once per session; tests must not change them."""

import pytest

from beambert import cli
from tests.trainers import fake_backend
from tests.trainers.commands.served_models import ServedModels, write_models


@pytest.fixture(scope="module", autouse=True)
def numpy_backend():
    """Train output biases in numpy, without compilation."""
    with pytest.MonkeyPatch.context() as patch:
        fake_backend.install(patch)
        yield


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A directory with a model of every task of `served_models`."""
    folder = tmp_path_factory.mktemp("models")
    write_models(folder)
    return folder


@pytest.fixture(scope="session")
def served(models):
    """The signatures of the models' exports."""
    return ServedModels(models)


@pytest.fixture(scope="session")
def saved_classifier(models, tmp_path_factory):
    """The SavedModel of the classifier, written by `beambert export`."""
    saved = tmp_path_factory.mktemp("export") / "models" / "1"
    assert cli.main(["export", str(models / "classification"), str(saved), "--max_seq_length", "20"]) == 0
    return saved
