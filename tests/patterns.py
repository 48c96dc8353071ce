"""Collect the regular expressions of the package and their uses, and generate adversarial text for each of them."""

import ast
import functools
import importlib
import itertools
import re
import re._constants as codes
import re._parser as parser
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.conftest import ROOT

PACKAGES = ("adaptation", "beambert", "bert_model", "deploy", "pipelines", "reporting", "tokenizer", "trainers")
METHODS = frozenset(["search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn"])
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_CATEGORIES = {
    codes.CATEGORY_DIGIT: "1",
    codes.CATEGORY_NOT_DIGIT: "a ",
    codes.CATEGORY_SPACE: " \t\n",
    codes.CATEGORY_NOT_SPACE: "a.1",
    codes.CATEGORY_WORD: "a1_A",
    codes.CATEGORY_NOT_WORD: " .\n",
}
# Characters that a negated class may accept.
_COMMON = "a1 .,\n\t\"'<>()[]{}-_=\\@&;:|é。"
# Number of characters of a class that are tried. More of them add time, but no new kind of text.
_CHARACTERS_TRIED = 4


def modules() -> Iterator[ModuleType]:
    """Yield every module of the package."""
    names = ["beambert"]
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not (path.parent / "__init__.py").exists():
                # The file is a script outside the packages.
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    for name in names:
        yield importlib.import_module(name)


def _patterns_in(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for item in itertools.chain(value, value.values()):
            yield from _patterns_in(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _patterns_in(item)


def compiled_patterns(module: ModuleType) -> dict[str, list[re.Pattern[Any]]]:
    """Return the compiled patterns of a module by name, including those in containers."""
    return {name: found for name, value in vars(module).items() if (found := list(_patterns_in(value)))}


class Uses(ast.NodeVisitor):
    """The uses of regular expressions in a module.

    Attributes:
        methods: the methods that are called on a compiled pattern, by its name.
        inline: (method, pattern, flags) of calls such as `re.sub("...", ...)`.
        dynamic: (function, source text of the pattern) of calls whose pattern is built at run time.
    """

    def __init__(self, module: ModuleType) -> None:
        self.methods: dict[str, set[str]] = {}
        self.inline: set[tuple[str, str | bytes, int]] = set()
        self.dynamic: set[tuple[str, str]] = set()
        self._module = module
        self._function: list[str] = []
        assert module.__file__
        self.visit(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function.append(node.name)
        self.generic_visit(node)
        self._function.pop()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        base = node.value
        while isinstance(base, ast.Subscript):
            base = base.value
        if node.attr in METHODS and isinstance(base, ast.Name) and base.id != "re":
            self.methods.setdefault(base.id, set()).add(node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and function.value.id == "re"
            and function.attr in METHODS | {"compile"}
            # Patterns that a module compiles at its top level are compiled by now.
            and (self._function or function.attr != "compile")
        ):
            pattern = node.args[0]
            if isinstance(pattern, ast.Constant):
                self.inline.add((function.attr, pattern.value, self._flags(node)))
            else:
                self.dynamic.add((f"{self._module.__name__}.{'.'.join(self._function)}", ast.unparse(pattern)))
        self.generic_visit(node)

    @staticmethod
    def _flags(node: ast.Call) -> int:
        flags = 0
        for argument in [*node.args[1:], *(keyword.value for keyword in node.keywords)]:
            for part in ast.walk(argument):
                if isinstance(part, ast.Attribute) and isinstance(flag := getattr(re, part.attr, None), re.RegexFlag):
                    flags |= flag
        return flags


def _accepted(pattern: Any, flags: int) -> list[str]:
    """Return characters that one item of a parsed pattern matches."""
    operation, argument = pattern
    if operation is codes.LITERAL:
        return [chr(argument)]
    if operation is codes.ANY:
        return list("a 1.")
    if operation is codes.NOT_LITERAL:
        return [character for character in _COMMON if character != chr(argument)][:_CHARACTERS_TRIED]
    assert operation is codes.IN
    negated = argument[0][0] is codes.NEGATE
    taken: list[str] = []
    for kind, value in argument[negated:]:
        if kind is codes.LITERAL:
            taken.append(chr(value))
        elif kind is codes.RANGE:
            taken += [chr(value[0]), chr(value[1])]
            if negated:
                taken += [c for c in _COMMON if value[0] <= ord(c) <= value[1]]
        elif kind is codes.CATEGORY:
            taken += list(_CATEGORIES[value])
    if not negated:
        # Take characters from the whole class: a large class may have its letters anywhere.
        step = max(1, len(taken) // _CHARACTERS_TRIED)
        return list(dict.fromkeys(taken[::step]))[: _CHARACTERS_TRIED + 1]
    return [c for c in _COMMON if c not in taken][:_CHARACTERS_TRIED]


def _sample(items: Any, flags: int, groups: dict[int, str]) -> str:
    """Return a short text that a sequence of parsed items matches, apart from assertions."""
    return "".join(_one(item, flags, groups) for item in items)


def _one(item: Any, flags: int, groups: dict[int, str]) -> str:
    operation, argument = item
    if operation in (codes.LITERAL, codes.ANY, codes.NOT_LITERAL, codes.IN):
        return _accepted(item, flags)[0]
    if operation is codes.SUBPATTERN:
        text = _sample(argument[3], flags, groups)
        if argument[0] is not None:
            groups[argument[0]] = text
        return text
    if operation is codes.ATOMIC_GROUP:
        return _sample(argument, flags, groups)
    if operation is codes.BRANCH:
        return _sample(argument[1][0], flags, groups)
    if operation in _REPEATS:
        return _sample(argument[2], flags, groups) * argument[0]
    if operation is codes.GROUPREF:
        return groups.get(argument, "")
    return ""


def _bodies(items: Any, flags: int) -> list[str]:
    """Return texts that the body of a repeat matches, and pairs of them."""
    if len(items) == 1 and items[0][0] in (codes.LITERAL, codes.ANY, codes.NOT_LITERAL, codes.IN):
        single = _accepted(items[0], flags)
        return [*single, *map("".join, itertools.permutations(single, 2))]
    texts = [_sample(items, flags, {})]
    if len(items) == 1 and items[0][0] is codes.BRANCH:
        texts = [_sample(branch, flags, {}) for branch in items[0][1][1]]
    elif len(items) == 1 and items[0][0] is codes.SUBPATTERN:
        return _bodies(items[0][1][3], flags)
    return [text for text in texts if text]


def _seeds(items: Any, prefix: str, flags: int, groups: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Yield (text before, repeated text) for every repeat of a pattern, and for every prefix of the pattern."""
    for place, item in enumerate(items):
        operation, argument = item
        if operation in _REPEATS:
            following = [*_following(items[place + 1 :], flags), ""]
            for body in _bodies(argument[2], flags):
                yield prefix, body
                yield "", prefix + body
                for other in following[:_CHARACTERS_TRIED]:
                    yield prefix, body + other
            yield from _seeds(argument[2], prefix, flags, groups)
        elif operation is codes.SUBPATTERN:
            yield from _seeds(argument[3], prefix, flags, groups)
        elif operation is codes.ATOMIC_GROUP:
            yield from _seeds(argument, prefix, flags, groups)
        elif operation in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _seeds(argument[1], prefix, flags, groups)
        elif operation is codes.BRANCH:
            for branch in argument[1]:
                yield from _seeds(branch, prefix, flags, groups)
        prefix += _one(item, flags, groups)
        yield "", prefix
    yield "", prefix


def _following(items: Any, flags: int) -> list[str]:
    """Return characters that may follow a repeat, to separate its runs."""
    for item in items:
        operation, argument = item
        if operation in (codes.LITERAL, codes.ANY, codes.NOT_LITERAL, codes.IN):
            return _accepted(item, flags)
        if operation in _REPEATS:
            return _bodies(argument[2], flags)
        if operation is codes.SUBPATTERN:
            return _following(argument[3], flags)
    return []


def adversarial_texts(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], Any]]:
    """Yield functions from a number of characters to a text of about that length on which a pattern backtracks."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    seen: set[tuple[str, str]] = set()
    for before, repeated in _seeds(tree, "", pattern.flags, {}):
        if repeated and (before, repeated) not in seen:
            seen.add((before, repeated))
            # With a line end, a pattern that ends in `$` does not match. Patterns of lines are also tried without one.
            for after in ("", "\n!"):
                yield functools.partial(_text, before, repeated, after, isinstance(pattern.pattern, bytes))


def _text(before: str, repeated: str, after: str, as_bytes: bool, size: int) -> str | bytes:
    text = before + repeated * ((size - len(before)) // len(repeated)) + after
    return text.encode("latin-1", "replace") if as_bytes else text
