"""Call functions of tests directly after a checkpoint is saved."""

from trainers.training import loop


def after_save(monkeypatch, step, happens):
    """Call `happens(directory)` after the checkpoint of a step is saved."""
    save = loop.checkpoint_manager.save

    def saved(directory, at, *args):
        checkpoint = save(directory, at, *args)
        if at == step:
            happens(directory)
        return checkpoint

    monkeypatch.setattr(loop.checkpoint_manager, "save", saved)
