"""Start TensorFlow without its log lines and with deterministic operations."""

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from types import FrameType

from beambert.common.imports import uncollected_imports
from beambert.common.signals import handled_signals


def start_tensorflow(cpu_devices: int = 1, deterministic: bool = True) -> None:
    """Import TensorFlow and Keras, initialize the devices and enable deterministic operations.

    TensorFlow 2.21 logs available and missing libraries to standard error before any of its settings applies. The file
    descriptor is therefore redirected during the import; if the import fails, the captured text is printed. Call this
    before the first import of a module that needs TensorFlow; a second call changes nothing.

    Args:
        cpu_devices: number of logical CPU devices, for several replicas without several GPUs.
        deterministic: whether equal inputs give bit-identical results, which is slower on some GPUs.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    sys.stderr.flush()
    original_stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured, _interrupted() as interruption:
        os.dup2(captured.fileno(), 2)
        try:
            with _without_jax(), uncollected_imports():
                import keras  # noqa: F401
                import tensorflow as tf

            tf.get_logger().setLevel("ERROR")
            if cpu_devices > 1:
                (cpu,) = tf.config.list_physical_devices("CPU")
                tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * cpu_devices)
            # A machine must join its cluster before it initializes its own devices.
            if "TF_CONFIG" not in os.environ:
                tf.config.list_logical_devices()
            if deterministic:
                tf.config.experimental.enable_op_determinism()
        except BaseException as error:
            # An interrupted import may raise any exception.
            if interruption.is_set():
                raise KeyboardInterrupt from error
            captured.seek(0)
            os.write(original_stderr, captured.read())
            raise
        finally:
            os.dup2(original_stderr, 2)
            os.close(original_stderr)
    # A library may have caught KeyboardInterrupt.
    if interruption.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def _without_jax() -> Iterator[None]:
    """Make imports of JAX fail in the body: TensorFlow imports it for a converter, which takes 0.4 seconds."""
    if "jax" in sys.modules:
        yield
        return
    sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["jax"]


@contextlib.contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """Set the event on Ctrl-C during the body, besides raising KeyboardInterrupt."""
    interruption = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interruption.set()
        signal.default_int_handler(number, frame)

    with handled_signals((signal.SIGINT,), interrupt, unless_handled=True):
        yield interruption
