"""Write docs/reference/cli.md from the parsers of the commands: `python docs/generate_cli_reference.py`."""

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from beambert import cli  # noqa: E402
from beambert.common.command_line.command import Parser  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "cli.md"
_INTRODUCTION = """# Command-line reference

Every command and flag. This page is generated from the command-line parsers
(`python docs/generate_cli_reference.py`).

A flag is given as `--flag VALUE` or `--flag=VALUE`; names cannot be abbreviated. Data commands also
accept [Apache Beam's flags](https://beam.apache.org/documentation/). Exit codes: 0 success,
1 error, 2 invalid command line, 130 after Ctrl-C, 143 after SIGTERM."""


def page() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *(line for part in _sections() for line in ("", *part))]) + "\n"


def _sections() -> Iterator[list[str]]:
    for title, commands in cli.COMMAND_GROUPS.items():
        yield [f"## {title}"]
        for name in commands:
            parser, _ = cli.make_parser(name)
            yield from _command(name, parser)


def _command(name: str, parser: Parser) -> Iterator[list[str]]:
    yield [f"### beambert {name}"]
    for paragraph in (parser.description or "").split("\n\n"):
        yield textwrap.wrap(_markdown(paragraph), 100, break_long_words=False, break_on_hyphens=False)
    yield ["```sh", *parser.example.splitlines(), "```"]
    for title, actions in parser.sections().items():
        yield [f"**{title[0].upper()}{title[1:]}**"]
        yield [line for action in actions for line in _flag(parser, action)]


def _flag(parser: Parser, action: argparse.Action) -> list[str]:
    """Return the item of a flag or an argument, such as "- `--output DIR` (required): Output directory"."""
    formatter = parser._get_formatter()
    values = formatter._format_args(action, str(action.metavar or action.dest.upper()))
    if action.choices is not None and action.metavar is None:
        values = "{" + ",".join(map(str, action.choices)) + "}"
    name = f"{action.option_strings[-1]} {values}".rstrip() if action.option_strings else values
    required = " (required)" if action.required and action.option_strings else ""
    text = f"- `{name}`{required}: {_markdown(formatter._expand_help(action))}"
    return textwrap.wrap(text, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _markdown(text: str) -> str:
    """Return a help text as Markdown: flags as code, and no marks that Markdown would take for its own."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    for index in range(0, len(parts), 2):
        part = re.sub(r"[*<_]", r"\\\g<0>", parts[index])
        parts[index] = re.sub(
            r"(?<![\w-])--[a-zA-Z][\w\\]*", lambda match: "`" + match[0].replace("\\", "") + "`", part
        )
    return "".join(parts)


def main() -> int:
    """Write the page, or with `--check` return 1 where it is stale."""
    # Help is wrapped to the width of the terminal; the page is not.
    os.environ["COLUMNS"] = "100"
    if sys.argv[1:] == ["--check"]:
        return PAGE.read_text(encoding="utf-8") != page()
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
