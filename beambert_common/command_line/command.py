"""A command of the CLI with its flags read, and the parser that reads them."""

import argparse
import dataclasses
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from beambert_common import terminal
from beambert_common.command_line.path_flags import PathType


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message, shortened, and the command for help, and exit with 2."""
        sys.exit(usage_error(self.prog, message, f"{self.prog} --help"))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, and let an error of the stream through, which argparse would hide."""
        (file or sys.stderr).write(message)


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Add the default to a flag's help where it has one that the help does not state."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        tells = action.default in (None, False, []) or "(default" in (action.help or "")
        return action.help if tells else super()._get_help_string(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Keep a text that has lines as it is."""
        return text if "\n" in text else super()._fill_text(text, width, indent)


@dataclasses.dataclass(frozen=True)
class Command:
    """A command with its flags read.

    Attributes:
        name: such as "build".
        argv: its flags as they were typed.
        parser: what read them.
        module: what runs it: `module.run(configuration)`, or `module.run(configuration, beam_flags)` where it takes
            flags of Beam's.
        paths: (flag, value, type) of every file or directory that the flags name.
        configure: returns the configuration that its own flags name, a frozen dataclass: `module.configure(args)`.
            It may look for files, once, and raises as the module's `configure` does.
        beam_flags: those of Beam's, as they were typed.
    """

    name: str
    argv: list[str]
    parser: argparse.ArgumentParser
    module: ModuleType
    paths: list[tuple[str, str, PathType]]
    configure: Callable[[], Any]
    beam_flags: list[str]

    @property
    def path_arguments(self) -> list[tuple[str, str]]:
        """Return (flag, value) of every file or directory that the flags name."""
        return [(flag, path) for flag, path, _ in self.paths]

    @property
    def output(self) -> tuple[str, str]:
        """Return (flag, value) of what the command writes, both empty where it writes nothing."""
        return next(((flag, path) for flag, path, kind in self.paths if kind.output), ("", ""))


def usage_error(prog: str, message: str, see: str) -> int:
    """Print a mistake in the command line as one line; return the exit code."""
    terminal.print_error(f"{prog}: error: {message}{'' if message.endswith('?') else ';'} see {see}")
    return 2
