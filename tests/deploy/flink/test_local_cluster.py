"""Test the directory of `python -m tests.deploy.flink.local_cluster`, without a cluster."""

import json
from pathlib import Path

import pytest

from beambert.pipelines.errors import SubmitError
from tests.deploy.flink import local_cluster

STATE = {"java": "java", "jars": "jars", "rest_port": 1, "pool_port": 2, "processes": {}}


@pytest.fixture
def cluster_error(tmp_path, capsys, monkeypatch):
    """A function that runs an action for a directory and returns its one-line error."""

    def fetch():
        raise SubmitError("downloads from Maven")

    monkeypatch.setattr(local_cluster, "find_java", lambda java: java)
    monkeypatch.setattr(local_cluster, "listens", lambda address: False)
    monkeypatch.setattr(local_cluster, "fetch_job_server", fetch)

    def run(*argv: str, directory: Path = tmp_path) -> str:
        assert local_cluster.main([*argv, f"--directory={directory}"]) == 1
        err = capsys.readouterr().err
        assert err.count("\n") == 1, err
        return err.removeprefix("flink_cluster: error: ").rstrip("\n")

    return run


def test_a_directory_with_files_of_others_is_refused_and_stays(cluster_error, tmp_path):
    (tmp_path / "thesis.tex").write_text("text")
    assert cluster_error("up") == (
        f"--directory {tmp_path} is neither empty nor the directory of a local cluster (cluster.json is missing): "
        "give a new or empty directory"
    )
    assert (tmp_path / "thesis.tex").read_text() == "text"
    assert "thesis.tex is neither empty nor" in cluster_error("up", directory=tmp_path / "thesis.tex")


def test_up_removes_only_what_an_earlier_cluster_wrote(tmp_path, monkeypatch):
    for name in ("conf/config.yaml", "log/pool.log", "tmp/spill", "notes/mine.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("earlier")
    (tmp_path / "cluster.json").write_text(json.dumps(STATE))
    monkeypatch.setattr(local_cluster, "find_java", lambda java: java)
    monkeypatch.setattr(local_cluster, "listens", lambda address: False)
    monkeypatch.setattr(local_cluster, "fetch_job_server", lambda: tmp_path / "jars")

    def start(self, name, command):
        raise SubmitError("not started in this test")

    monkeypatch.setattr(local_cluster.LocalCluster, "_start", start)
    with pytest.raises(SubmitError, match="not started in this test"):
        local_cluster.LocalCluster(tmp_path).up()
    assert (tmp_path / "notes/mine.txt").read_text() == "earlier"
    assert not list((tmp_path / "log").iterdir())
    assert not list((tmp_path / "tmp").iterdir())
    assert "rest.port: 8081" in (tmp_path / "conf/config.yaml").read_text()


@pytest.mark.parametrize("action", ["kill-taskmanager", "start-taskmanager"])
def test_a_task_manager_without_a_cluster_is_one_line(cluster_error, tmp_path, action):
    assert cluster_error(action, "1") == f"no cluster in {tmp_path}: run `up` first"


def test_down_without_a_cluster_does_nothing(tmp_path):
    assert local_cluster.main(["down", f"--directory={tmp_path}"]) == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("action", ["up", "down", "start-taskmanager"])
def test_an_invalid_state_file_is_one_line(cluster_error, tmp_path, action):
    (tmp_path / "cluster.json").write_text(json.dumps({**STATE, "processes": {"pool": 5}}))
    error = cluster_error(action)
    assert error.startswith(f"{tmp_path / 'cluster.json'}: processes")
    assert error.endswith("; end the processes of the cluster and remove it")
