"""The command line interface, `beambert COMMAND ...`: find the command's module, read its flags, report errors."""

from beambert.common import process  # First, so that Ctrl-C during the other imports is one line.

# isort: split
import difflib
import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence, Set
from types import ModuleType

from beambert.common import file_errors, imports, terminal
from beambert.common.command_line.command import Command, Parser, usage_error
from beambert.common.command_line.path_flags import bad_path, typed_paths
from beambert.pipelines.runner import worker_server

COMMAND_GROUPS = {
    "Getting started": {
        "demo": ("beambert.deploy.demo", "Build data, pretrain a tiny BERT and fill masks on bundled text"),
    },
    "Data": {
        "build": (
            "beambert.pipelines.commands.build",
            "Build pretraining data from raw text: corpus, vocabulary, shards",
        ),
        "corpus": ("beambert.pipelines.commands.corpus", "Build a corpus and a vocabulary (the first half of build)"),
        "pretraining-data": (
            "beambert.pipelines.commands.pretraining_data",
            "Write shards of masked examples from a corpus (the second half of build)",
        ),
        "vocab": ("beambert.pipelines.commands.vocab", "Learn a WordPiece vocabulary from text"),
        "quality train": (
            "beambert.pipelines.commands.quality_train",
            "Train a model of good text, with which build and corpus reject documents",
        ),
        "inspect": ("beambert.pipelines.commands.inspect", "Show the examples of a shard as text, or its statistics"),
    },
    "Training": {
        "pretrain": ("beambert.trainers.commands.pretrain", "Pretrain and evaluate BERT"),
        "finetune": ("beambert.trainers.commands.finetune", "Fine-tune on GLUE, SQuAD, NER, SWAG or your own table"),
        "tune": ("beambert.trainers.commands.tune", "Search batch size, learning rate and epochs of finetune"),
    },
    "Models": {
        "evaluate": ("beambert.trainers.commands.evaluate", "Evaluate a pretrained model on text and on minimal pairs"),
        "fill-mask": ("beambert.trainers.commands.fill_mask", "Predict the [MASK] tokens of a text"),
        "predict": ("beambert.trainers.commands.predict", "Predict with a fine-tuned model"),
        "features": ("beambert.trainers.commands.features", "Extract hidden states for each line of a text file"),
        "convert": ("beambert.trainers.commands.convert", "Convert between TF1, Hugging Face and beambert models"),
        "extend-vocab": (
            "beambert.adaptation.commands.extend_vocab",
            "Add the words of a text to the vocabulary of a model",
        ),
        "export": ("beambert.trainers.commands.export", "Export a SavedModel, ONNX or LiteRT model"),
    },
    "Deployment": {
        "plan": ("beambert.deploy.plan.command", "Estimate size, time and cost of a build and a training run"),
        "submit flink": ("beambert.deploy.flink.command", "Run a data command on Apache Flink"),
        "submit dataflow": ("beambert.deploy.dataflow.command", "Run a data command on Google Cloud Dataflow"),
        "submit tpu": ("beambert.deploy.tpu.command", "Run a training command on Cloud TPU"),
    },
}
COMMANDS = {name: entry for group in COMMAND_GROUPS.values() for name, entry in group.items()}
_HELP = ("help", "--help", "-h")
_VERSION = ("version", "--version", "-V")
# Of flags, also as a word processor writes them.
_DASHES = "-\u2013\u2014"
_OVERVIEW = """usage: beambert COMMAND [flags]

Pretrain, fine-tune and deploy BERT from raw text.

{}

Run `beambert COMMAND --help` for the flags of a command, `beambert --version` for the version."""


def overview() -> str:
    """Return the text that `beambert --help` prints."""
    groups = (f"{title}:\n{_summaries(names)}" for title, names in COMMAND_GROUPS.items())
    return _OVERVIEW.format("\n\n".join(groups))


def _summaries(names: Iterable[str]) -> str:
    """Return a line with name and summary for each command."""
    return "\n".join(f"  {name:<18}{COMMANDS[name][1]}" for name in names)


def _destinations(word: str) -> list[str]:
    """Return the second words of the two-word commands that start with a word."""
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{word} ")]


def _nearest(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" for a mistyped word with a similar valid one, or ""."""
    # Without dashes, which are equal in all flags: --model is not similar to --help.
    names = {name.lstrip(_DASHES): name for name in known}
    close = difflib.get_close_matches(word.lower().lstrip(_DASHES), names, n=1)
    return f"; did you mean {names[close[0]]}?" if close else ""


def _split_command(argv: list[str]) -> tuple[str, list[str]]:
    """Return the command's name and its arguments; exit with a one-line error for a mistake."""
    word, *rest = argv
    if word.startswith("-"):
        name = next((later for later in rest if later in COMMANDS or _destinations(later)), None)
        if name:
            message = f"{word} precedes the command; put flags after it: beambert {name} {word} ..."
        else:
            message = f"unknown argument {word}{_nearest(word, (*_HELP, *_VERSION))}"
        sys.exit(usage_error("beambert", message, "beambert --help"))
    if word in COMMANDS:
        return word, rest
    where = _destinations(word)
    if not where:
        sys.exit(usage_error("beambert", f"unknown command {word!r}{_nearest(word, COMMANDS)}", "beambert --help"))
    if rest and rest[0] in where:
        return f"{word} {rest[0]}", rest[1:]
    if not rest or rest[0].startswith("-"):
        message = f"{word} requires a destination ({_choices(where)}), followed by its flags and the command"
        if word != "submit":
            message = f"{word} requires {_choices(where)} and its flags"
    else:
        kind = "destination" if word == "submit" else "word"
        message = f"unknown {kind} {rest[0]!r}: use {_choices(where)}{_nearest(rest[0], where)}"
    sys.exit(usage_error(f"beambert {word}", message, f"beambert {word} --help"))


def make_parser(command: str) -> tuple[Parser, ModuleType]:
    """Return the parser of a command, and the module that runs it."""
    module = importlib.import_module(COMMANDS[command][0])
    takes_beam_flags = getattr(module, "ACCEPTS_BEAM_FLAGS", False)
    parser = Parser(
        prog=f"beambert {command}",
        description=module.DESCRIPTION,
        example=module.EXAMPLE,
        common_flags=module.COMMON_FLAGS,
        takes_command=hasattr(module, "RUNS"),
        epilog="Apache Beam's flags, such as --direct_num_workers and --runner, are accepted too."
        if takes_beam_flags
        else None,
    )
    module.add_arguments(parser)
    return parser, module


def read_command(name: str, argv: list[str]) -> Command:
    """Read the flags of a command; a mistake in them ends the program with a line."""
    parser, module = make_parser(name)
    if mistake := parser.find_mistake(argv):
        parser.error(mistake)
    if hasattr(module, "complete_arguments"):
        argv = module.complete_arguments(argv)
    # A mistyped flag and an empty value are named before what is missing, which they may be the reason for.
    args, rest = parser.read(argv)
    unknown: list[str] = rest
    beam_flags: list[str] = []
    if rest and getattr(module, "ACCEPTS_BEAM_FLAGS", False):
        from beambert.pipelines.runner import beam_flags as engine_flags

        try:
            unknown, beam_flags = engine_flags.read(rest)
        except ValueError as error:
            parser.error(str(error))
    if word := next((word for word in unknown if word != "--"), None):
        if not word.startswith("-"):
            parser.error(_describe_unexpected(parser, module, name, word))
        flag = word.partition("=")[0]
        parser.error(f"unknown argument {flag}{_nearest(flag, [*parser._option_string_actions, *beam_flags])}")
    if problem := bad_path(parser, args):
        parser.error(problem)
    parser.require_all(args)
    paths = list(typed_paths(parser, args))
    return Command(name, argv, parser, module, paths, functools.cache(lambda: module.configure(args)), rest, args)


def _describe_unexpected(parser: Parser, module: ModuleType, name: str, word: str) -> str:
    """Return the error for a word that is neither a flag nor the value of a flag."""
    if hasattr(module, "RUNS"):
        return f"{name} cannot run {word!r}, only {_choices(module.RUNS)}{_nearest(word, module.RUNS)}"
    positionals = [str(action.metavar or action.dest) for action in parser._actions if not action.option_strings]
    takes = f"{' '.join(positionals)}, then flags" if positionals else "flags only, each followed by its value"
    return f"unexpected argument {word!r}; {name} takes {takes}"


def _choices(commands: Sequence[str]) -> str:
    return f"{', '.join(commands[:-1])} or {commands[-1]}" if len(commands) > 1 else commands[0]


def _prepared(name: str, argv: list[str]) -> tuple[Command, Callable[[], int]]:
    """Read the flags of a command; return it, and what runs it.

    One that runs another command elsewhere (`RUNS` names those it can) is given that one.
    """
    module = importlib.import_module(COMMANDS[name][0])
    if hasattr(module, "RUNS"):
        submission, command = _read_submission(name, argv, module.RUNS)
        process.end_startup()
        if name == "submit flink":
            _require_access(command)
        return command, lambda: module.run(submission.configure(), command)
    command = read_command(name, argv)
    process.end_startup()
    _require_supported_paths(command)
    if _trains(name):
        if any("://" in path for _, path in command.path_arguments):
            from beambert.trainers.commands import bucket_paths

            _require_access(command)
            return command, lambda: bucket_paths.run(command)
    else:
        _require_engine(command)
        _require_access(command)
    if getattr(module, "ACCEPTS_BEAM_FLAGS", False):
        return command, lambda: module.run(command.configure(), command.beam_flags)
    return command, lambda: module.run(command.configure())


def _read_submission(name: str, argv: list[str], runs: Sequence[str]) -> tuple[Command, Command]:
    """Read `submit WHERE [its flags] COMMAND [the command's flags]`.

    Args:
        name: such as "submit tpu".
        argv: what follows it.
        runs: the commands that it can run.

    Returns:
        The first and the second, each with its flags.
    """
    parser, _ = make_parser(name)
    index = find_command(parser, argv, runs)
    if index is None:
        read_command(name, argv)
        parser.error(f"the command to run is missing after the flags of {name}: {_choices(runs)}")
    inner, own, inner_argv = argv[index], argv[:index], argv[index + 1 :]
    flags, inner_flags = parser._option_string_actions, make_parser(inner)[0]._option_string_actions
    if late := _first_flag(inner_argv, flags.keys() - inner_flags.keys()):
        parser.error(f"{late} is a flag of {name}; put it before {inner}")
    if early := _first_flag(own, inner_flags.keys() - flags.keys()):
        parser.error(f"{early} is a flag of {inner}; put it after {inner}")
    if _first_flag(inner_argv, {"-h", "--help"}):
        read_command(inner, inner_argv)
    return read_command(name, own), read_command(inner, inner_argv)


def _first_flag(argv: Sequence[str], flags: Set[str]) -> str | None:
    return next((flag for word in argv if (flag := word.partition("=")[0]) in flags), None)


def find_command(parser: Parser, argv: Sequence[str], runs: Sequence[str]) -> int | None:
    """Return the index of the command that a submission runs: its name, unless that is the value of a flag."""
    for index, word in enumerate(argv):
        flag = parser._option_string_actions.get(argv[index - 1]) if index else None
        if word in runs and (flag is None or flag.nargs == 0):
            return index
    return None


def _trains(name: str) -> bool:
    return COMMANDS[name][0].startswith("beambert.trainers.")


def _extras_of(name: str) -> str:
    """Return the extras of the package that a command needs."""
    if name in COMMANDS and _trains(name):
        return "jax" if imports.is_installed("jax") and not imports.is_installed("tensorflow") else "train"
    return {"submit dataflow": "data,gcp", "submit tpu": "train"}.get(name, "data")


def _require_engine(command: Command) -> None:
    """End the program with a line where Beam's flags contradict each other; check that the engine can be reached."""
    if not command.beam_flags:
        return
    from beambert.pipelines.runner import beam_flags as engine_flags

    try:
        options = engine_flags.pipeline_options(command.beam_flags)
    except ValueError as error:
        command.parser.error(str(error))
    engine_flags.require_engine(options, command.beam_flags)


def _require_access(command: Command) -> None:
    """Check that the buckets that a command names can be reached, where it names any."""
    from beambert.pipelines.io import access

    access.require_access(command.path_arguments, command.beam_flags)


def _require_supported_paths(command: Command) -> None:
    """End the program with a line for a remote path where only a local one, or one in Cloud Storage, is possible."""
    for flag, path, kind in command.paths:
        if "://" in path and not (kind.remote and (path.startswith("gs://") or not _trains(command.name))):
            remedy = "give a local path, or gs://BUCKET/NAME" if kind.remote else "give a local path"
            command.parser.error(f"{flag} {path} is not supported; {remedy}")


def _with_urls(line: str) -> str:
    """Return an error with the URLs of objects in place of the paths of their local copies."""
    if "puts/" not in line:
        return line
    from beambert.trainers.buckets import cache

    return cache.with_urls(line)


def _interrupted(prog: str) -> int:
    """Print a line about Ctrl-C and return the exit code."""
    terminal.print_error(f"{prog}: interrupted; run the same command again to resume")
    return 128 + signal.SIGINT


def _report_stream_error(error: OSError, prog: str) -> int:
    """Print an error about a standard stream, except for a closed pipe; return the exit code."""
    stream = terminal.failed_stream(error) or "stdout"
    terminal.silence(stream)
    if isinstance(error, BrokenPipeError):
        return 128 + signal.SIGPIPE
    reason = file_errors.reason_of(error)
    terminal.print_error(f"{prog}: error: {stream} cannot be written ({reason}); redirect it to another file")
    return 1


def _error_line(error: Exception, extras: str, output: str) -> str | None:
    """Return one line for an error of the input or the system; None for an internal error.

    Args:
        error: the exception.
        extras: extras of the package that the command needs, for a missing package.
        output: output of the command, for errors that contain no file name.
    """
    if isinstance(error, ImportError):
        return imports.import_failure(error, extras)
    if isinstance(error, MemoryError):
        reason = f" ({' '.join(str(error).split())})" if str(error) else ""
        return f"not enough memory{reason}; free some memory, or use a machine with more"
    if str(error).startswith("Unable to get filesystem from specified path"):
        path = str(error).rpartition("Path specified: ")[2]
        return f"{path} is neither a local path nor a supported URL; use a local path or gs://BUCKET/NAME"
    kind = type(error).__module__
    if kind.startswith("beambert."):
        return file_errors.without_numbers(str(error))
    if (isinstance(error, OSError) or kind != "builtins") and (line := file_errors.line_of(error, output)):
        return line
    return " ".join(file_errors.without_numbers(str(error)).split()) if isinstance(error, OSError) else None


@process.ends_process
def main(argv: list[str] | None = None) -> int:
    """Run a command and return the exit code: 0 only when the output is whole."""
    # Before anything imports TensorFlow, whose greeting would drown ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    # gRPC, with which Beam and its workers talk, prints a line for each address that it cannot bind or reach.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    terminal.open_streams()
    # A program that calls this function decides itself what its loggers print.
    if process.is_command():
        terminal.print_library_warnings()
        process.collect_garbage_rarely()
    if sys.flags.optimize > 1:
        # Apache Beam extends the docstrings of its functions while it is imported.
        terminal.print_error("beambert: error: Apache Beam needs docstrings; unset PYTHONOPTIMIZE, or set it to 1")
        return 1
    argv = sys.argv[1:] if argv is None else argv
    try:
        try:
            return _main(argv)
        finally:
            sys.stdout.flush()
    except OSError as error:
        return _report_stream_error(error, "beambert")


def _main(argv: list[str]) -> int:
    """Run a command and return the exit code. Raise OSError where the last output cannot be written."""
    if not argv:
        print(overview())
        return 2
    if argv[0] in _VERSION:
        print(f"beambert {imports.version()}")
        return 0
    name, prog, output = "", "beambert", ""
    try:
        if argv[0] in _HELP:
            argv = [*(word for word in argv[1:] if word not in (*_HELP, *_VERSION)), "--help"]
        if argv == ["--help"]:
            print(overview())
            return 0
        if argv[1:] in (["--help"], ["-h"]) and (where := _destinations(argv[0])):
            commands = _summaries(f"{argv[0]} {destination}" for destination in where)
            usage = "WHERE [--flags] COMMAND [--flags]" if argv[0] == "submit" else f"{_choices(where)} [--flags]"
            print(f"usage: beambert {argv[0]} {usage}\n\n{commands}")
            return 0
        name, rest = _split_command(argv)
        prog = f"beambert {name}"
        with worker_server.of_command(rest):
            command, run = _prepared(name, rest)
            output = " ".join(command.output).strip()
            code = run()
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        return _interrupted(prog)
    except Exception as error:
        if isinstance(error, OSError) and terminal.failed_stream(error):
            return _report_stream_error(error, prog)
        line = _error_line(error, _extras_of(name), output)
        if line is None:
            if process.is_interrupt(error):
                return _interrupted(prog)
            raise
        terminal.print_error(f"{prog}: error: {_with_urls(line)}")
        return 1
