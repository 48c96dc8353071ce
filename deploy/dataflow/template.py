"""Generate the metadata of the flex templates from the commands' flags: `python -m beambert.deploy.dataflow.template`.

A flex template is one job, so `build` has two templates: `corpus`, then `pretraining-data`. The files in
deploy/templates are the input of `gcloud dataflow flex-template build --metadata-file`. With `--image` the complete
specification is printed, for an upload to a bucket without gcloud.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from beambert.common.command_line.flags import WholeNumber, boolean
from beambert.common.command_line.path_flags import path_type
from beambert.deploy.dataflow.options import CLOUD_PATH
from beambert.pipelines.commands import corpus, pretraining_data

COMMANDS: dict[str, ModuleType] = {"corpus": corpus, "pretraining-data": pretraining_data}
FOLDER = Path(__file__).parents[1] / "templates"
# Regular expression of a value by its argument type; the command validates the range.
_PATTERNS: dict[Any, str] = {
    boolean: "true|false",
}
_NUMBER = r"[0-9]+(\.[0-9]*)?([eE]-?[0-9]+)?|\.[0-9]+"
# Regular expression of a value by its metavar.
_BY_METAVAR = {
    "NAME": r"[A-Za-z0-9._-]+",
    "CODE": r"[A-Za-z]{2,8}([-_][A-Za-z0-9]+)*",
    "NAME,NAME": r"[a-z_]+(,[a-z_]+)*",
    "N,N": r"[1-9][0-9]*(,[1-9][0-9]*)*",
}
# Flags without a meaning on Dataflow.
_LOCAL_FLAGS = ("--ignore_memory_estimate",)


def parameters_of(command: str) -> list[argparse.Action]:
    """Return the flags of a command that are parameters of its template."""
    parser = argparse.ArgumentParser(add_help=False)
    COMMANDS[command].add_arguments(parser)
    actions = (action for group in parser._action_groups for action in group._group_actions)
    return [action for action in actions if action.option_strings[0] not in _LOCAL_FLAGS]


def _pattern(action: argparse.Action) -> str:
    """Return the regular expression of a flag's value, in the common syntax of Java and Python."""
    if action.choices is not None:
        return "|".join(map(re.escape, action.choices))
    if action.nargs == 0:
        return "true|false"
    if path_type(action):
        # Spaces separate the values of a list.
        return CLOUD_PATH.replace(".*", r"\S*")
    if isinstance(action.type, WholeNumber):
        return "[1-9][0-9]*" if action.type.least > 0 else "[0-9]+"
    if action.type in _PATTERNS:
        return _PATTERNS[action.type]
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return _BY_METAVAR.get(metavar, _NUMBER)


def _type(action: argparse.Action) -> str:
    if action.choices is not None:
        return "ENUM"
    if action.nargs == 0 or action.type is boolean:
        return "BOOLEAN"
    if action.metavar == "DIR":
        return "GCS_WRITE_FOLDER" if action.dest == "output" else "GCS_READ_FOLDER"
    if action.metavar == "FILE" and action.nargs is None:
        return "GCS_READ_FILE"
    if isinstance(action.type, WholeNumber):
        return "NUMBER"
    return "TEXT"


def _parameter(action: argparse.Action) -> dict[str, Any]:
    """Return the template parameter of a flag."""
    pattern = _pattern(action)
    # One parameter contains all values of a list, separated by spaces.
    whole = f"({pattern})( +({pattern}))*" if action.nargs == "+" else f"({pattern})"
    required = action.required or action.metavar == "GLOB"
    help_text = (action.help or "").replace("%%", "%") + (
        "; separate several values with spaces" if action.nargs == "+" else ""
    )
    parameter: dict[str, Any] = {
        "name": action.dest,
        "label": action.dest.replace("_", " ").capitalize(),
        "helpText": help_text[:1].upper() + help_text[1:],
        "isOptional": not required,
        "regexes": [f"^{whole}$"],
        "paramType": _type(action),
    }
    if action.choices is not None:
        parameter["enumOptions"] = [{"value": choice, "label": choice} for choice in action.choices]
    default = str(action.default).lower() if isinstance(action.default, bool) else str(action.default)
    # A default that does not match the pattern, such as 0 for no minimum, is expressed by omitting the parameter.
    if not required and action.default is not None and re.fullmatch(whole, default):
        parameter["defaultValue"] = default
    return parameter


def metadata(command: str) -> dict[str, Any]:
    """Return the metadata of a command's template, as Google's `TemplateMetadata`."""
    return {
        "name": f"beambert {command}",
        "description": " ".join(COMMANDS[command].DESCRIPTION.split()),
        "parameters": [_parameter(action) for action in parameters_of(command)],
        "streaming": False,
    }


def container_spec(command: str, image: str, worker_image: str) -> dict[str, Any]:
    """Return the complete specification of a template, as Google's `ContainerSpec`.

    Args:
        command: "corpus" or "pretraining-data".
        image: launcher image of the command, built from deploy/images/Dockerfile.
        worker_image: worker image, target `worker` of the same file.
    """
    return {
        "image": image,
        "sdkInfo": {"language": "PYTHON"},
        "metadata": metadata(command),
        "defaultEnvironment": {
            "sdkContainerImage": worker_image,
            "ipConfiguration": "WORKER_IP_PRIVATE",
            "machineType": "n2-standard-4",
            "additionalUserLabels": {"tool": "beambert", "command": command},
        },
    }


def to_json(content: dict[str, Any]) -> str:
    """Serialize a template file to JSON text."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def main(argv: list[str]) -> int:
    """Write the metadata files, or print the specification of one template."""
    description = "Write the metadata of the flex templates, or print the specification of one template."
    parser = argparse.ArgumentParser(prog="python -m beambert.deploy.dataflow.template", description=description)
    parser.add_argument("--command", choices=list(COMMANDS), help="Command of the specification; requires --image")
    parser.add_argument("--image", help="Launcher image of the command")
    parser.add_argument("--worker_image", help="Image of the workers")
    args = parser.parse_args(argv)
    if args.image:
        if not (args.command and args.worker_image):
            parser.error("--image requires --command and --worker_image")
        print(to_json(container_spec(args.command, args.image, args.worker_image)), end="")
        return 0
    for command in COMMANDS:
        (FOLDER / f"{command}.json").write_text(to_json(metadata(command)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
