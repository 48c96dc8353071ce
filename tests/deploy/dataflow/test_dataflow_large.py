"""Test a larger build on the stand-in for Dataflow; only `make test-dataflow` runs it."""

import os
import time

import pytest

import beambert
from tests.deploy.dataflow.gcp_stand_in import BUCKET, stand_in

pytestmark = pytest.mark.skipif(
    os.environ.get("BEAMBERT_LARGE") != "1", reason="takes minutes: make test-dataflow runs it"
)
FLAGS = ["--drop_near_duplicates", "--drop_repeated_paragraphs", "--vocab_size", "8000", "--dupe_factor", "2"]


def test_wikipedia_from_bucket_to_bucket_has_the_bytes_of_a_local_build(shared_data, tmp_path, monkeypatch):
    cloud_folder = tmp_path / "cloud"
    cloud_folder.mkdir()
    with stand_in(cloud_folder) as cloud:
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        for name in ("enwiki-2015-00.bz2", "enwiki-2015-01.bz2"):
            cloud.bucket().blob(f"wiki/{name}").upload_from_filename(shared_data / "wiki-extracted" / name)
        argv = ["build", "--input", f"gs://{BUCKET}/wiki/*.bz2", *FLAGS]
        started = time.monotonic()
        assert beambert.main(["submit", "dataflow", *cloud.flags, *argv, "--output", f"gs://{BUCKET}/data"]) == 0
        print(f"Dataflow's stand-in: {time.monotonic() - started:.0f} s")
        local = tmp_path / "local"
        started = time.monotonic()
        assert beambert.main([*argv, "--output", str(local)]) == 0
        print(f"local: {time.monotonic() - started:.0f} s")
        objects = cloud.contents("data")
    files = {str(path.relative_to(local)): path.read_bytes() for path in local.rglob("*") if path.is_file()}
    assert objects.keys() == files.keys()
    assert {name for name in files if objects[name] != files[name]} == set()
    print(f"{len(files)} files, {sum(map(len, files.values())) / 1e6:.0f} MB, every byte equal")
