"""Load initial weights from a checkpoint of any format (`--init_checkpoint`)."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from beambert.bert_model.checkpoints.reader import Checkpoint
from beambert.bert_model.config import BertConfig
from beambert.bert_model.size import with_padding
from beambert.common.formatting import join_first
from beambert.trainers.errors import TrainingError

# Fields that may differ: dropout and weight initialization affect training only.
_FREE = ("attention_probs_dropout_prob", "hidden_dropout_prob", "initializer_range")
_SHOWN_NAMES = 6


class LoadedWeights(NamedTuple):
    """The result of loading weights, by TF1 name; `ignored` has the names in the checkpoint.

    Attributes:
        loaded: weights loaded from the checkpoint.
        initialized: weights of the model that the checkpoint lacks, with random initial values.
        ignored: weights of the checkpoint that the model lacks, without the optimizer state.
    """

    loaded: tuple[str, ...]
    initialized: tuple[str, ...]
    ignored: tuple[str, ...]

    def lines(self, shown: int = _SHOWN_NAMES) -> list[str]:
        """Return a line for each non-empty field, with at most `shown` names."""
        rows = [(f"{word} {len(names)}", names) for word, names in zip(self._fields, self, strict=True) if names]
        return [
            count if count.startswith("loaded") else f"{count}: {join_first(names, shown)}" for count, names in rows
        ]

    def to_text(self) -> str:
        """Return all names, one per line."""
        return "".join(f"{word} {name}\n" for word, names in zip(self._fields, self, strict=True) for name in names)


def check_same_model(checkpoint: Checkpoint, config: BertConfig) -> None:
    """Check that a checkpoint fits the configuration of a model.

    Raises:
        TrainingError: the configurations differ; the message lists all differences.
    """
    differences = [
        f"{field.name} is {getattr(checkpoint.config, field.name)}, {getattr(config, field.name)} in the model"
        for field in dataclasses.fields(BertConfig)
        if field.name not in _FREE and getattr(checkpoint.config, field.name) != getattr(config, field.name)
    ]
    if differences:
        raise TrainingError(
            f"--init_checkpoint {checkpoint.path} does not fit the model: {'; '.join(differences)}; omit "
            "--model to use "
            "the checkpoint's configuration, and build the data with its vocabulary"
        )


def load_weights(checkpoint: Checkpoint, variables: Mapping[str, Any], leave: Collection[str] = ()) -> LoadedWeights:
    """Assign the weights that a checkpoint and a model have in common.

    Args:
        checkpoint: an open checkpoint.
        variables: variables of the model by TF1 name; rows that pad the vocabulary are set to zero.
        leave: names not to load from the checkpoint.

    Raises:
        CheckpointError: the checkpoint is corrupt.
        TrainingError: a tensor and its variable have different shapes.
    """
    loaded = tuple(name for name in variables if name in checkpoint.tensors and name not in leave)
    for name in loaded:
        variable, value = variables[name], checkpoint.tensors[name].read()
        value = with_padding(name, value, list(variable.shape))
        if value.shape != tuple(variable.shape):
            raise TrainingError(
                f"--init_checkpoint {checkpoint.path} has {name} with shape {list(value.shape)}, but the model "
                "requires "
                f"{list(variable.shape)}; give a checkpoint of the same model"
            )
        variable.assign(value.astype("float32"))
    return LoadedWeights(
        loaded,
        tuple(name for name in variables if name not in loaded),
        tuple(name for name in checkpoint.tensors if name not in loaded) + checkpoint.ignored,
    )
