"""Fine-tuning tasks: each reads its files, and converts logits to scores and predictions.

The module of a task has `add_arguments(parser)`, which adds the flags of its tasks, `open_task(config, wanted,
labels)`, which reads and validates the files and returns a `FinetuningTask`, and `DEFAULT_MAX_SEQ_LENGTH`. This package
imports neither TensorFlow nor Keras.
"""

import argparse
import importlib
from types import ModuleType
from typing import Any

from beambert.trainers.config.finetune_config import FinetuneConfig
from beambert.trainers.errors import TrainingError

_GLUE = "beambert.trainers.finetuning.tasks.glue"
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
    "squad": "beambert.trainers.finetuning.tasks.squad",
    "swag": "beambert.trainers.finetuning.tasks.multiple_choice",
    "ner": "beambert.trainers.finetuning.tasks.ner",
    "csv": "beambert.trainers.finetuning.tasks.tabular",
}


def module_of(task: str) -> ModuleType:
    """Return the module that reads a task's files."""
    return importlib.import_module(TASKS[task])


def add_task_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every task."""
    for name in dict.fromkeys(TASKS.values()):
        importlib.import_module(name).add_arguments(parser)


def task_defaults(task: str) -> dict[str, Any]:
    """Return the defaults of a task's flags by option name."""
    return {action.dest: action.default for action in _actions(TASKS[task])}


def check_task_options(config: FinetuneConfig) -> None:
    """Check that no flag of another task is set.

    Raises:
        TrainingError: such a flag is set.
    """
    for name in dict.fromkeys(TASKS.values()):
        if name == TASKS[config.task]:
            continue
        for action in _actions(name):
            if getattr(config, action.dest) != action.default:
                tasks = ", ".join(task for task, module in TASKS.items() if module == name)
                raise TrainingError(f"{action.option_strings[0]} is a flag of {tasks}, not of {config.task}: omit it")


def _actions(module: str) -> list[argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    importlib.import_module(module).add_arguments(parser)
    return parser._actions
