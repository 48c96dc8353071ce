"""Skip these tests where the TPU compiler is not installed; `make test-tpu-compile` installs it."""

import importlib.util

if importlib.util.find_spec("libtpu"):
    import tests.tpu_compile.steps  # noqa: F401  # Selects the backend before a test imports Keras.

    collect_ignore_glob = []
else:
    print("tests/tpu_compile is skipped: the TPU compiler (libtpu) is not installed; run make test-tpu-compile")
    collect_ignore_glob = ["test_*.py"]
