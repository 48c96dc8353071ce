"""The output directory of a command: where it is, whether it can be written, and whether it holds something else."""

import dataclasses
import hashlib
import json
import os
import shutil
from typing import Any, get_type_hints

from apache_beam.io.filesystem import BeamIOError

from pipelines.dataset import DatasetError
from pipelines.versions import versions
from pipelines.writing import TEMPORARY, delete_matching, write_text

_WORK = "unfinished"


def absolute(path: str) -> str:
    """A local path made absolute, as worker processes may run elsewhere; a URL as it is."""
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111


def work_directory(output: str, content: list[Any]) -> str:
    """Where a job leaves what it has done but not finished: a name for each input and set of options.

    Args:
        output: the directory that is built.
        content: all that the work hangs on, as JSON has it.
    """
    name = hashlib.blake2b(json.dumps([content, versions()]).encode("utf-8"), digest_size=12).hexdigest()
    return f"{output}/{_WORK}/{name}"


def delete_work(output: str) -> None:
    """Deletes what any job has left unfinished in an output directory."""
    delete_folder(f"{output}/{_WORK}")


def delete_temporary(output: str) -> None:
    """Deletes the temporary files of workers that were killed, when a job has finished without them."""
    for folder in ("", "corpus/", "rejected/", "shards/"):
        delete_matching(f"{output}/{folder}{TEMPORARY}")


def delete_folder(folder: str) -> None:
    """Deletes a folder with all that is in it, if there is one."""
    if "://" in folder:
        delete_matching(f"{folder}/**")
    elif os.path.isdir(folder):  # noqa: PTH112
        shutil.rmtree(folder)


def require_writable(output: str) -> None:
    """Tries to write into a directory, made where needed, so that hours of work do not fail at their first file.

    Raises:
        DatasetError: it cannot be written.
    """
    probe = f"{absolute(output)}/.beambert-write-test"
    try:
        write_text(probe, "")
        delete_matching(probe)
    except (OSError, ValueError, BeamIOError) as error:
        raise DatasetError(f"--output {output} cannot be written ({error}); choose another directory") from error


def refuse_other(output: str, what: str, there: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raises DatasetError naming the options in which a finished result differs from what is asked for."""
    names = sorted(name for name in there.keys() | asked.keys() if there.get(name) != asked.get(name))
    if names:
        differences = ", ".join(f"{name} {there.get(name)!r} there, {asked.get(name)!r} asked" for name in names)
        raise DatasetError(
            f"--output {output} holds another {what} ({differences}); choose another --output, or delete that directory"
        )


def with_defaults(recorded: dict[str, Any], kind: type) -> dict[str, Any]:
    """Return recorded options, completed with the default of every option that is newer than the record.

    Args:
        recorded: the options of a manifest, as JSON has them.
        kind: the dataclass of these options; options that are dataclasses themselves are completed too.
    """
    complete = dict(recorded)
    types = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        option = types[field.name]
        if isinstance(option, type) and dataclasses.is_dataclass(option) and isinstance(complete.get(field.name), dict):
            complete[field.name] = with_defaults(complete[field.name], option)
        elif field.name not in complete and field.default is not dataclasses.MISSING:
            complete[field.name] = field.default
        elif field.name not in complete and field.default_factory is not dataclasses.MISSING:
            complete[field.name] = field.default_factory()
    return complete
