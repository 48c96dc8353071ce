"""Run the code blocks of a Markdown page, and compare their output with the output that the page shows.

`python -m tests.tutorials PAGE.md ...` runs pages and prints the output of each block. `--data DIR` is the folder of
real data (default: ../shared/data), `--directory DIR` an empty directory to run in and keep.

- ```sh and ```python blocks run in order, in one directory. Exported variables and `cd` last to the end of the page;
  each Python block is a program of its own. A block that fails ends the page.
- A ```text block is output of the block that ran last, which must print each of its lines, in this order. A line `...`
  stands for omitted lines, `...` within a line for any text. Consecutive blanks count as one. Numbers may differ by
  20 %; durations, rates and dates may differ by any amount.
- HTML comments, each directly before its block:
  `<!-- not run: REASON -->` skips a block and its outputs;
  `<!-- output: any numbers -->` compares only the words of an output;
  `<!-- not output -->` marks a ```text block that shows no output.
- `<!-- run` ... `-->` is a shell block that the reader does not see, such as a small stand-in for a large download.
- `<!-- needs: ../shared/data/PATH as NAME -->` links a file or folder of the real data to NAME.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DATA_PREFIX = "../shared/data/"
TOLERANCE = 0.2
# Time limit of one block.
TIMEOUT_SECONDS = 900

_DIRECTIVE = re.compile(r"<!-- (not run|output|not output|needs)(?:: (.*?))? -->")
_UNIT = r"(?:ms|s|sec|seconds?|min|minutes?|h|hours?|days?)\b"
_NUMBER = re.compile(
    r"(?P<ignored>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?"
    rf"|\d[\d,.]*\s?[kMGT]?\s?(?:{_UNIT}(?!/)|\w+/s\b|\w+ (?:a|per) second\b))"
    r"|(?P<number>(?<![\d.])(?:(?<=[\s(])-)?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?)"
)


class TutorialError(Exception):
    """A block of a page failed, or printed something other than the page shows."""


class Block(NamedTuple):
    """A code block of a page: number of its first line, language, text and the directives before it."""

    line: int
    language: str
    text: str
    directives: dict[str, str]


class DataLink(NamedTuple):
    """Real data that a page needs: its path below the folder of real data, and its name in the page's directory."""

    path: str
    name: str


def blocks(text: str) -> Iterator[Block]:
    """Yield the code blocks of a page, including those in `<!-- run` comments."""
    lines = text.splitlines()
    directives: dict[str, str] = {}
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        indent = len(lines[number]) - len(lines[number].lstrip())
        if match := _DIRECTIVE.fullmatch(line):
            directives[match[1]] = match[2] or ""
        elif line.startswith("```") or line == "<!-- run":
            language, end = ("sh", "-->") if line == "<!-- run" else (line.strip("`").strip(), "```")
            start = number + 1
            number = next(later for later in range(start, len(lines)) if lines[later].strip() == end)
            body = "\n".join(code[min(indent, len(code) - len(code.lstrip())) :] for code in lines[start:number])
            yield Block(start + 1, language, body, directives)
            directives = {}
        elif line:
            directives = {}
        number += 1


def needed_data(text: str) -> list[DataLink]:
    """Return the real data that a page needs."""
    needs = re.findall(rf"<!-- needs: {re.escape(DATA_PREFIX)}(\S+)(?: as (\S+))? -->", text)
    return [DataLink(path, name or Path(path).name) for path, name in needs]


def run_page(page: Path, directory: Path, data: Path | None = None, echo: bool = False) -> None:
    """Run the blocks of a page and compare its outputs.

    Args:
        page: the Markdown file.
        directory: where its commands run; must be empty.
        data: the folder of real data, for a page that needs some.
        echo: print each block and its output.

    Raises:
        TutorialError: a block fails or its output differs.
    """
    text = page.read_text(encoding="utf-8")
    shell = _Shell(directory)
    for link in needed_data(text):
        if data is None:
            raise TutorialError(f"{page.name} needs {DATA_PREFIX}{link.path}")
        (directory / link.name).symlink_to((data / link.path).resolve(strict=True))
    output: str | None = None
    for block in blocks(text):
        place = f"{page.name}:{block.line}"
        if block.language in ("sh", "python"):
            output = None
            if "not run" not in block.directives:
                code, output = shell.run(block)
                if echo:
                    print(f"--- {place}\n{block.text}\n--- output\n{output}", flush=True)
                if code:
                    raise TutorialError(f"{place}: exit code {code}\n{block.text}\n{output}")
            continue
        if block.language != "text" or output is None or "not output" in block.directives:
            continue
        any_numbers = block.directives.get("output") == "any numbers"
        if problem := compare(block.text, output, any_numbers):
            raise TutorialError(f"{place}: {problem}\n--- printed\n{output}")


def compare(shown: str, printed: str, any_numbers: bool = False) -> str:
    """Return the first shown line that was not printed, with the nearest printed line, or "" if all were printed."""
    lines = [" ".join(line.split()) for line in re.split(r"[\n\r]", printed)]
    position = 0
    for line in (" ".join(line.split()) for line in shown.splitlines()):
        if line in ("", "..."):
            continue
        found = next((n for n in range(position, len(lines)) if _same_line(line, lines[n], any_numbers)), None)
        if found is None:
            near = difflib.get_close_matches(line, lines[position:], 1, 0.3)
            return f"not printed (after the lines before it): {line}" + (f"\nnearest line: {near[0]}" if near else "")
        position = found + 1
    return ""


def _same_line(shown: str, printed: str, any_numbers: bool) -> bool:
    """Return whether a shown line equals a printed line, with numbers within the tolerance."""
    parts = []
    numbers = []
    position = 0
    pattern = re.compile(rf"{_NUMBER.pattern}|(?P<rest>\.\.\.)")
    for match in pattern.finditer(shown):
        parts.append(re.escape(shown[position : match.start()]))
        position = match.end()
        if match["rest"]:
            parts.append(".*")
        elif match["ignored"]:
            # A value of another magnitude may have another unit.
            parts.append(r"(?:\d[\d,.:T -]*\s?[\w/ ]*?)")
        else:
            numbers.append(match["number"])
            parts.append(r"(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)")
    match = re.fullmatch("".join([*parts, re.escape(shown[position:])]), printed)
    if not match:
        return False
    return any_numbers or all(map(_close, numbers, match.groups()))


def _close(shown: str, printed: str) -> bool:
    """Return whether two numbers differ by at most the tolerance, or by 1 in the last decimal shown."""
    expected, actual = float(shown.replace(",", "")), float(printed.replace(",", ""))
    decimals = re.fullmatch(r"-?[\d,]+\.(\d+)", shown)
    last_digit = 1.01 * 10.0 ** -len(decimals[1]) if decimals else 0.0
    return abs(expected - actual) <= max(TOLERANCE * abs(expected), last_digit)


class _Shell:
    """A shell that runs blocks in a directory; exported variables and the working directory persist between blocks."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._scratch = tempfile.TemporaryDirectory(prefix="tutorial-")
        self._state = Path(self._scratch.name)
        for name, arguments in (("beambert", "-m beambert "), ("python", ""), ("python3", "")):
            program = self._state / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
            program.chmod(0o755)
        (self._state / "cwd").write_text(str(directory))
        (self._state / "variables").write_text("")

    def run(self, block: Block) -> tuple[int, str]:
        """Run a block and return its exit code and its output, with stdout and stderr combined."""
        if block.language == "python":
            (self._state / "block.py").write_text(block.text, encoding="utf-8")
            script = f'python "{self._state}/block.py"'
        else:
            script = block.text
        script = (
            f'. "{self._state}/variables"\ncd "$(cat "{self._state}/cwd")"\nset -e -o pipefail\n{script}\n'
            f'export -p > "{self._state}/variables"\npwd > "{self._state}/cwd"\n'
        )
        path = f"{self._state}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        result = subprocess.run(
            ["bash", "-c", script],
            cwd=self._directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
        return result.returncode, result.stdout.decode("utf-8", "replace")


def main() -> int:
    """Run the pages that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.tutorials", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    for page in arguments.pages:
        with tempfile.TemporaryDirectory(prefix="tutorial-") as scratch:
            try:
                run_page(page, arguments.directory or Path(scratch), arguments.data, True)
            except TutorialError as error:
                print(error)
                return 1
        print(f"{page.name}: every block ran, every output shown was printed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
