"""The front door: `beambert COMMAND ...`. Finds the command's module, reads its flags, and turns errors into a line."""

import argparse
import dataclasses
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import NoReturn

from beambert_flags import places

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

beambert COMMAND --help tells more."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Prints the message and where to read on, and exits with 2."""
        print(f"{self.prog}: error: {message}; see {self.prog} --help", file=sys.stderr)
        sys.exit(2)


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


def nearest(word: str, known: list[str]) -> str:
    """ "; did you mean ...?" for a mistyped word, or nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _unknown_flags(rest: list[str], module: ModuleType) -> tuple[list[str], list[str]]:
    """What neither the command nor (where it takes its flags) Beam knows, and Beam's flag names."""
    if not getattr(module, "ACCEPTS_BEAM_FLAGS", False):
        return rest, []
    from apache_beam.options.pipeline_options import PipelineOptions

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    # A flag of Beam's that is declared twice is one flag; the engine itself reads these later.
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    return parser.parse_known_args(rest)[1], list(parser._option_string_actions)


def make_parser(command: str) -> tuple[Parser, ModuleType]:
    """The parser of a command, and the module that runs it."""
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
    """Reads the flags of a command; a flag that it does not know ends the program with a line."""
    parser, module = make_parser(name)
    if hasattr(module, "complete_arguments"):
        argv = module.complete_arguments(argv)
    required = [action for action in parser._actions if action.required]
    # A mistyped flag is named before those that are missing, which it may be one of.
    for action in required:
        action.required = False
    rest = parser.parse_known_args(argv)[1]
    unknown, beam_flags = _unknown_flags(rest, module)
    if unknown:
        flag = unknown[0].split("=")[0]
        parser.error(f"unknown argument {flag}{nearest(flag, [*parser._option_string_actions, *beam_flags])}")
    for action in required:
        action.required = True
    return Command(name, argv, parser, module, parser.parse_known_args(argv)[0], rest)


def _run(name: str, argv: list[str]) -> int:
    """Runs a command; one that runs another elsewhere (`RUNS` names those it can) is given that one."""
    runs = getattr(importlib.import_module(COMMANDS[name][0]), "RUNS", ())
    split = next((number for number, word in enumerate(argv) if word in runs), len(argv))
    command = read_command(name, argv[:split])
    if runs:
        if split == len(argv):
            choices = f"{', '.join(runs[:-1])} or {runs[-1]}"
            command.parser.error(f"say what to run behind its own flags: {choices}, with the flags of that")
        return command.module.run(command.args, read_command(argv[split], argv[split + 1 :]))
    if command.module.__name__.startswith("trainers."):
        _refuse_buckets(command)
    if getattr(command.module, "ACCEPTS_BEAM_FLAGS", False):
        return command.module.run(command.args, command.beam_flags)
    return command.module.run(command.args)


def _refuse_buckets(command: Command) -> None:
    """Ends the program with a line where a command that knows only this machine's files is given others."""
    for flag, place in command.places:
        if "://" in place:
            command.parser.error(
                f"{flag} {place} is in a bucket, and {command.name} reads and writes files of this machine; copy them "
                "(gcloud storage cp --recursive), or train beside the bucket with beambert submit tpu"
            )


def main(argv: list[str] | None = None) -> int:
    """Runs a command and returns the exit code: 0 only when the output is whole."""
    # Before anything imports TensorFlow, whose greeting would drown ours.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("--help", "-h", "help"):
        print(overview())
        return 0 if argv else 2
    destinations = [name for name in COMMANDS if name.startswith(f"{argv[0]} ")]
    words = 2 if destinations else 1
    command = " ".join(argv[:words])
    if destinations and argv[1:2] in (["--help"], ["-h"]):
        print(f"usage: beambert {argv[0]} WHERE [--flags] COMMAND [--flags]\n\n{_listed(destinations)}")
        return 0
    if destinations and command not in COMMANDS:
        print(f"beambert: {argv[0]} where? {', '.join(destinations[:-1])} or {destinations[-1]}", file=sys.stderr)
        return 2
    if command not in COMMANDS:
        print(f"beambert: no command {command}{nearest(command, list(COMMANDS))}; see beambert --help", file=sys.stderr)
        return 2
    try:
        return _run(command, argv[words:])
    except KeyboardInterrupt:
        print(f"beambert {command}: interrupted; the same command goes on from what is finished", file=sys.stderr)
        return 128 + signal.SIGINT
    except (ValueError, OSError, ImportError) as error:
        if not _is_users(error):
            raise
        print(f"beambert {command}: error: {_one_line(error)}", file=sys.stderr)
        return 1


def _is_users(error: Exception) -> bool:
    """Whether an error tells of the user's input or machine, rather than of a fault in beambert."""
    ours = ("tokenizer.", "bert_model.", "pipelines.", "trainers.", "deploy.")
    if isinstance(error, OSError):
        return True
    if isinstance(error, ImportError):
        return error.name is not None and not f"{error.name}.".startswith(ours)
    return type(error).__module__.startswith(ours)


def _one_line(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"package {error.name} is not installed; pip install 'beambert[data,train,convert]'"
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
