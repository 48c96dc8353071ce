"""The command line interface, `beambert COMMAND ...`: find the command's module, read its flags, report errors."""

from beambert.common import process  # First, so that Ctrl-C during the other imports is one line.

# isort: split
import functools
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

from beambert.common import optional_packages as packages
from beambert.common import terminal
from beambert.common.command_line import argument_parser as arguments
from beambert.common.command_line.command import Command, Parser, usage_error
from beambert.common.command_line.command_errors import error_line, interrupted, report_stream_error
from beambert.common.command_line.command_words import HELP, VERSION, destinations, nearest, split_command, summaries
from beambert.common.command_line.library_warnings import print_library_warnings
from beambert.common.command_line.path_flags import bad_path, empty_path, typed_paths

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
_OVERVIEW = """usage: beambert COMMAND [flags]

Pretrain, fine-tune and deploy BERT from raw text.

{}

Run `beambert COMMAND --help` for the flags of a command, `beambert --version` for the version."""


def overview() -> str:
    """Return the text that `beambert --help` prints."""
    groups = (f"{title}:\n{summaries(COMMANDS, names)}" for title, names in COMMAND_GROUPS.items())
    return _OVERVIEW.format("\n\n".join(groups))


def _unknown_flags(rest: list[str], module: ModuleType) -> tuple[list[str], list[str]]:
    """Return what neither the command nor (where it takes its flags) Beam knows, and Beam's flag names.

    Raises:
        ValueError: a flag of Beam's has a wrong value.
    """
    if not rest or not getattr(module, "ACCEPTS_BEAM_FLAGS", False):
        return rest, []
    from beambert.pipelines.runner import beam_flags as engine_flags

    return engine_flags.read(rest)


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
    if arguments.has_help_flag(parser, argv):
        # Before flags lose their mark of being required, which the usage line shows.
        parser.print_help()
        parser.exit(0)
    if mistake := arguments.find_mistake(parser, argv):
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
            parser.error(arguments.describe_unexpected(parser, name, word))
        flag = word.partition("=")[0]
        parser.error(f"unknown argument {flag}{nearest(flag, [*parser._option_string_actions, *beam_flags])}")
    if empty := empty_path(parser, args):
        parser.error(f"{empty} is empty; give a path")
    if problem := bad_path(parser, args):
        parser.error(problem)
    for action in required:
        action.required = True
    parser.set_defaults(given_options=arguments.given_options(parser, argv))
    args = parser.parse_known_args(argv)[0]
    paths = list(typed_paths(parser, args))
    return Command(name, argv, parser, module, paths, functools.cache(lambda: module.configure(args)), rest, args)


def _prepared(name: str, argv: list[str]) -> tuple[Command, Callable[[], int]]:
    """Read the flags of a command; return it, and what runs it.

    One that runs another command elsewhere (`RUNS` names those it can) is given that one.
    """
    module = importlib.import_module(COMMANDS[name][0])
    if hasattr(module, "RUNS"):
        submission, command = _read_submission(name, argv, module.RUNS)
        process.end_startup()
        if name == "submit flink":
            _require_packages(command)
            _require_access(command)
        return command, lambda: module.run(submission.configure(), command)
    command = read_command(name, argv)
    process.end_startup()
    if _trains(name):
        if any("://" in path for _, path in command.path_arguments):
            _require_cloud_storage(command)
            return command, functools.partial(_run_with_buckets, command)
    else:
        _require_local_paths(command)
        _require_packages(command)
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
    first = next((word for word in arguments.parse_words(parser, argv, stop=runs) if not word.flag), None)
    own = argv[: first.start] if first else argv
    if own[-1:] == ["--"]:
        own = own[:-1]
    if unknown := arguments.find_unknown_flag(parser, own):
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
    if late := arguments.find_misplaced_flag(inner_parser, inner_argv, parser):
        parser.error(f"{late} is a flag of {name}; put it before {inner}")
    if arguments.has_help_flag(inner_parser, inner_argv):
        read_command(inner, inner_argv)
    return read_command(name, own), read_command(inner, inner_argv)


def _trains(name: str) -> bool:
    return COMMANDS[name][0].startswith("beambert.trainers.")


def _extras_of(name: str) -> str:
    """Return the extras of the package that a command needs."""
    if name in COMMANDS and _trains(name):
        return "jax" if packages.is_installed("jax") and not packages.is_installed("tensorflow") else "train"
    return {"submit dataflow": "data,gcp", "submit tpu": "train"}.get(name, "data")


def _require_packages(command: Command) -> None:
    """Raise ModuleNotFoundError where a path needs a package that is not installed."""
    for _, place in command.path_arguments:
        packages.require_for(place)


def _require_engine(command: Command) -> None:
    """End the program with a line where Beam's flags contradict each other; check that the engine can be reached."""
    if not command.beam_flags:
        return
    from beambert.pipelines.runner import beam_flags as engine_flags

    try:
        options = engine_flags.options_of(command.beam_flags)
    except ValueError as error:
        command.parser.error(str(error))
    engine_flags.require_engine(options, command.beam_flags)


def _require_access(command: Command) -> None:
    """Check that the buckets that a command names can be reached, where it names any."""
    if any("://" in place for _, place in command.path_arguments):
        from beambert.pipelines.io import access

        access.require_access(command.path_arguments, command.beam_flags)


def _require_local_paths(command: Command) -> None:
    """End the program with a line for a remote path where only a local one is possible."""
    for flag, path, kind in command.paths:
        if "://" in path and not kind.remote:
            command.parser.error(f"{flag} {path} is not supported; give a local path")


def _require_cloud_storage(command: Command) -> None:
    """Check the buckets of a command that trains or uses a model; end the program with a line for another file system.

    Raises:
        AccessError: the client of Cloud Storage is not installed, or a bucket cannot be reached.
    """
    for flag, path, kind in command.paths:
        if "://" in path and not (kind.remote and path.startswith("gs://")):
            remedy = "give a local path, or gs://BUCKET/NAME" if kind.remote else "give a local path"
            command.parser.error(f"{flag} {path} is not supported; {remedy}")
        if "://" in path and not packages.is_installed("google.cloud.storage"):
            from beambert.pipelines.errors import AccessError

            raise AccessError(
                f"{path} requires the package google-cloud-storage, which is not installed; run pip install "
                "'beambert[gcs]'"
            )
    _require_access(command)


def _run_with_buckets(command: Command) -> int:
    from beambert.trainers.commands import bucket_paths

    return bucket_paths.run(command)


def _with_urls(line: str) -> str:
    """Return an error with the URLs of objects in place of the paths of their local copies."""
    if "puts/" not in line:
        return line
    from beambert.trainers.buckets import cache

    return cache.with_urls(line)


def _print_help(words: list[str]) -> int:
    """Print the overview, or what a command does and its flags."""
    words = [word for word in words if not word.startswith("-") and word not in (*HELP, *VERSION)]
    if not words:
        print(overview())
        return 0
    two_words = destinations(COMMANDS, words[0])
    if two_words and len(words) == 1:
        listed = summaries(COMMANDS, two_words)
        print(f"usage: beambert {words[0]} WHERE [--flags] COMMAND [--flags]\n\n{listed}")
        return 0
    name, rest = split_command(COMMANDS, words)
    if rest:
        return usage_error("beambert help", f"unexpected argument {rest[0]!r} after {name}", "beambert --help")
    make_parser(name)[0].print_help()
    return 0


@process.ends_process
def main(argv: list[str] | None = None) -> int:
    """Run a command and return the exit code: 0 only when the output is whole."""
    # Before anything imports TensorFlow, whose greeting would drown ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    terminal.open_streams()
    # A program that calls this function decides itself what its loggers print.
    if process.is_command():
        print_library_warnings()
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
        return report_stream_error(error, "beambert")


def _main(argv: list[str]) -> int:
    """Run a command and return the exit code. Raise OSError where the last output cannot be written."""
    if not argv:
        print(overview())
        return 2
    if argv[0] in VERSION:
        print(f"beambert {packages.version()}")
        return 0
    name, prog, output = "", "beambert", ""
    try:
        if argv[0] in HELP:
            return _print_help(argv[1:])
        if destinations(COMMANDS, argv[0]) and argv[1:2] in (["--help"], ["-h"]):
            return _print_help(argv[:1])
        name, rest = split_command(COMMANDS, argv)
        prog = f"beambert {name}"
        command, run = _prepared(name, rest)
        output = " ".join(command.output).strip()
        code = run()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return interrupted(prog)
    except Exception as error:
        if isinstance(error, OSError) and terminal.failed_stream(error):
            return report_stream_error(error, prog)
        line = error_line(error, _extras_of(name), output)
        if line is None:
            if process.is_interrupt(error):
                return interrupted(prog)
            raise
        terminal.print_error(f"{prog}: error: {_with_urls(line)}")
        return 1
