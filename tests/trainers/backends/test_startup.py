"""Tests of the backend for a value of --backend, by installed packages and available devices."""

import sys
import weakref
from types import SimpleNamespace

import pytest
import tensorflow as tf

from beambert.bert_model.ops import gelu
from beambert.trainers.backends import startup
from beambert.trainers.backends.startup import choose_backend, freed_graphs
from beambert.trainers.errors import TrainingError


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A function that sets the installed packages and the devices of a machine where no backend was started."""
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for name in ("_NVIDIA_DEVICES", "_GPU_DEVICES", "_TPU_DEVICES"):
        paths = [tmp_path / device.strip("/").replace("/", "-") for device in getattr(startup, name)]
        monkeypatch.setattr(startup, name, tuple(map(str, paths)))

    def set_machine(*packages, devices=()):
        monkeypatch.setattr(startup, "_is_installed", packages.__contains__)
        for device in devices:
            (tmp_path / device).touch()

    return set_machine


def test_auto_takes_jax_where_it_has_an_accelerator_or_is_alone(machine):
    machine("jax", "tensorflow")
    assert choose_backend("auto") == "tensorflow"
    machine("jax")
    assert choose_backend("auto") == "jax"
    machine("jax", "tensorflow", "jax_cuda13_plugin")
    assert choose_backend("auto") == "tensorflow"


@pytest.mark.parametrize(("device", "package"), [("dev-nvidia0", "jax_cuda13_plugin"), ("dev-vfio-0", "libtpu")])
def test_auto_takes_jax_for_a_device_that_it_can_use(machine, monkeypatch, device, package):
    machine("jax", "tensorflow", devices=[device])
    assert choose_backend("auto") == "tensorflow"
    machine("jax", "tensorflow", package, devices=[device])
    assert choose_backend("auto") == "jax"
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert choose_backend("auto") == "tensorflow"


@pytest.mark.parametrize(("devices", "extra"), [([], "jax"), (["dev-nvidia0"], "cuda"), (["dev-accel0"], "tpu")])
def test_a_missing_library_is_named_with_the_extra_for_the_machine(machine, devices, extra):
    machine(devices=devices)
    with pytest.raises(TrainingError, match=rf"JAX is not installed; .* 'beambert\[{extra}\]'"):
        choose_backend("jax")
    with pytest.raises(TrainingError, match=r"TensorFlow is not installed; .* 'beambert\[train\]'"):
        choose_backend("auto")


def test_a_process_keeps_its_backend():
    # The tests run with TensorFlow.
    assert choose_backend("auto") == choose_backend("tensorflow") == "tensorflow"
    with pytest.raises(TrainingError, match="--backend jax: this process has started tensorflow"):
        choose_backend("jax")


def test_graphs_and_weights_of_a_finished_run_are_freed():
    def run():
        variable = tf.Variable(1.0)
        graph = tf.function(lambda: gelu(variable * 2)).get_concrete_function().graph
        return weakref.ref(graph), weakref.ref(variable)

    def gradient():
        with tf.GradientTape() as tape:
            result = function(inputs)
        return tape.gradient(result, inputs)

    inputs = tf.Variable(1.0)
    function = tf.function(gelu)
    function(inputs)
    with freed_graphs():
        references = run()
    assert [reference() for reference in references] == [None, None]
    # Graphs from before are intact.
    assert gradient() is not None


def test_gradients_that_the_import_of_tensorflow_registers_are_kept(monkeypatch):
    name = "tensorflow.python.framework.ops"
    gradients = {"AddV2": object()}
    monkeypatch.delitem(sys.modules, name, raising=False)
    with freed_graphs():
        framework = SimpleNamespace(gradient_registry=SimpleNamespace(_registry=gradients))
        monkeypatch.setitem(sys.modules, name, framework)
    assert gradients.keys() == {"AddV2"}
