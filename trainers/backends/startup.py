"""Choose the backend of a command and start its library.

This file imports neither Keras, TensorFlow nor JAX until a backend is started.
"""

import contextlib
import gc
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from beambert.trainers.errors import TrainingError
from beambert.trainers.options import ProcessGroup

# Devices that the drivers of GPUs and TPUs create.
_NVIDIA_DEVICES = ("/dev/nvidia0",)
_GPU_DEVICES = (*_NVIDIA_DEVICES, "/dev/kfd")
_TPU_DEVICES = ("/dev/accel0", "/dev/vfio/0")
_GPU_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm60_plugin", "jax_rocm7_plugin")


def choose_backend(name: str) -> Literal["tensorflow", "jax"]:
    """Return the backend for a value of --backend.

    Args:
        name: "tensorflow", "jax", or "auto": the backend that this process has started, if any; JAX where a GPU or TPU
            and JAX for it are installed and TF_CONFIG is not set, or where TensorFlow is not installed; otherwise
            TensorFlow.

    Raises:
        TrainingError: the library is not installed, or this process has started the other one.
    """
    started = _started_backend()
    if name == "auto":
        name = started or _default_backend()
    if started and name != started:
        raise TrainingError(f"--backend {name}: this process has started {started}; use a new process for {name}")
    if not _is_installed(name):
        label, extra = ("JAX", _jax_extra()) if name == "jax" else ("TensorFlow", "train")
        raise TrainingError(
            f"--backend {name}: {label} is not installed; install it with pip install 'beambert[{extra}]'"
        )
    return "jax" if name == "jax" else "tensorflow"


def ensure_backend(name: str = "auto") -> None:
    """Start the backend for a value of --backend, unless this process has started it.

    Raises:
        TrainingError: as `choose_backend`.
    """
    chosen = choose_backend(name)
    if _started_backend() is None:
        start_backend(chosen)


def start_backend(
    name: str, cpu_devices: int = 1, deterministic: bool = True, processes: ProcessGroup | None = None
) -> None:
    """Import the library of a backend and Keras, and initialize the devices; a second call changes nothing.

    Call this before the first import of a module that needs Keras.

    Args:
        name: "tensorflow" or "jax".
        cpu_devices: number of logical CPU devices, for several replicas without several accelerators.
        deterministic: whether equal inputs give bit-identical results, which is slower on some GPUs.
        processes: the processes that train together under JAX; None for a single process.

    Raises:
        TrainingError: the processes cannot be connected.
    """
    if name == "jax":
        from beambert.trainers.backends.jax.startup import start_jax

        start_jax(cpu_devices, deterministic, processes)
    else:
        from beambert.trainers.backends.tensorflow.startup import start_tensorflow

        start_tensorflow(cpu_devices, deterministic)


@contextlib.contextmanager
def freed_graphs() -> Iterator[None]:
    """Free the graphs that TensorFlow traces in the body, and the weights of their models.

    TensorFlow registers a function for each custom gradient in a graph and never removes it, which keeps the graph and
    the variables that it reads alive. After the body, the graphs have no gradients.
    """
    before = set(_custom_gradients())
    try:
        yield
    finally:
        functions = _custom_gradients()
        # The import of TensorFlow in the body registers its own gradients.
        for name in functions.keys() - before if before else ():
            del functions[name]
        gc.collect()


def _custom_gradients() -> dict[str, Any]:
    """Return TensorFlow's table of gradient functions by name; an empty one without TensorFlow."""
    framework = sys.modules.get("tensorflow.python.framework.ops")
    functions: dict[str, Any] = getattr(getattr(framework, "gradient_registry", None), "_registry", {})
    return functions


def _started_backend() -> str | None:
    """Return the backend that Keras was imported with; None before its import."""
    return str(sys.modules["keras"].backend.backend()) if "keras" in sys.modules else None


def _default_backend() -> str:
    if "TF_CONFIG" in os.environ or not _is_installed("jax"):
        return "tensorflow"
    return "jax" if _has_accelerator_for_jax() or not _is_installed("tensorflow") else "tensorflow"


def _has_accelerator_for_jax() -> bool:
    has_gpu = _exists(_GPU_DEVICES) and any(map(_is_installed, _GPU_PLUGINS))
    return has_gpu or (_exists(_TPU_DEVICES) and _is_installed("libtpu"))


def _jax_extra() -> str:
    """Return the extra that installs JAX for the devices of this machine."""
    if _exists(_TPU_DEVICES):
        return "tpu"
    return "cuda" if _exists(_NVIDIA_DEVICES) else "jax"


def _exists(devices: Sequence[str]) -> bool:
    return any(Path(device).exists() for device in devices)


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
