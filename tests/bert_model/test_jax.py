import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.bert_model.every_output import every_output
from tests.conftest import ROOT


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_jax_gives_the_numbers_of_tensorflow_without_importing_it(tmp_path):
    here = Path(__file__).parent
    path = os.pathsep.join([str(ROOT), str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Keras reads the backend when it is imported. JAX_PLATFORMS avoids a message of JAX without an accelerator.
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    program = [sys.executable, str(here / "every_output.py"), str(tmp_path / "jax.npz")]
    answer = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    wanted = every_output()
    with np.load(tmp_path / "jax.npz") as given:
        assert set(given) == set(wanted)
        for name, values in wanted.items():
            np.testing.assert_allclose(given[name], values, rtol=1e-5, atol=1e-5, err_msg=name)
