"""Test that each command resolves its flags once: no `argparse.Namespace` is passed further or changed."""

import ast
import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from beambert import cli
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.trainers.pretraining.options import PretrainOptions
from tests.conftest import ROOT

# Functions that convert flags into a frozen dataclass, and the modules that may have them. Modules in folders named
# `commands` may have them too.
RESOLVERS = ("configure", "from_args")
PLACES = ("command.py", "config.py", "demo.py", "options.py")
# Functions that read flags before the configuration exists, and `__call__` of an argparse action.
EXCEPTIONS = {
    "beambert/common/command_line/path_flags.py": ("bad_path", "typed_paths"),
    "beambert/common/command_line/command.py": ("read", "require_all"),
    "trainers/pretraining/recipes.py": ("__call__",),
    "pipelines/commands/corpus_run.py": ("corpus_options",),
}


def product_files() -> Iterator[Path]:
    for package in ("beambert", *(path.name for path in (ROOT / "beambert").iterdir() if path.is_symlink())):
        yield from sorted((ROOT / package).rglob("*.py"))


def is_namespace(node: ast.AST | None) -> bool:
    return node is not None and "Namespace" in ast.unparse(node)


def takes_namespace(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the functions that take or return a Namespace, or have an argument named args."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if is_namespace(node.returns) or any(
                is_namespace(argument.annotation) or argument.arg == "args" for argument in arguments
            ):
                yield node.name


def changes_flags(tree: ast.AST) -> Iterator[str]:
    """Yield each assignment to an attribute of args, each call that may change args, and each new Namespace."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) in ("args", "command.args"):
                    yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            first = ast.unparse(node.args[0]) if node.args else ""
            if called.endswith("Namespace") or (called in ("setattr", "delattr", "vars") and first == "args"):
                yield ast.unparse(node)


def errors(path: str, code: str) -> list[str]:
    """Return a line for each function of a file that takes a Namespace but must not, and for each change of one."""
    tree = ast.parse(code)
    resolvers = RESOLVERS if path.endswith(PLACES) or "/commands/" in path else ()
    allowed = (*resolvers, *EXCEPTIONS.get(path, ()))
    lines = [f"{path}: {name} takes a Namespace" for name in takes_namespace(tree) if name not in allowed]
    return lines + [f"{path}: {change}" for change in changes_flags(tree)]


def test_no_namespace_below_the_commands_and_no_flag_is_changed():
    found = [
        line
        for path in product_files()
        for line in errors(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_exception_is_needed():
    for path, names in EXCEPTIONS.items():
        assert set(names) <= set(takes_namespace(ast.parse((ROOT / path).read_text(encoding="utf-8")))), path


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def run(args: argparse.Namespace) -> int: pass", "run takes a Namespace"),
        ("def _helper(path, *, flags: Namespace | None): pass", "_helper takes a Namespace"),
        ("def _helper(args): pass", "_helper takes a Namespace"),
        ("def parse(argv) -> argparse.Namespace: pass", "parse takes a Namespace"),
        ("def configure(args: argparse.Namespace): pass", "configure takes a Namespace"),
        ("def f():\n    args.output = 1", "args.output = 1"),
        ("def f():\n    args.steps += 1", "args.steps += 1"),
        ("def f():\n    setattr(args, 'output', 1)", "setattr(args, 'output', 1)"),
        ("def f():\n    vars(args)['output'] = 1", "vars(args)"),
        ("config = corpus_config(argparse.Namespace(vocab_file=None))", "argparse.Namespace(vocab_file=None)"),
    ],
)
def test_violations_are_found(code, says):
    assert any(says in line for line in errors("deploy/plan/training.py", code))


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_is_configured_by_a_frozen_dataclass(name):
    module = importlib.import_module(cli.COMMANDS[name][0])
    returned = module.configure.__annotations__["return"]
    if isinstance(returned, str):
        # Imported when the command runs, because it needs Beam.
        job = "pretraining_data_run" if name == "pretraining-data" else "corpus_run"
        returned = getattr(importlib.import_module(f"beambert.pipelines.commands.{job}"), returned)
    assert dataclasses.is_dataclass(returned)
    assert returned.__dataclass_params__.frozen


OF_FLAGS = [
    name
    for name in cli.COMMANDS
    if name not in ("build", "corpus", "pretraining-data", "vocab", "pretrain", "finetune", "tune")
]


@pytest.mark.parametrize("name", OF_FLAGS)
def test_every_flag_is_a_field_and_every_field_a_flag(name):
    """Compare flags and fields: a field without a flag would silently keep its default."""
    parser, module = cli.make_parser(name)
    flags = {action.dest for action in parser._actions} - {"help"}
    config = module.configure.__annotations__["return"]
    reads = dict.fromkeys(("extend-vocab", "quality train"), (ReadOptions,))
    nested = {"plan": (PretrainingDataOptions, PretrainOptions), **reads}.get(name, ())
    own = {field.name for field in dataclasses.fields(config)} - {"examples", "training", "read", "field_flags"}
    assert own <= flags
    assert flags - own <= {field.name for each in nested for field in dataclasses.fields(each)}
