"""The tasks of `beambert finetune` and the modules that read their files.

Each module has `add_arguments(parser)`, for flags of its own, `open_task(args, wanted, labels)`, which reads and checks
the files and returns a `contract.FinetuningTask`, and `DEFAULT_MAX_SEQ_LENGTH`.
"""

import argparse
import importlib
from types import ModuleType
from typing import Any

from trainers.errors import TrainingError

_GLUE = "trainers.finetuning.glue"
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
    "squad": "trainers.finetuning.span_task",
    "swag": "trainers.finetuning.multiple_choice",
    "ner": "trainers.finetuning.tagging_task",
    "csv": "trainers.finetuning.tabular",
}


def module_of(task: str) -> ModuleType:
    """The module that reads a task's files."""
    return importlib.import_module(TASKS[task])


def add_task_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of every task."""
    for name in dict.fromkeys(TASKS.values()):
        importlib.import_module(name).add_arguments(parser)


def task_defaults(task: str) -> dict[str, Any]:
    """The flags of a task alone, as names of options with their defaults."""
    return {action.dest: action.default for action in _actions(TASKS[task])}


def check_task_arguments(args: argparse.Namespace) -> None:
    """Refuses a flag of another task.

    Raises:
        TrainingError: it names the flag.
    """
    for name in dict.fromkeys(TASKS.values()):
        if name == TASKS[args.task]:
            continue
        for action in _actions(name):
            if getattr(args, action.dest) != action.default:
                tasks = ", ".join(task for task, module in TASKS.items() if module == name)
                raise TrainingError(f"{action.option_strings[0]} is for {tasks}, not for {args.task}; leave it out")


def _actions(module: str) -> list[argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    importlib.import_module(module).add_arguments(parser)
    return parser._actions
