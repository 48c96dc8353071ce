"""Define the options of a training command as recorded in `run.json` and `runs.json`, with their JSON types.

A file has the options of its command; unknown options are allowed.
"""

from typing import TypedDict, get_type_hints

from beambert.trainers.config.finetune_config import FinetuneConfig
from beambert.trainers.config.pretrain_config import PretrainConfig

_TYPES = {**get_type_hints(PretrainConfig, include_extras=True), **get_type_hints(FinetuneConfig, include_extras=True)}
del _TYPES["given_options"]
# None for a command that does not train.
_TYPES |= {name: _TYPES[name] | None for name in ("learning_rate", "num_train_steps", "best_metric")}

RecordedOptions = TypedDict("RecordedOptions", _TYPES, total=False)  # type: ignore[misc]
