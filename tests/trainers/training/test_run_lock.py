"""Test the lock of a run directory: of several processes that train together, only the chief holds it."""

import json
import os

import pytest

from beambert.pipelines.errors import OutputError
from beambert.pipelines.io.output_directory import LOCK_NAME
from beambert.trainers.errors import TrainingError
from beambert.trainers.pretraining.options import PretrainOptions
from beambert.trainers.training.run_files import run_lock

HOSTS = ["a:1", "b:1"]
CONFIGS = [
    ({"worker": HOSTS}, "worker", 0, True),
    ({"worker": HOSTS}, "worker", 1, False),
    ({"chief": HOSTS[:1], "worker": HOSTS[1:]}, "chief", 0, True),
    # Earlier code treated this worker as a second chief.
    ({"chief": HOSTS[:1], "worker": HOSTS[1:]}, "worker", 0, False),
]


def config(strategy, **changes):
    return PretrainOptions(data=("data",), output="run", strategy=strategy, **changes)


@pytest.mark.parametrize(("cluster", "kind", "index", "chief"), CONFIGS)
def test_only_the_chief_of_several_machines_holds_the_lock(cluster, kind, index, chief, tmp_path, monkeypatch):
    def become(kind, index):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}))

    for strategy in ("auto", "multi_worker"):
        become(kind, index)
        with run_lock(tmp_path, config(strategy, backend="tensorflow")):
            assert (tmp_path / LOCK_NAME).exists() == chief
            # The other workers start while the chief holds the lock.
            become("worker", 1)
            with run_lock(tmp_path, config(strategy, backend="tensorflow")):
                pass
    with run_lock(tmp_path, config("single", backend="tensorflow")):
        assert (tmp_path / LOCK_NAME).exists()


@pytest.mark.parametrize("index", [0, 1])
def test_a_tf_config_does_not_determine_the_chief_with_jax(index, tmp_path, monkeypatch):
    # Vertex AI and Kubeflow set TF_CONFIG for every program.
    task = {"cluster": {"worker": HOSTS}, "task": {"type": "worker", "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    with run_lock(tmp_path, config("auto", backend="jax")):
        assert (tmp_path / LOCK_NAME).exists()


@pytest.mark.parametrize("strategy", ["auto", "mirrored", "multi_worker"])
def test_only_the_first_of_several_jax_processes_holds_the_lock(strategy, tmp_path):
    chief, other = (
        config(strategy, coordinator_address="a:1", num_processes=2, process_id=process_id) for process_id in range(2)
    )
    with run_lock(tmp_path, other):
        assert not (tmp_path / LOCK_NAME).exists()
    with run_lock(tmp_path, chief):
        assert (tmp_path / LOCK_NAME).exists()
        with run_lock(tmp_path, other):
            pass


@pytest.mark.parametrize(
    "environment",
    [
        {"TPU_WORKER_ID": "1"},
        {"SLURM_PROCID": "1"},
        {"OMPI_COMM_WORLD_RANK": "1"},
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1"},
    ],
)
def test_a_detected_process_other_than_the_first_one_does_not_lock(environment, tmp_path, monkeypatch):
    detected = config("multi_worker", backend="jax")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with run_lock(tmp_path, detected):
        assert not (tmp_path / LOCK_NAME).exists()
    monkeypatch.setenv(list(environment)[-1], "0")
    with run_lock(tmp_path, detected):
        assert (tmp_path / LOCK_NAME).exists()


def test_processes_of_jax_are_refused_for_tensorflow():
    # Both processes would be the chief and write the same files.
    with pytest.raises(TrainingError, match="--coordinator_address with --backend tensorflow: it requires"):
        config("auto", backend="tensorflow", coordinator_address="a:1", num_processes=2, process_id=1)


def test_tpu_cluster_variables_do_not_disable_the_lock_with_tensorflow(tmp_path, monkeypatch):
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "a,b")
    monkeypatch.setenv("TPU_WORKER_ID", "1")
    with run_lock(tmp_path, config("auto", backend="tensorflow")):
        assert (tmp_path / LOCK_NAME).exists()


@pytest.mark.parametrize(("cluster", "kind", "index", "chief"), CONFIGS)
def test_tensorflow_distribution_has_the_same_chief(cluster, kind, index, chief, monkeypatch):
    import tensorflow as tf

    from beambert.trainers.backends.tensorflow.distribution import _is_chief

    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}))
    assert _is_chief(tf.distribute.cluster_resolver.TFConfigClusterResolver()) == chief


@pytest.mark.parametrize("tf_config", ["", "no JSON", "[]", "{}", '{"task": 3}', '{"task": {"type": 1, "index": "x"}}'])
def test_a_tf_config_that_cannot_be_read_leaves_the_lock_in_place(tf_config, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config)
    with (
        run_lock(tmp_path, config("multi_worker", backend="tensorflow")),
        pytest.raises(OutputError, match=f"in use by process {os.getpid()} on"),
    ):
        run_lock(tmp_path, config("multi_worker", backend="tensorflow")).__enter__()
