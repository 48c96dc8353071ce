"""Cases with wrong values of every flag of every command, taken from the parsers, and of Beam's flags."""

import argparse
import functools
import os
from pathlib import Path
from random import Random

from beambert import cli
from beambert.common.command_line.path_flags import PathType
from tests.fuzz.base import Base, place
from tests.fuzz.case import Case

_NUMBERS = (
    *("", " ", "two", "-1", "0", "1.5", "1e400", "-1e400", "nan", "inf", "-inf", "1_0", "0x10", "١٢", "²", "1e-400"),
    *("9" * 5000, "-" + "9" * 5000, "2147483648", "9223372036854775808", "1000000000", "1,2", "None", "1 2", "--1"),
)
_TEXTS = (
    *("", " ", "nonsense", "x" * 100_000, "a\x1b[31mb", "a\nb", "../..", "/", "-", "--", "*", "[", "{}", "'"),
    *("%s%n", "$(id)", "a,b", ",", "0", "-1", "None", "\ud800", "ＡＢ", "é" * 300),
)
# Names in the case's folder; `_prepare` creates those that exist.
_PATHS = (
    *("", " ", "missing", "missing/deeper", "empty", "directory", "noise", "pipe", "zero", "full", ".", "..", "/"),
    *(
        "x" * 300,
        "x/" * 3000,
        "a\x1bb",
        "a\nb",
        "inputs/text.txt",
        "inputs",
        "inputs/*",
        "inputs/[",
        "**",
        "~no-such-user/x",
    ),
    *("gs:/x/y", "file:///etc/hostname", "nosuch://a/b", "gs://beambert-no-such-bucket/a", "\udcff", "\udcff.txt"),
    *("dangling", "loop", "unreadable/x", "text.txt/x", "/proc"),
)
_BEAM = (
    *("--direct_num_workers", "--direct_running_mode", "--runner", "--job_endpoint", "--environment_type"),
    *("--experiments", "--sdk_worker_parallelism", "--flink_master", "--parallelism", "--no_such_flag", "--streaming"),
)
# Command lines that succeed without the wrong flag. The commands that are not listed take too long; they always run
# with the command lines of `_STOPPING`, which stop at a missing file.
_WORKING = {
    "inspect": ("inspect", "data"),
    "plan": ("plan", "--words", "1000000"),
    "convert": ("convert", "--to", "native", "native", "out"),
    "extend-vocab": (
        *("extend-vocab", "native", "--input", "inputs/text.txt", "--num_tokens", "1", "--min_count", "1"),
        *("--output", "out"),
    ),
    "vocab": ("vocab", "--input", "inputs/text.txt", "--vocab_size", "80", "--output", "out"),
    "fill-mask": ("fill-mask", "native", "the [MASK] rose"),
    "corpus": ("corpus", "--input", "inputs/text.txt", "--vocab_size", "80", "--output", "out"),
    "pretraining-data": ("pretraining-data", "--input", "corpus", "--dupe_factor", "1", "--output", "out"),
    "build": ("build", "--input", "inputs/text.txt", "--vocab_size", "80", "--dupe_factor", "1", "--output", "out"),
    "features": (
        *("features", "--init_checkpoint", "native", "--input_file", "inputs/lines.txt", "--layers=-1"),
        *("--output_file", "out.jsonl"),
    ),
    "predict": ("predict", "finetuned", "a ||| b"),
    "evaluate": ("evaluate", "native", "--texts", "inputs/lines.txt"),
}
_STOPPING = {
    "build": ("build", "--input", "missing", "--output", "out"),
    "corpus": ("corpus", "--input", "missing", "--output", "out"),
    "pretraining-data": ("pretraining-data", "--input", "missing", "--output", "out"),
    "vocab": ("vocab", "--input", "missing", "--output", "out"),
    "inspect": ("inspect", "missing"),
    "quality train": ("quality", "train", "--good", "missing", "--bad", "missing", "--output", "out"),
    "pretrain": ("pretrain", "--data", "missing", "--model", "tiny", "--output", "out"),
    "finetune": ("finetune", "rte", "--data_dir", "missing", "--init_checkpoint", "missing", "--output", "out"),
    "tune": ("tune", "rte", "--data_dir", "missing", "--init_checkpoint", "missing", "--output", "out"),
    "predict": ("predict", "missing", "a ||| b"),
    "features": (
        *("features", "--init_checkpoint", "missing", "--input_file", "inputs/lines.txt", "--output_file", "out.jsonl"),
    ),
    "evaluate": ("evaluate", "missing", "--texts", "inputs/lines.txt"),
    "export": ("export", "missing", "out"),
    "fill-mask": ("fill-mask", "missing", "the [MASK] rose"),
    "convert": ("convert", "--to", "native", "missing", "out"),
    "extend-vocab": ("extend-vocab", "missing", "--replace", "missing", "--output", "out"),
    "plan": ("plan", "--words", "1000000"),
}


def flag(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a wrong value of one flag, or with a mistyped command line."""
    command = random.choice(list(_STOPPING))
    working = command in _WORKING and random.random() < 0.2
    argv = list(_WORKING[command] if working else _STOPPING[command])
    _prepare(base, folder, argv)
    kind = random.random()
    if kind < 0.12:
        argv, description = _mistyped(random, argv)
    elif kind < 0.2 and command in ("build", "corpus", "pretraining-data", "vocab"):
        name = random.choice(_BEAM)
        value = random.choice((*_NUMBERS, "PortableRunner", "SparkRunner", "nonsense", "localhost:1"))
        argv += [name, value]
        description = f"{name} {value[:40]!r}"
    else:
        argv, description = _wrong_value(random, command, argv)
    return Case(f"{command}: {description}", argv, lambda outcome: None)


@functools.cache
def _actions(command: str) -> list[argparse.Action]:
    parser, _ = cli.make_parser(command)
    return [action for action in parser._actions if "--help" not in action.option_strings]


def _wrong_value(random: Random, command: str, argv: list[str]) -> tuple[list[str], str]:
    action = random.choice(_actions(command))
    value = random.choice(_values(action))
    if not action.option_strings:
        position = 1 + [a for a in _actions(command) if not a.option_strings].index(action)
        words = [*argv[:1], *[value if n == position else word for n, word in enumerate(argv[1:], 1)]]
        return words, f"{action.dest} {value[:40]!r}"
    name = action.option_strings[-1]
    if name in argv:
        at = argv.index(name)
        argv = argv[:at] + argv[at + 2 :]
    if action.nargs == 0:
        return [*argv, name, *([value] if random.random() < 0.2 else [])], name
    # The second form lets a value start with a dash.
    given = [name, value] if random.random() < 0.5 else [f"{name}={value}"]
    return [*argv, *given], f"{name} {value[:40]!r}"


def _values(action: argparse.Action) -> tuple[str, ...]:
    if isinstance(action.type, PathType):
        return _PATHS
    number = isinstance(action.default, int | float) or action.type not in (None, str)
    return _NUMBERS if number or "," in str(action.metavar) else _TEXTS


def _mistyped(random: Random, argv: list[str]) -> tuple[list[str], str]:
    how = random.choice(("dropped", "twice", "swapped", "letter", "extra", "joined", "dash", "case"))
    at = random.randrange(len(argv))
    word = argv[at]
    if how == "dropped":
        argv = argv[:at] + argv[at + 1 :]
    elif how == "twice":
        argv = [*argv[: at + 1], *argv[at:]]
    elif how == "swapped":
        argv = [*argv[:at], *reversed(argv[at : at + 2]), *argv[at + 2 :]]
    elif how == "extra":
        argv = [*argv[:at], random.choice((*_TEXTS, "--", "-h9", "--output")), *argv[at:]]
    elif how == "joined":
        argv = [*argv[:at], "".join(argv[at : at + 2]), *argv[at + 2 :]]
    else:
        new = {"letter": word[: len(word) // 2] + word[len(word) // 2 + 1 :], "dash": f"-{word}", "case": word.upper()}
        argv = [*argv[:at], new[how], *argv[at + 1 :]]
    return argv, f"{how}: word {at}"


def _prepare(base: Base, folder: Path, argv: list[str]) -> None:
    for name in ("corpus", "data", "native", "finetuned"):
        if name in argv:
            place(base.artifact(name), folder / name)
    place(base.artifact("inputs"), folder / "inputs")
    (folder / "empty").touch()
    (folder / "text.txt").write_text("text\n", encoding="utf-8")
    (folder / "\udcff.txt").write_text("The sheep stood by the barn.\nNobody knew why.\n", encoding="utf-8")
    (folder / "directory").mkdir()
    (folder / "noise").write_bytes(bytes(range(256)) * 4)
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "full").symlink_to("/dev/full")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    (folder / "unreadable").mkdir(mode=0)
