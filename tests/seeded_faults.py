"""Draw one-line faults by seed, and report which of them the tests find.

    python -m tests.seeded_faults --count 60 --seed 1
    python -m tests.seeded_faults --only 17 --select "slow or not slow"   # one fault, all tests of its package

Each fault changes one line of a copy of the tree: a comparison, a number, a sign, the order of two arguments, or a
statement that is dropped. The tests of its package run until the first failure, those nearest to the module first. A
fault that no test finds is one of two things: a line that needs a test, or one that changes no behavior.
"""

import argparse
import ast
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGES = ("tokenizer", "bert_model", "reporting", "pipelines", "trainers")
KINDS = ("comparison", "number", "sign", "arguments", "statement")
# A fault may make a test wait forever.
MOST_SECONDS = 1200
_OPPOSITE = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
}


class Fault(NamedTuple):
    """A fault: line `line` (from 1) of the file at `path`, relative to the tree, becomes `after`."""

    kind: str
    path: str
    line: int
    before: str
    after: str


def draw(seed: int, count: int) -> list[Fault]:
    """Return faults, equally many of each package and kind, all of different lines."""
    generator = random.Random(seed)
    groups = {}
    for package in PACKAGES:
        paths = sorted((ROOT / package).rglob("*.py"))
        faults = [
            fault
            for path in paths
            for fault in faults_in(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))
        ]
        for kind in KINDS:
            groups[package, kind] = [fault for fault in faults if fault.kind == kind]
            generator.shuffle(groups[package, kind])
    drawn: dict[tuple[str, int], Fault] = {}
    for kind, package in itertools.cycle(itertools.product(KINDS, PACKAGES)):
        if len(drawn) == count or not any(groups.values()):
            return list(drawn.values())
        while groups[package, kind]:
            fault = groups[package, kind].pop()
            if (fault.path, fault.line) not in drawn:
                drawn[fault.path, fault.line] = fault
                break
    raise AssertionError


def faults_in(source: str, path: str) -> Iterator[Fault]:
    """Yield all faults of a module that leave valid Python."""
    lines = source.splitlines()
    tree = ast.parse(source)
    annotations = {
        id(child)
        for node in ast.walk(tree)
        for field in ("annotation", "returns")
        if isinstance(getattr(node, field, None), ast.AST)
        for child in ast.walk(getattr(node, field))
    }
    for node in ast.walk(tree):
        if id(node) in annotations or getattr(node, "lineno", 0) != getattr(node, "end_lineno", -1):
            continue
        for kind, after in _changes(node, lines[node.lineno - 1]):
            with contextlib.suppress(SyntaxError):
                ast.parse("\n".join([*lines[: node.lineno - 1], after, *lines[node.lineno :]]))
                yield Fault(kind, path, node.lineno, lines[node.lineno - 1].strip(), after)


def _changes(node: ast.AST, line: str) -> Iterator[tuple[str, str]]:
    """Yield the kind of each fault of a node on a line, and the line with the fault."""

    def replaced(first: ast.AST, last: ast.AST, text: str) -> str:
        # Offsets of the syntax tree count bytes.
        data = line.encode()
        return (data[: first.col_offset] + text.encode() + data[last.end_col_offset :]).decode()

    def text_of(part: ast.AST) -> str:
        return line.encode()[part.col_offset : part.end_col_offset].decode()

    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in _OPPOSITE:
            yield "comparison", _between(line, left, right, *_OPPOSITE[type(operator)])
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPPOSITE:
            yield "sign", _between(line, left, right, *_OPPOSITE[type(operator)])
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "sign", replaced(node, node, text_of(operand))
        case ast.Constant(value=bool() as value):
            yield "number", replaced(node, node, str(not value))
        case ast.Constant(value=int() | float() as value):
            yield "number", replaced(node, node, repr(value + 1))
        case ast.Call(args=[first, second, *_]) if not any(isinstance(part, ast.Starred) for part in (first, second)):
            if text_of(first) != text_of(second):
                yield "arguments", replaced(first, second, f"{text_of(second)}, {text_of(first)}")
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield "statement", replaced(node, node, "pass")


def _between(line: str, left: ast.AST, right: ast.AST, old: str, new: str) -> str:
    """Return the line with the operator between two operands replaced."""
    data = line.encode()
    middle = data[left.end_col_offset : right.col_offset].decode()
    return (data[: left.end_col_offset] + middle.replace(old, new, 1).encode() + data[right.col_offset :]).decode()


def tests_of(path: str, tree: Path) -> list[str]:
    """Return the test files of the package of a module, relative to the tree; those nearest to the module first.

    Nearest are the files that import the module, then those of the folder of the same name.
    """
    package, *folders, _ = path.split("/") if "/" in path else (path, "")
    module = path.removesuffix(".py").replace("/", ".")
    parent, _, name = module.rpartition(".")
    imports = re.compile(rf"\b{re.escape(module)}\b|from {re.escape(parent)} import .*\b{name}\b")
    mirror = "/".join(("tests", package, *folders))

    def distance(file: str) -> tuple[int, str]:
        is_direct = imports.search((tree / file).read_text(encoding="utf-8"))
        return 0 if is_direct else 1 if file.startswith(mirror + "/") else 2, file

    files = [str(file.relative_to(tree)) for file in (tree / "tests" / package).rglob("test_*.py")]
    return sorted(files, key=distance)


def find(fault: Fault, tree: Path, select: str) -> tuple[str, float]:
    """Run tests on a tree with a fault; return the first test that fails ("" for none), and the seconds."""
    path = tree / fault.path
    original = path.read_bytes()
    lines = original.decode().split("\n")
    assert lines[fault.line - 1].strip() == fault.before, f"{fault.path}:{fault.line} is not the line that was drawn"
    lines[fault.line - 1] = fault.after
    path.write_text("\n".join(lines), encoding="utf-8")
    begin = time.monotonic()
    argv = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", select]
    try:
        result = subprocess.run(
            [*argv, *tests_of(fault.path, tree)],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {MOST_SECONDS} seconds", time.monotonic() - begin
    finally:
        path.write_bytes(original)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", result.stdout, re.MULTILINE)
    found = failed[0] if failed else "" if result.returncode == 0 else f"pytest ended with {result.returncode}"
    return found, time.monotonic() - begin


def copy_tree(folder: Path) -> Path:
    """Copy the tracked files and the compiled extensions; real data stays where the tests look for it."""
    tree = folder / "tree"
    files = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for file in [*files, *(str(path.relative_to(ROOT)) for path in ROOT.glob("t*/**/*.so"))]:
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, tree / file)
    (folder / "shared").symlink_to(ROOT.parent / "shared")
    return tree


def main() -> None:
    """Draw faults, look for each, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--select", default="not slow", help="marker expression of the tests that run")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the faults to look for; default: all")
    parser.add_argument("--output", type=Path, help="file to append a line of JSON for each fault to")
    args = parser.parse_args()
    found = total = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        tree = copy_tree(Path(folder))
        for number, fault in enumerate(draw(args.seed, args.count)):
            if args.only and number not in args.only:
                continue
            test, seconds = find(fault, tree, args.select)
            found, total = found + bool(test), total + 1
            outcome = "found" if test else "NOT FOUND"
            print(f"{number:3} {outcome}, {seconds:.0f} s: {fault.kind} {fault.path}:{fault.line}")
            print(f"    - {fault.before}\n    + {fault.after.strip()}\n    {test}", flush=True)
            if args.output:
                with args.output.open("a", encoding="utf-8") as file:
                    record = {"number": number, **fault._asdict(), "test": test, "seconds": round(seconds)}
                    file.write(json.dumps(record) + "\n")
    print(f"{found} of {total} faults found")


if __name__ == "__main__":
    main()
