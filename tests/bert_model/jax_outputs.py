"""Program: compute outputs of the models under JAX on two devices, and save them.

Arguments: a directory, which gets the files every.npz, seeded.npz and fused.npz. The program fails if TensorFlow was
imported.
"""

import os
import sys
from pathlib import Path

os.environ.update(KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")

import jax
import numpy as np

from tests.bert_model.every_output import every_output
from tests.bert_model.fused_outputs import fused_outputs
from tests.bert_model.seeded_outputs import seeded_outputs

if __name__ == "__main__":
    directory = Path(sys.argv[1])
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_disable_most_optimizations", True)  # Compilation takes most of the time.
    np.savez(directory / "every.npz", **every_output())
    np.savez(directory / "seeded.npz", **seeded_outputs())
    np.savez(directory / "fused.npz", **fused_outputs())
    if "tensorflow" in sys.modules:
        sys.exit("tensorflow was imported")
