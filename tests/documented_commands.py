"""The `beambert` commands of documents, and the errors of their flags."""

import contextlib
import io
import itertools
import re
import shlex

from beambert import cli
from tests.tutorials import blocks


def beambert_commands(shell: str) -> list[list[str]]:
    """Return the arguments of every `beambert ...` line of a shell script, without comment and redirection."""
    lines = shell.replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("beambert ")]
    return [list(itertools.takewhile(lambda word: word not in (">", "|", "&&"), command)) for command in commands]


def commands(text: str) -> list[list[str]]:
    """Return the `beambert` commands of the shell blocks of a page, except those that start with a flag."""
    shell = "\n".join(block.text for block in blocks(text) if block.language == "sh")
    return [argv for argv in beambert_commands(shell) if not argv[0].startswith("-")]


def parts(argv: list[str]) -> list[tuple[str, list[str]]]:
    """Return a command with its flags; for `submit ENGINE ... COMMAND ...`, return both commands with theirs."""
    name = " ".join(argv[:2])
    if argv[0] != "submit":
        words = 2 if name in cli.COMMANDS else 1
        return [(" ".join(argv[:words]), argv[words:])]
    runs = cli.make_parser(name)[1].RUNS
    split = next(number for number, word in enumerate(argv) if word in runs)
    return [(name, argv[2:split]), (argv[split], argv[split + 1 :])]


def _example_value(placeholder: re.Match) -> str:
    """Return a value for a shell variable or placeholder such as $PROJECT or PROJECT."""
    name = placeholder[0].strip("$").lower().replace("_", "-")
    account = "worker@my-project.iam.gserviceaccount.com"
    return {"region": "us-central1", "worker": account}.get(name, f"my-{name}")


def parse_problems(argv: list[str]) -> list[str]:
    """Return the errors of the command line for a command, without running it."""
    problems = []
    for name, own in parts(argv):
        message = io.StringIO()
        try:
            with contextlib.redirect_stderr(message), contextlib.redirect_stdout(io.StringIO()):
                cli.read_command(name, [re.sub(r"\$\w+|\b[A-Z]{4,}\b", _example_value, word) for word in own])
        except SystemExit as error:
            if error.code:
                problems.append(message.getvalue().strip())
    return problems
