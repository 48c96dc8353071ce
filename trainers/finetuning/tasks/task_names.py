"""The tasks of `beambert finetune` and the modules that read their files.

Each module has `open_task(config, wanted, labels)`, which reads and validates the files and returns a `FinetuningTask`,
and `DEFAULT_MAX_SEQ_LENGTH`. The flags of a task are in `beambert.trainers.finetuning.options`.
"""

import importlib
from types import ModuleType

_GLUE = "beambert.trainers.finetuning.tasks.text.glue"
TASKS = {
    "cola": _GLUE,
    "sst2": _GLUE,
    "mrpc": _GLUE,
    "stsb": _GLUE,
    "qqp": _GLUE,
    "mnli": _GLUE,
    "qnli": _GLUE,
    "rte": _GLUE,
    "wnli": _GLUE,
    "xnli": _GLUE,
    "squad": "beambert.trainers.finetuning.tasks.spans.span_task",
    "swag": "beambert.trainers.finetuning.tasks.text.multiple_choice",
    "ner": "beambert.trainers.finetuning.tasks.tagging.tagging_task",
    "csv": "beambert.trainers.finetuning.tasks.text.tabular",
}


def module_of(task: str) -> ModuleType:
    """Return the module that reads a task's files."""
    return importlib.import_module(TASKS[task])
