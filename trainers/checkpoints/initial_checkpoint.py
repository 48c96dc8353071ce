"""`--init_checkpoint`: the weights of any checkpoint that a model has too."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from bert_model.checkpoints.reader import Checkpoint
from bert_model.config import BertConfig
from bert_model.vocabulary_padding import with_padding
from trainers.errors import TrainingError

# What may differ: dropout and the spread of initial weights are choices of training, not of the weights.
_FREE = ("attention_probs_dropout_prob", "hidden_dropout_prob", "initializer_range")
_SHOWN_NAMES = 6


class LoadedWeights(NamedTuple):
    """The weights that were loaded or not, by TF1 name; `ignored` has names of the file.

    Attributes:
        loaded: taken from the checkpoint.
        initialised: of the model, not in the checkpoint, left at their random initial values.
        ignored: in the checkpoint, not in the model; the optimizer's state is not counted.
    """

    loaded: tuple[str, ...]
    initialised: tuple[str, ...]
    ignored: tuple[str, ...]

    def lines(self, shown: int = _SHOWN_NAMES) -> list[str]:
        """Return a line for each of the three that is not empty, with at most N names."""
        rows = [(f"{word} {len(names)}", names) for word, names in zip(self._fields, self, strict=True) if names]
        return [count if count.startswith("loaded") else f"{count}: {listed(names, shown)}" for count, names in rows]

    def to_text(self) -> str:
        """Return every name, a line each."""
        return "".join(f"{word} {name}\n" for word, names in zip(self._fields, self, strict=True) for name in names)


def listed(names: Sequence[str], shown: int = _SHOWN_NAMES) -> str:
    """Return names in one line: all, or the first and how many more."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def check_same_model(checkpoint: Checkpoint, config: BertConfig) -> None:
    """Refuse a checkpoint whose weights would mean something else in a model of that configuration.

    Raises:
        TrainingError: a value differs; the message names every one that does.
    """
    differences = [
        f"{field.name} {getattr(checkpoint.config, field.name)} there, {getattr(config, field.name)} in the model"
        for field in dataclasses.fields(BertConfig)
        if field.name not in _FREE and getattr(checkpoint.config, field.name) != getattr(config, field.name)
    ]
    if differences:
        raise TrainingError(
            f"--init_checkpoint {checkpoint.path} is of another model: {'; '.join(differences)}; leave --model out to "
            "take the checkpoint's, and build the data with its vocabulary"
        )


def load_weights(checkpoint: Checkpoint, variables: Mapping[str, Any], leave: Collection[str] = ()) -> LoadedWeights:
    """Assign what a checkpoint and a model have in common.

    Args:
        checkpoint: open.
        variables: of the model, by TF1 name; rows that pad the vocabulary are filled with zeros.
        leave: names that are not taken from the checkpoint though it has them.

    Raises:
        CheckpointError: the checkpoint turns out damaged.
        TrainingError: a tensor has another shape than the variable.
    """
    loaded = tuple(name for name in variables if name in checkpoint.tensors and name not in leave)
    for name in loaded:
        variable, value = variables[name], checkpoint.tensors[name].read()
        value = with_padding(name, value, list(variable.shape))
        if value.shape != tuple(variable.shape):
            raise TrainingError(
                f"--init_checkpoint {checkpoint.path} has {name} of shape {list(value.shape)}, the model needs "
                f"{list(variable.shape)}; give a checkpoint of the same model"
            )
        variable.assign(value.astype("float32"))
    return LoadedWeights(
        loaded,
        tuple(name for name in variables if name not in loaded),
        tuple(name for name in checkpoint.tensors if name not in loaded) + checkpoint.ignored,
    )
