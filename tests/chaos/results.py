"""Compare the outputs of two runs of a command, without the content that may differ between them."""

import fnmatch
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from beambert.trainers.monitoring.metrics_jsonl import TIMING_FIELDS

from .commands import FOREIGN_FILE, FOREIGN_HIDDEN_NAME, FOREIGN_TEXT, Command

_TIMES = TIMING_FIELDS | {"examples_per_second"}


def _without_times(content: bytes) -> bytes:
    """Return JSON lines without measured times."""
    lines = [json.loads(line) for line in content.decode("utf-8").splitlines()]
    return json.dumps([{name: line[name] for name in line if name not in _TIMES} for line in lines]).encode()


def _nothing(content: bytes) -> bytes:
    """Return empty content: only the existence of the file is compared."""
    return b""


# Files that differ between two undisturbed runs: pattern, function that returns the comparable content (None excludes
# the file), reason. The first match applies.
DIFFERENT: tuple[tuple[str, Callable[[bytes], bytes] | None, str], ...] = (
    ("*events.out.tfevents.*", None, "TensorBoard puts time and process into the names, and one file per start"),
    ("*logs", None, "the folders of TensorBoard's files"),
    ("*logs/*", None, "the folders of TensorBoard's files"),
    ("*metrics.jsonl", _without_times, "measured times"),
    ("*.state.json", _without_times, "measured times"),
    ("*fingerprint.pb", _nothing, "TensorFlow draws a random identifier"),
)
# The same for training runs: pattern, function, reason.
DIFFERENT_OF_TRAINING: tuple[tuple[str, Callable[[bytes], bytes] | None, str], ...] = (
    ("*report.html", _nothing, "measured times"),
    ("*features", None, "the cache of encoded rows, made again where it is needed"),
    ("*features/*.npz", None, "the cache of encoded rows, made again where it is needed"),
)
# Files that a killed command may leave beside an output file. No later run removes them, because the directory does not
# belong to the command.
_BESIDE_FILE = ("../{name}.*.tmp*", "../.{name}.*.unfinished*")
# Temporary files of AutoGraph, which it may or may not delete at the end of the process.
_OF_LIBRARIES = ("__autograph_generated_file",)
_CHECKPOINT = re.compile(r"(?:.*/)?checkpoints/model\.ckpt-(\d+)\.")
_TRAINING = ("pretrain", "pretrain-jax", "finetune", "seeds", "tune")


def contents_of(command: Command, directory: Path) -> dict[str, str]:
    """Return digests of what a command has written.

    Args:
        command: the command that ran.
        directory: directory of the case.

    Returns:
        By path, the SHA-256 of the comparable content of every file below `work/`, or "directory" for a directory.
        Paths are relative to the output; "." is an output file. Paths outside of the output start with "../". Foreign
        files are excluded.
    """
    work, output = directory / "work", directory / command.output
    left = {directory / FOREIGN_FILE, output / FOREIGN_HIDDEN_NAME, output}
    contents = {}
    for path in sorted(work.rglob("*")):
        if path in left and not (path == output and command.is_file):
            continue
        inside = path.is_relative_to(output)
        name = str(path.relative_to(output)) if inside else f"../{path.relative_to(work)}"
        rules = (*DIFFERENT, *DIFFERENT_OF_TRAINING) if command.name in _TRAINING else DIFFERENT
        rule = next((rule for rule in rules if fnmatch.fnmatch(name, rule[0])), None)
        if rule and rule[1] is None:
            continue
        contents[name] = "directory" if path.is_dir() else _digest(path, rule[1] if rule else None)
    return contents


def _digest(path: Path, comparable: Callable[[bytes], bytes] | None) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return "removed while it was looked at"
    if comparable is not None:
        try:
            content = comparable(content)
        except (ValueError, TypeError, KeyError):
            return f"not valid: {hashlib.sha256(content).hexdigest()}"
    return hashlib.sha256(content).hexdigest()


def temporary_errors(directory: Path) -> list[str]:
    """Return the fault of temporary files that a case has left in TMPDIR, if there are any."""
    names = sorted(path.name for path in (directory / "tmp").iterdir())
    left = [name for name in names if not name.startswith(_OF_LIBRARIES)]
    return [f"left in TMPDIR: {', '.join(left[:4])} ({len(left)})"] if left else []


def without_temporary(command: Command, contents: Mapping[str, str]) -> dict[str, str]:
    """Return contents without the files that a killed command may leave beside its output file."""
    patterns = [pattern.format(name=Path(command.output).name) for pattern in _BESIDE_FILE]
    return {
        name: content
        for name, content in contents.items()
        if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    }


def without_names(contents: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return contents without the files of these names, in any directory."""
    return {path: content for path, content in contents.items() if Path(path).name not in names}


def difference(written: Mapping[str, str], reference: Mapping[str, str], *, other_checkpoints: bool = False) -> str:
    """Return a description of the differences of two results, or "" if they are equal.

    Args:
        written: contents of the disturbed run, from `contents_of`.
        reference: contents of the undisturbed run.
        other_checkpoints: whether checkpoints before the last one may be of other steps. A signal saves an additional
            checkpoint, and a deleted checkpoint is only an older state.
    """
    if other_checkpoints:
        last = _last_steps(reference)
        written = {name: content for name, content in written.items() if not _is_earlier(name, last)}
        reference = {name: content for name, content in reference.items() if not _is_earlier(name, last)}
    missing = sorted(reference.keys() - written.keys())
    more = sorted(written.keys() - reference.keys())
    changed = sorted(name for name in reference.keys() & written.keys() if reference[name] != written[name])
    parts = [("missing", missing), ("left over", more), ("other content", changed)]
    return "; ".join(f"{what}: {', '.join(names[:4])} ({len(names)})" for what, names in parts if names)


def _last_steps(names: Mapping[str, str]) -> dict[str, int]:
    """Return the step of the last checkpoint by the directory of its run."""
    last: dict[str, int] = {}
    for name in names:
        if match := _CHECKPOINT.match(name):
            run = name.rpartition("checkpoints/")[0]
            last[run] = max(last.get(run, 0), int(match[1]))
    return last


def _is_earlier(name: str, last: Mapping[str, int]) -> bool:
    match = _CHECKPOINT.match(name)
    return match is not None and int(match[1]) != last.get(name.rpartition("checkpoints/")[0])


def incomplete(command: Command, directory: Path, reference: Mapping[str, str]) -> str:
    """Return the fault of an output that has the manifest of a complete output, or "" for no fault.

    A directory without a manifest is known to be incomplete, which is no fault.
    """
    output = directory / command.output
    if not any((output / name).exists() for name in command.manifests):
        return ""
    missing = [name for name in reference if not name.startswith("../") and not (output / name).exists()]
    if missing:
        return f"{command.output} has {', '.join(command.manifests)} without {', '.join(missing[:4])}"
    for name in command.manifests:
        if name in ("dataset.json", "corpus.json"):
            return _manifest_errors(output, json.loads((output / name).read_text(encoding="utf-8")))
    return ""


def _manifest_errors(output: Path, manifest: dict) -> str:
    """Return a message about the first listed file that differs from its entry in the manifest, or ""."""
    for entry in manifest.get("shards", ()):
        content = (output / entry["name"]).read_bytes()
        if len(content) != entry["bytes"] or hashlib.sha256(content).hexdigest() != entry.get("sha256"):
            return f"{entry['name']} differs from its manifest"
    return ""


def foreign_errors(command: Command, directory: Path, *, hidden_file: bool) -> str:
    """Return a message about the foreign files that are missing or changed, or ""."""
    paths = [directory / FOREIGN_FILE]
    if hidden_file and command.takes_hidden_files:
        paths.append(directory / command.output / FOREIGN_HIDDEN_NAME)
    wrong = [path for path in paths if not path.is_file() or path.read_text(encoding="utf-8") != FOREIGN_TEXT]
    return ", ".join(f"{path.relative_to(directory)} was changed or removed" for path in wrong)
