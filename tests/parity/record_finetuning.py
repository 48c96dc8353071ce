"""Write tests/fixtures/finetuning.json: losses and logits of transformers for the models of tests/trainers/finetuning.

Run it in the environment of `make test-parity`: .venv-parity/bin/python tests/parity/record_finetuning.py
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[2]))

from torch_finetuning import converted_model, their_trajectory

from tests.trainers.finetuning.trajectories import CASES, COURSES, RECORDED, TINY, write_weights

FIXTURE = Path(__file__).parents[1] / "fixtures" / "finetuning.json"


def rounded(values: np.ndarray) -> list:
    """Return an array as nested lists of numbers with seven significant digits."""
    return [rounded(part) for part in values] if values.ndim else float(f"{values:.7g}")


def main() -> None:
    """Write the fixture."""
    trajectories = {}
    for name, optimizer in RECORDED:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as directory:
            native = write_weights(Path(directory) / "native", TINY, case)
            model = converted_model(native, Path(directory) / "huggingface", case)
        trajectory = their_trajectory(model, case, COURSES[optimizer], case.rows(), case.answered())
        trajectories[f"{name}, {optimizer}"] = {
            "losses": rounded(np.array(trajectory.losses)),
            "logits": [rounded(logits) for logits in trajectory.logits],
        }
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    text = json.dumps({"versions": versions, "trajectories": trajectories})
    FIXTURE.write_text(text.replace('}, "', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
