"""The flex templates' metadata, made from the commands' own flags: `python -m deploy.dataflow.template`.

A flex template is one job, so `build` is two of them: `corpus`, then `pretraining-data`. The files in deploy/templates
are what `gcloud dataflow flex-template build --metadata-file` takes; with `--image` the whole specification is printed,
to be put into a bucket without gcloud.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from beambert_common.command_line.flags import WholeNumber, boolean
from beambert_common.command_line.path_flags import path_type
from deploy.dataflow.flags import CLOUD_PATH
from pipelines.commands import corpus, pretraining_data

COMMANDS: dict[str, ModuleType] = {"corpus": corpus, "pretraining-data": pretraining_data}
FOLDER = Path(__file__).parents[1] / "templates"
# What a value must be, by the function that reads it; the command itself checks its range.
_PATTERNS: dict[Any, str] = {
    boolean: "true|false",
}
_NUMBER = r"[0-9]+(\.[0-9]*)?([eE]-?[0-9]+)?|\.[0-9]+"
# By what the help calls a value.
_BY_METAVAR = {
    "NAME": r"[A-Za-z0-9._-]+",
    "CODE": r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*",
    "NAME,NAME": r"[a-z_]+(,[a-z_]+)*",
    "N,N": r"[1-9][0-9]*(,[1-9][0-9]*)*",
}
_OF_THIS_MACHINE = ("--ignore_memory_estimate",)


def parameters_of(command: str) -> list[argparse.Action]:
    """Return the flags of a command that are parameters of its template."""
    parser = argparse.ArgumentParser(add_help=False)
    COMMANDS[command].add_arguments(parser)
    return [action for action in parser._actions if action.option_strings[0] not in _OF_THIS_MACHINE]


def _pattern(action: argparse.Action) -> str:
    """Return a regular expression for one value of a flag that Java and Python read the same way."""
    if action.choices is not None:
        return "|".join(map(re.escape, action.choices))
    if action.nargs == 0:
        return "true|false"
    if path_type(action):
        # What is in a list ends at a space.
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
    """Return a flag as a parameter of a template."""
    pattern = _pattern(action)
    # Several values stand in one parameter, with spaces between.
    whole = f"({pattern})( +({pattern}))*" if action.nargs == "+" else f"({pattern})"
    required = action.required or action.metavar == "GLOB"
    help_text = (action.help or "").replace("%%", "%") + (
        ", several with spaces between" if action.nargs == "+" else ""
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
    # One that cannot be typed stands for leaving the flag out, such as 0 for no least number.
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
        command: the command that it runs.
        image: image of the command, from deploy/images/Dockerfile.
        worker_image: image of the target `worker` of the same file.
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
    """Write the metadata files, or print a specification."""
    description = "The metadata of a command's template, as Google's `TemplateMetadata`."
    parser = argparse.ArgumentParser(prog="python -m deploy.dataflow.template", description=description)
    parser.add_argument("--command", choices=list(COMMANDS), help="with --image: whose specification to print")
    parser.add_argument("--image", help="the command's image")
    parser.add_argument("--worker_image", help="the workers' image")
    args = parser.parse_args(argv)
    if args.image:
        if not (args.command and args.worker_image):
            parser.error("--image needs --command and --worker_image")
        print(to_json(container_spec(args.command, args.image, args.worker_image)), end="")
        return 0
    for command in COMMANDS:
        (FOLDER / f"{command}.json").write_text(to_json(metadata(command)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
