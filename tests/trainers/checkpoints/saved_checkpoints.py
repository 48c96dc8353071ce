"""Read the checkpoints of runs, and call functions of tests directly after a checkpoint is saved."""

from pathlib import Path

import numpy as np

from beambert.bert_model.checkpoints import tf1
from beambert.trainers.training import loop


def variables(output: Path, step: int) -> dict[str, np.ndarray]:
    """Return the content of a checkpoint of a run by name."""
    return {name: tensor.read() for name, tensor in tf1.read(output / f"checkpoints/model.ckpt-{step}").items()}


def after_save(monkeypatch, step, happens):
    """Call `happens(directory)` after the checkpoint of a step is saved."""
    save = loop.checkpoint_manager.save

    def saved(directory, at, *args):
        checkpoint = save(directory, at, *args)
        if at == step:
            happens(directory)
        return checkpoint

    monkeypatch.setattr(loop.checkpoint_manager, "save", saved)
