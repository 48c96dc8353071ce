"""The options of a training command as `run.json` and `runs.json` record them, with their types as JSON.

An older file lacks some of the options; an option that is not known is allowed.
"""

from typing import TypedDict, get_type_hints

from trainers.config.finetune_config import FinetuneConfig
from trainers.config.pretrain_config import PretrainConfig

_TYPES = {**get_type_hints(PretrainConfig, include_extras=True), **get_type_hints(FinetuneConfig, include_extras=True)}
# None where an older record has it, or a command that does not train.
_TYPES |= {name: _TYPES[name] | None for name in ("learning_rate", "num_train_steps", "best_metric")}

# Options that older records have under another name, as flags had it.
RENAMED_OPTIONS = {
    "left_to_right": "causal_attention",
    "recompute": "activation_checkpointing",
    "on_corrupt": "on_corrupt_record",
    "on_not_finite": "on_nonfinite",
    "dev_share": "dev_fraction",
}

RecordedOptions = TypedDict("RecordedOptions", _TYPES, total=False)  # type: ignore[misc]
