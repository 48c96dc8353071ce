"""Define the options of a training command as recorded in `run.json` and `runs.json`, with their JSON types.

Older files lack some options; unknown options are allowed.
"""

from collections.abc import Mapping
from typing import Any, TypedDict, get_type_hints

from beambert.trainers.config.finetune_config import FinetuneConfig
from beambert.trainers.config.pretrain_config import PretrainConfig
from beambert.trainers.config.run_config import RunConfig

_TYPES = {**get_type_hints(PretrainConfig, include_extras=True), **get_type_hints(FinetuneConfig, include_extras=True)}
del _TYPES["given_options"]
# None in older records, and of a command that does not train.
_TYPES |= {name: _TYPES[name] | None for name in ("learning_rate", "num_train_steps", "best_metric")}

# Options that older records have under the old names of the flags.
RENAMED_OPTIONS = {
    "left_to_right": "causal_attention",
    "recompute": "activation_checkpointing",
    "on_corrupt": "on_corrupt_record",
    "on_not_finite": "on_nonfinite",
    "dev_share": "dev_fraction",
}

# Values that older records have under their old names, by option.
RENAMED_VALUES = {"strategy": {"one": "single"}}

RecordedOptions = TypedDict("RecordedOptions", _TYPES, total=False)  # type: ignore[misc]


def with_new_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return recorded options with the renamed values under their new names, and those of before an option existed."""
    renamed = {
        name: values[options[name]]
        for name, values in RENAMED_VALUES.items()
        if isinstance(options.get(name), str) and options[name] in values
    }
    schedule = ("lr_schedule", "lr_decay_fraction", "lr_min_fraction")
    added: dict[str, Any] = {name: getattr(RunConfig, name) for name in schedule}
    if "task" in options:
        added["group_by_length"] = False
    return {**added, **options, **renamed}
