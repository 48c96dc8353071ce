"""Test the packages that Dataflow workers install for each format of the shards."""

import importlib.metadata

import pytest

import beambert
from deploy.dataflow import workers
from tests.deploy.dataflow.gcp_stand_in import BUCKET, stand_in


@pytest.fixture
def cloud(built, tmp_path, monkeypatch):
    """The stand-in, with a corpus in its bucket."""
    with stand_in(tmp_path) as here:
        for name, value in here.environment.items():
            monkeypatch.setenv(name, value)
        here.upload(built, "corpus")
        yield here


def test_array_record_is_installed_for_its_format_only(cloud, tmp_path):
    """Check that workers with the staged packages write the same shards as a local job."""
    pytest.importorskip("array_record")
    package = f"array-record=={importlib.metadata.version('array-record')}"
    assert package not in workers.requirements()
    argv = ["pretraining-data", "--input", f"gs://{BUCKET}/corpus", "--format", "array_record", "--dupe_factor", "1"]
    assert beambert.main(["submit", "dataflow", *cloud.flags, *argv, "--output", f"gs://{BUCKET}/records"]) == 0
    (staged,) = (content for name, content in cloud.contents("temp").items() if name.endswith("/requirements.txt"))
    lines = staged.decode().splitlines()
    assert package in lines
    assert set(lines) >= set(workers.requirements())
    assert beambert.main([*argv, "--output", str(tmp_path / "local")]) == 0
    local = {f"shards/{path.name}": path.read_bytes() for path in (tmp_path / "local" / "shards").iterdir()}
    objects = cloud.contents("records")
    assert len(local) == 4
    assert {name: objects[name] for name in local} == local
