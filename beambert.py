"""The command line interface, `beambert COMMAND ...`: find the command's module, read its flags, report errors."""

import beambert_process as process  # First, so that Ctrl-C during the other imports is one line.

# isort: split
import argparse
import dataclasses
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NoReturn

import beambert_arguments as arguments
import beambert_file_errors as file_errors
import beambert_packages as packages
import beambert_terminal as terminal
from beambert_flags import bad_path, empty_path, places

COMMANDS = {
    "build": ("deploy.build", "raw text to pretraining data: corpus, vocabulary, shards"),
    "corpus": ("deploy.corpus_flags", "the first half of build: documents, sentences, vocabulary"),
    "pretraining-data": ("deploy.pretraining_data_flags", "the second half of build: a corpus to masked examples"),
    "inspect": ("deploy.inspect", "the examples of a shard as text, masked words marked"),
    "vocab": ("deploy.vocab", "a vocabulary alone, learnt from text"),
    "pretrain": ("trainers.pretrain", "train and evaluate BERT on what build made"),
    "finetune": ("trainers.finetune", "train a pretrained model on a task: GLUE, SQuAD, NER, SWAG, your own table"),
    "tune": ("trainers.tune", "finetune with every combination of batch size, learning rate and epochs"),
    "predict": ("trainers.predict", "what a fine-tuned model says of your texts"),
    "features": ("trainers.features", "hidden states of a model for every line of a text file"),
    "export": ("trainers.export", "a model as a SavedModel that takes text"),
    "fill-mask": ("trainers.fill_mask", "let a trained model fill the [MASK] in your sentences"),
    "convert": ("trainers.convert", "a model between TF1, Hugging Face and beambert's own directories"),
    "plan": ("deploy.plan", "the time, the size and the bill of a build and a training, before they are spent"),
    "submit flink": ("deploy.flink", "a data command on an Apache Flink cluster"),
    "submit dataflow": ("deploy.dataflow", "a data command on Google Cloud Dataflow"),
    "submit tpu": ("deploy.tpu", "a training command on Cloud TPU"),
    "demo": ("deploy.demo", "all of the above on documents that ship with Python, in a few minutes"),
}
_OVERVIEW = """usage: beambert COMMAND [--flags]

From raw text to a pretrained BERT.

{}

`beambert help COMMAND` lists the flags of a command, `beambert --version` prints the version."""
# The flags, and the arguments without one, that name what a command writes.
_OUTPUTS = ("--output", "--output_file", "DST")
# Of Linux; to look for the files of a longer pattern may take minutes.
_HELP = ("help", "--help", "-h")
_VERSION = ("version", "--version", "-V")


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message, shortened, and the command for help, and exit with 2."""
        sys.exit(_usage_error(self.prog, message, f"{self.prog} --help"))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, and let an error of the stream through, which argparse would hide."""
        (file or sys.stderr).write(message)


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Adds the default to a flag's help where there is one to tell and the help does not tell it itself."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        tells = action.default in (None, False, []) or "(default" in (action.help or "")
        return action.help if tells else super()._get_help_string(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Keeps a text that has lines as it is."""
        return text if "\n" in text else super()._fill_text(text, width, indent)


@dataclasses.dataclass(frozen=True)
class Command:
    """A command with its flags read.

    Attributes:
        name: such as "build".
        argv: its flags as they were typed.
        parser: what read them.
        module: what runs it: `module.run(args)`, or `module.run(args, beam_flags)` where it takes flags of Beam's.
        args: its own flags.
        beam_flags: those of Beam's, as they were typed.
    """

    name: str
    argv: list[str]
    parser: argparse.ArgumentParser
    module: ModuleType
    args: argparse.Namespace
    beam_flags: list[str]

    @property
    def places(self) -> list[tuple[str, str]]:
        """(flag, value) of every file or directory that the flags name."""
        return list(places(self.parser, self.args))


def overview() -> str:
    """What `beambert --help` prints."""
    return _OVERVIEW.format(_listed(COMMANDS))


def _listed(names: Iterable[str]) -> str:
    return "\n".join(f"  {name:<18}{COMMANDS[name][1]}" for name in names)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" for a mistyped word, or nothing."""
    close = difflib.get_close_matches(word.lower(), known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _usage_error(prog: str, message: str, see: str) -> int:
    """Print a mistake in the command line as one line; return the exit code."""
    terminal.print_error(f"{prog}: error: {message}{'' if message.endswith('?') else ';'} see {see}")
    return 2


def _unknown_flags(rest: list[str], module: ModuleType) -> tuple[list[str], list[str]]:
    """Return what neither the command nor (where it takes its flags) Beam knows, and Beam's flag names.

    Raises:
        ValueError: a flag of Beam's has a wrong value.
    """
    if not rest or not getattr(module, "ACCEPTS_BEAM_FLAGS", False):
        return rest, []
    from deploy import engine_flags

    return engine_flags.read(rest)


def make_parser(command: str) -> tuple[Parser, ModuleType]:
    """Return the parser of a command, and the module that runs it."""
    module = importlib.import_module(COMMANDS[command][0])
    takes_beam_flags = getattr(module, "ACCEPTS_BEAM_FLAGS", False)
    parser = Parser(
        prog=f"beambert {command}",
        description=module.DESCRIPTION,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
        epilog="Beam's own flags, such as --direct_num_workers and --runner, are passed on."
        if takes_beam_flags
        else None,
    )
    module.add_arguments(parser)
    return parser, module


def read_command(name: str, argv: list[str]) -> Command:
    """Read the flags of a command; a mistake in them ends the program with a line."""
    parser, module = make_parser(name)
    if arguments.wants_help(parser, argv):
        # Before flags lose their mark of being required, which the usage line shows.
        parser.print_help()
        parser.exit(0)
    if mistake := arguments.mistake(parser, argv):
        parser.error(mistake)
    if hasattr(module, "complete_arguments"):
        argv = module.complete_arguments(argv)
    required = [action for action in parser._actions if action.required]
    # A mistyped flag and an empty value are named before what is missing, which they may be the reason for.
    for action in required:
        action.required = False
    args, rest = parser.parse_known_args(argv)
    try:
        unknown, beam_flags = _unknown_flags(rest, module)
    except ValueError as error:
        parser.error(str(error))
    if unknown:
        word = next((word for word in unknown if word != "--"), "--")
        if not word.startswith("-"):
            parser.error(arguments.unexpected(parser, name, word))
        flag = word.partition("=")[0]
        parser.error(f"unknown argument {flag}{nearest(flag, [*parser._option_string_actions, *beam_flags])}")
    if empty := empty_path(parser, args):
        parser.error(f"{empty} is empty; give a path")
    if problem := bad_path(parser, args):
        parser.error(problem)
    for action in required:
        action.required = True
    return Command(name, argv, parser, module, parser.parse_known_args(argv)[0], rest)


def _prepared(name: str, argv: list[str]) -> tuple[Command, Callable[[], int]]:
    """Read the flags of a command; return it, and what runs it.

    One that runs another command elsewhere (`RUNS` names those it can) is given that one.
    """
    module = importlib.import_module(COMMANDS[name][0])
    if hasattr(module, "RUNS"):
        args, command = _read_submission(name, argv, module.RUNS)
        process.end_startup()
        if name == "submit flink":
            _require_packages(command)
            _require_access(command)
        return command, lambda: module.run(args, command)
    command = read_command(name, argv)
    process.end_startup()
    if _trains(name):
        _refuse_buckets(command)
    else:
        _require_packages(command)
        _require_engine(command)
        _require_access(command)
    if getattr(module, "ACCEPTS_BEAM_FLAGS", False):
        return command, lambda: module.run(command.args, command.beam_flags)
    return command, lambda: module.run(command.args)


def _read_submission(name: str, argv: list[str], runs: Sequence[str]) -> tuple[argparse.Namespace, Command]:
    """Read `submit WHERE [its flags] COMMAND [the command's flags]`.

    Args:
        name: such as "submit tpu".
        argv: what follows it.
        runs: the commands that it can run.

    Returns:
        The flags of the first, and the second.
    """
    parser, _ = make_parser(name)
    first = next((word for word in arguments.words(parser, argv, stop=runs) if not word.flag), None)
    own = argv[: first.start] if first else argv
    if own[-1:] == ["--"]:
        own = own[:-1]
    if unknown := arguments.unknown_flag(parser, own):
        inner = next((word for word in argv if word in runs), "")
        if inner and unknown in make_parser(inner)[0]._option_string_actions:
            parser.error(f"{unknown} is a flag of {inner}; put it after {inner}")
        read_command(name, own)
    choices = f"{', '.join(runs[:-1])} or {runs[-1]}"
    if first is None:
        read_command(name, own)
        parser.error(f"the command to run is missing after the flags of {name}: {choices}")
    inner, inner_argv = first.values[0], argv[first.start + 1 :]
    if inner not in runs:
        parser.error(f"{name} cannot run {inner!r}, only {choices}{nearest(inner, runs)}")
    inner_parser, _ = make_parser(inner)
    if late := arguments.misplaced(inner_parser, inner_argv, parser):
        parser.error(f"{late} is a flag of {name}; put it before {inner}")
    if arguments.wants_help(inner_parser, inner_argv):
        read_command(inner, inner_argv)
    return read_command(name, own).args, read_command(inner, inner_argv)


def _trains(name: str) -> bool:
    return COMMANDS[name][0].startswith("trainers.")


def _require_packages(command: Command) -> None:
    """Raise ModuleNotFoundError where a path needs a package that is not installed."""
    for _, place in command.places:
        packages.require_for(place)


def _require_engine(command: Command) -> None:
    """End the program with a line where Beam's flags contradict each other; check that the engine can be reached."""
    if not command.beam_flags:
        return
    from deploy import engine_access, engine_flags

    try:
        options = engine_flags.options_of(command.beam_flags)
    except ValueError as error:
        command.parser.error(str(error))
    engine_access.require_engine(options, command.beam_flags)


def _require_access(command: Command) -> None:
    """Check that the buckets that a command names can be reached, where it names any."""
    if any("://" in place for _, place in command.places):
        from deploy import cloud_access

        cloud_access.require_access(command.places, command.beam_flags)


def _refuse_buckets(command: Command) -> None:
    """End the program with a line where a command that reads only local files is given others."""
    for flag, place in command.places:
        if "://" in place:
            command.parser.error(
                f"{flag} {place} is in a bucket, and {command.name} reads and writes files of this machine; copy them "
                "(gcloud storage cp --recursive), or train beside the bucket with beambert submit tpu"
            )


def _destinations(word: str) -> list[str]:
    """Return the commands of two words that start with a word."""
    return [name for name in COMMANDS if name.startswith(f"{word} ")]


def _split(argv: list[str]) -> tuple[str, list[str]]:
    """Return the command's name and its arguments; a mistake ends the program with a line."""
    if argv[0].startswith("-"):
        name = next((word for word in argv[1:] if word in COMMANDS or _destinations(word)), None)
        if name:
            message = f"{argv[0]} is before the command; flags follow it: beambert {name} {argv[0]} ..."
        else:
            message = f"unknown argument {argv[0]}{nearest(argv[0], (*_HELP, *_VERSION))}"
        sys.exit(_usage_error("beambert", message, "beambert --help"))
    destinations = _destinations(argv[0])
    name = " ".join(argv[: 2 if destinations else 1])
    if name in COMMANDS:
        return name, argv[len(name.split()) :]
    if not destinations:
        sys.exit(_usage_error("beambert", f"unknown command {name!r}{nearest(name, COMMANDS)}", "beambert --help"))
    where = [destination.partition(" ")[2] for destination in destinations]
    choices = f"{', '.join(where[:-1])} or {where[-1]}"
    if len(argv) == 1 or argv[1].startswith("-"):
        message = f"{argv[0]} needs a destination first: {choices}, then its flags and the command"
    else:
        message = f"unknown destination {argv[1]!r}: give {choices}{nearest(argv[1], where)}"
    sys.exit(_usage_error(f"beambert {argv[0]}", message, f"beambert {argv[0]} --help"))


def _print_help(words: list[str]) -> int:
    """Print the overview, or what a command does and its flags."""
    words = [word for word in words if not word.startswith("-") and word not in (*_HELP, *_VERSION)]
    if not words:
        print(overview())
        return 0
    destinations = _destinations(words[0])
    if destinations and len(words) == 1:
        print(f"usage: beambert {words[0]} WHERE [--flags] COMMAND [--flags]\n\n{_listed(destinations)}")
        return 0
    name, rest = _split(words)
    if rest:
        return _usage_error("beambert help", f"unexpected argument {rest[0]!r} after {name}", "beambert --help")
    make_parser(name)[0].print_help()
    return 0


@process.ends_process
def main(argv: list[str] | None = None) -> int:
    """Run a command and return the exit code: 0 only when the output is whole."""
    # Before anything imports TensorFlow, whose greeting would drown ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    terminal.open_streams()
    argv = sys.argv[1:] if argv is None else argv
    try:
        try:
            return _main(argv)
        finally:
            sys.stdout.flush()
    except OSError as error:
        return _stream_failed(error, "beambert")


def _main(argv: list[str]) -> int:
    """Run a command and return the exit code. Raise OSError where the last output cannot be written."""
    if not argv:
        print(overview())
        return 2
    if argv[0] in _VERSION:
        print(f"beambert {packages.version()}")
        return 0
    name, prog, output = "", "beambert", ""
    try:
        if argv[0] in _HELP:
            return _print_help(argv[1:])
        if _destinations(argv[0]) and argv[1:2] in (["--help"], ["-h"]):
            return _print_help(argv[:1])
        name, rest = _split(argv)
        prog = f"beambert {name}"
        command, run = _prepared(name, rest)
        output = _output_of(command)
        code = run()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _interrupted(prog)
    except Exception as error:
        if isinstance(error, OSError) and terminal.failed_stream(error):
            return _stream_failed(error, prog)
        line = _line_of(error, name, output)
        if line is None:
            if process.is_interrupt(error):
                return _interrupted(prog)
            raise
        terminal.print_error(f"{prog}: error: {line}")
        return 1


def _interrupted(prog: str) -> int:
    terminal.print_error(f"{prog}: interrupted; run the same command again to resume")
    return 128 + signal.SIGINT


def _stream_failed(error: OSError, prog: str) -> int:
    """Report output that cannot be written, unless its reader has seen enough; return the exit code."""
    stream = terminal.failed_stream(error) or "stdout"
    terminal.silence(stream)
    if isinstance(error, BrokenPipeError):
        return 128 + signal.SIGPIPE
    reason = file_errors.reason_of(error)
    terminal.print_error(f"{prog}: error: {stream} cannot be written ({reason}); redirect it to another file")
    return 1


def _output_of(command: Command) -> str:
    """Return the flag and the value of what a command writes, or ""."""
    return next((f"{flag} {place}" for flag, place in command.places if flag in _OUTPUTS), "")


def _line_of(error: Exception, name: str, output: str) -> str | None:
    """Return an error of the user's input or machine as a line; None for a fault in beambert.

    Args:
        error: what was raised.
        name: of the command.
        output: what the command writes, for errors that name no file.
    """
    ours = ("tokenizer.", "bert_model.", "pipelines.", "trainers.", "deploy.")
    if isinstance(error, ImportError):
        extras = {"submit dataflow": "data,gcp", "submit tpu": "train"}.get(name, "data")
        return packages.import_failure(error, "train" if name in COMMANDS and _trains(name) else extras)
    if str(error).startswith("Unable to get filesystem from specified path"):
        path = str(error).rpartition("Path specified: ")[2]
        return (
            f"{path} is neither a path of this machine nor in a known kind of bucket; give a path or gs://BUCKET/NAME"
        )
    kind = type(error).__module__
    if kind.startswith(ours):
        return file_errors.without_numbers(str(error))
    if (isinstance(error, OSError) or kind != "builtins") and (line := file_errors.line_of(error, output)):
        return line
    return " ".join(file_errors.without_numbers(str(error)).split()) if isinstance(error, OSError) else None


if __name__ == "__main__":
    sys.exit(main())
