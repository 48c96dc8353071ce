"""A command of the CLI with its flags read, and the parser that reads them."""

import argparse
import collections
import copy
import dataclasses
import itertools
import sys
import textwrap
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from beambert.common import terminal
from beambert.common.command_line.path_flags import PathType, path_type

# Characters that word processors and web pages substitute for "-".
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


class Parser(argparse.ArgumentParser):
    """An argument parser with errors of one line, and help that shows an example and the common flags first."""

    def __init__(
        self,
        prog: str,
        description: str,
        example: str = "",
        common_flags: Sequence[str] = (),
        takes_command: bool = False,
        epilog: str | None = None,
    ) -> None:
        """Create the parser, without flags but `--help`.

        Args:
            prog: the command, such as "beambert build".
            description: its summary, a sentence, and what else help says about it.
            example: complete shell commands, one per line.
            common_flags: the flags that help lists first, in this order.
            takes_command: whether another command with its flags follows the flags of this one.
            epilog: the last paragraph of help.
        """
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
            epilog=epilog,
            add_help=False,
        )
        self.add_argument("-h", "--help", action="help", help="Show this help and exit")
        self.example = example
        self._common_flags = common_flags
        self._takes_command = takes_command
        self._required: list[argparse.Action] = []

    def find_mistake(self, argv: Sequence[str]) -> str | None:
        """Return an error for a flag with a wrong dash or a path flag that is given twice; None otherwise."""
        flags: collections.Counter[argparse.Action] = collections.Counter()
        for word in itertools.takewhile(lambda word: word != "--", argv):
            name = word.partition("=")[0]
            bare = name.lstrip("-" + _DASHES)
            if name not in self._option_string_actions and name != bare and f"--{bare}" in self._option_string_actions:
                return f"unknown argument {name}; did you mean --{bare}?"
            action = self._option_string_actions.get(name)
            if action is None or not path_type(action) or isinstance(action, argparse._ExtendAction):
                continue
            flags[action] += 1
            if flags[action] == 2:
                remedy = "use it once" if action.nargs is None else f"put all values after one {name}"
                return f"{name} is given twice; {remedy}"
        return None

    def read(self, argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments, without the error for a missing one: `require_all` reports it, after other mistakes.

        Args:
            argv: the arguments.

        Returns:
            The values, with `given_options`, the destinations of the flags in `argv`; and the arguments that the
            parser does not define.
        """
        flags = (self._option_string_actions.get(word.partition("=")[0]) for word in argv)
        self.set_defaults(given_options=tuple(dict.fromkeys(flag.dest for flag in flags if flag)))
        self._required = [action for action in self._actions if action.required]
        for action in self._required:
            action.required = False
        return self.parse_known_args(argv)

    def require_all(self, args: argparse.Namespace) -> None:
        """End the program with a line if a required argument is missing."""
        missing = [
            action.option_strings[0] if action.option_strings else str(action.metavar)
            for action in self._required
            if getattr(args, action.dest) is None
        ]
        if missing:
            self.error(f"the following arguments are required: {', '.join(missing)}")

    def format_help(self) -> str:
        """Return the help: usage, description, example, arguments, common flags, then the other flags by group."""
        formatter = self._get_formatter()
        text = f"{self._usage(formatter)}\n\n"
        formatter.add_text(self.description)
        if self.example:
            formatter.start_section("example")
            formatter.add_text(self.example)
            formatter.end_section()
        for title, actions in self.sections().items():
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return text + formatter.format_help()

    def sections(self) -> dict[str, list[argparse.Action]]:
        """Return the arguments and flags by the titles that help shows; groups of one title are one section."""
        common = [self._option_string_actions[flag] for flag in self._common_flags]
        # The first group is argparse's of positional arguments, the second the one of flags without a group.
        positionals, ungrouped, *groups = self._action_groups
        sections: dict[str, list[argparse.Action]] = {"arguments": positionals._group_actions, "common flags": common}
        for group in [*groups, ungrouped]:
            title = "other flags" if group is ungrouped else str(group.title)
            actions = [action for action in group._group_actions if action not in common]
            sections.setdefault(title, []).extend(actions)
        return {title: actions for title, actions in sections.items() if actions}

    def _usage(self, formatter: argparse.HelpFormatter) -> str:
        """Return the usage: what a command line must have, and `[flags]` for the rest."""
        parts = [f"usage: {self.prog}"]
        for action in sorted(self._actions, key=lambda action: bool(action.option_strings)):
            name = str(action.metavar or action.dest.upper())
            if not action.option_strings:
                parts.append(formatter._format_args(action, name))
            elif action.required or action in self._required:
                parts.append(f"{action.option_strings[0]} {formatter._format_args(action, name)}")
        parts.append("[flags]")
        if self._takes_command:
            parts.append("COMMAND [command flags]")
        return textwrap.fill(" ".join(parts), formatter._width, subsequent_indent=" " * 7, break_on_hyphens=False)

    def error(self, message: str) -> NoReturn:
        """Print the message, shortened, and the command for help, and exit with 2."""
        sys.exit(usage_error(self.prog, message, f"{self.prog} --help"))

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, and let an error of the stream through, which argparse would hide."""
        (file or sys.stderr).write(message)


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Add the default to a flag's help where it has one that the help does not state."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        stated = action.default in (None, False, []) or "(default" in (action.help or "")
        return action.help if stated else super()._get_help_string(action)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Return a text filled by paragraphs; a command, and a text with indented lines, as it is."""
        if text.startswith("beambert ") or "\n " in text:
            return textwrap.indent(text, indent)
        paragraphs = (super(HelpFormatter, self)._fill_text(part, width, indent) for part in text.split("\n\n"))
        return "\n\n".join(paragraphs)


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
        args: its own flags with their values.
    """

    name: str
    argv: list[str]
    parser: argparse.ArgumentParser
    module: ModuleType
    paths: list[tuple[str, str, PathType]]
    configure: Callable[[], Any]
    beam_flags: list[str]
    args: argparse.Namespace

    def configured_with(self, local_path: Callable[[str, PathType], str]) -> Any:
        """Return the configuration with other paths.

        Args:
            local_path: function of the value and the type of a path flag that returns the path to use instead.
        """
        local = copy.copy(self.args)
        for action in self.parser._actions:
            kind, value = path_type(action), getattr(local, action.dest, None)
            if kind is None or value is None:
                continue
            paths = [local_path(path, kind) for path in value] if isinstance(value, list) else local_path(value, kind)
            setattr(local, action.dest, paths)
        return self.module.configure(local)

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
