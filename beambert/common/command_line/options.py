"""Options declared once: fields of a frozen dataclass with their type, range and flag.

    min_words: Annotated[int, Meta(ge=0, le=10_000), Flag("cleaning")] = 0

The description of the field under "Attributes:" in the docstring of the class is the help of the flag. `add_arguments`
makes the flags and `from_args` the options from their values. `check` holds constructors to the same types and ranges,
and msgspec, which reads them from the same field, manifests and mappings.
"""

import argparse
import dataclasses
import functools
import inspect
import math
import re
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from beambert.common import typed_json
from beambert.common.command_line.flags import Number, WholeNumber, boolean, in_quotes

T = TypeVar("T")

# Limits above every practical value, so that a typing error does not exhaust the memory.
PositiveInt = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
BatchSize = Annotated[int, msgspec.Meta(ge=1, le=1_048_576)]
SequenceLength = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
VocabularySize = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
PositiveFloat = Annotated[float, msgspec.Meta(gt=0)]
NonNegativeFloat = Annotated[float, msgspec.Meta(ge=0)]
ProperFraction = Annotated[float, msgspec.Meta(ge=0, lt=1)]

_KINDS = {bool: "true or false", str: "text", types.NoneType: "None"}


class Flag:
    """The flag of an option.

    Attributes:
        group: title of its group in the help; "" for a positional argument.
        name: name of the flag without dashes; "" if it has the name of the field.
        keywords: further arguments of `add_argument`. They replace those that follow from the field: help, default,
            type, choices, metavar.
    """

    def __init__(self, group: str, name: str = "", **keywords: Any) -> None:
        self.group, self.name, self.keywords = group, name, keywords

    @property
    def is_positional(self) -> bool:
        """Return whether it is a positional argument."""
        return not self.group


class Option(NamedTuple):
    """A field of a class of options.

    Attributes:
        name: name of the field.
        type: type with its `msgspec.Meta`, which an integer must have. It may be `| None`.
        flag: the flag; None for an option that is determined in another way.
        default: default of the field; None if it has none, or an empty one.
        description: description of the field in the docstring of the class.
    """

    name: str
    type: Any
    flag: Flag | None
    default: Any
    description: str

    @property
    def plain_type(self) -> Any:
        """Return the type without annotations and without None."""
        return _plain(self._value_type)

    @property
    def _value_type(self) -> Any:
        """Return the type of a value other than None, with its annotations."""
        plain = _plain(self.type)
        values = [part for part in get_args(plain) if part is not types.NoneType]
        return values[0] if _is_union(plain) and len(values) == 1 else self.type

    @property
    def flag_name(self) -> str:
        """Return the name of the flag, without dashes."""
        return (self.flag and self.flag.name) or self.name

    @property
    def shown_name(self) -> str:
        """Return the flag, or the metavar of a positional argument, for messages."""
        if self.flag and self.flag.is_positional:
            return str(self.flag.keywords.get("metavar", self.name))
        return f"--{self.flag_name}"

    def annotation(self, kind: type[T]) -> T | None:
        """Return the annotation of a type; None without one."""
        return next((extra for extra in get_args(self.type)[1:] if isinstance(extra, kind)), None)

    def keywords(self) -> dict[str, Any]:
        """Return the arguments of `add_argument` that follow from type, range and default."""
        given = self.flag.keywords if self.flag else {}
        kind = self.plain_type
        implied: dict[str, Any] = {"help": self.description.replace("%", "%%")}
        if not (self.flag and self.flag.is_positional):
            implied["default"] = self.default
        if get_origin(kind) is Literal:
            implied["choices"] = get_args(kind)
        elif get_origin(kind) is list:
            implied |= {"action": "extend", "nargs": "+"}
        elif kind is bool and self.default is False and "nargs" not in given:
            implied["action"] = "store_true"
        elif kind is bool and "choices" not in given:
            implied |= {"type": boolean, "metavar": "true|false"}
        elif kind is int:
            implied |= {"type": number_type(self._value_type), "metavar": "N"}
        elif kind is float:
            implied |= {"type": number_type(self._value_type), "metavar": "FRACTION"}
        return {**implied, **given}

    def requirement(self) -> str:
        """Return which values are valid, for messages."""
        return _requirement(self.type)


def number_type(kind: Any) -> WholeNumber | Number:
    """Return the argument type of a number whose type has its range, such as `PositiveInt`."""
    limits: Any = next((extra for extra in get_args(kind)[1:] if isinstance(extra, msgspec.Meta)), msgspec.Meta())
    if _plain(kind) is int:
        return WholeNumber(limits.ge, limits.le)
    least = next((bound for bound in (limits.ge, limits.gt) if bound is not None), -math.inf)
    most = next((bound for bound in (limits.le, limits.lt) if bound is not None), math.inf)
    return Number(least, most, least_too=limits.gt is None, most_too=limits.lt is None)


def _requirement(kind: Any) -> str:
    """Return which values a type has, for messages."""
    plain = _plain(kind)
    if get_origin(plain) is Literal:
        return f"one of {', '.join(get_args(plain))}" if len(get_args(plain)) > 1 else str(get_args(plain)[0])
    if plain in (int, float):
        return str(number_type(kind))
    if _is_union(plain):
        return " or ".join(map(_requirement, get_args(plain)))
    return _KINDS.get(plain, "a list" if get_origin(plain) in (list, tuple) else "an object")


def _plain(kind: Any) -> Any:
    """Return a type without annotations."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


@functools.cache
def options_of(cls: Any) -> tuple[Option, ...]:
    """Return the fields of a class of options; one that a subclass declares again is at its last declaration."""
    hints, descriptions = get_type_hints(cls, include_extras=True), _descriptions(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        for name in inspect.get_annotations(base):
            names.pop(name, None)
            names[name] = None
    options = []
    for name in names:
        flags = [extra for extra in get_args(hints[name])[1:] if isinstance(extra, Flag)]
        default = None if fields[name].default in (dataclasses.MISSING, "", ()) else fields[name].default
        options.append(Option(name, hints[name], flags[0] if flags else None, default, descriptions.get(name, "")))
    return tuple(options)


def _descriptions(cls: Any) -> dict[str, str]:
    """Return the descriptions under "Attributes:" in the docstrings of a class and its bases, by name."""
    docstrings = [inspect.cleandoc(base.__doc__ or "") for base in reversed(cls.__mro__)]
    sections = [docstring.partition("Attributes:\n")[2].partition("\n\n")[0] for docstring in docstrings]
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", "\n".join(sections), re.MULTILINE)
    return {name: " ".join(text.split()).removesuffix(".") for name, text in entries}


def group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Return the group of a parser with a title, which is added if it is new."""
    groups = {group.title: group for group in parser._action_groups}
    return groups.get(title) or parser.add_argument_group(title)


def add_groups(parser: argparse.ArgumentParser, *titles: str) -> None:
    """Add groups of flags, which the help shows in this order, before other groups."""
    for title in titles:
        group(parser, title)


def add_arguments(
    parser: argparse.ArgumentParser,
    cls: Any,
    has_flag: Callable[[str], bool] = lambda _: True,
    **keywords: Mapping[str, Any],
) -> None:
    """Add the flags of a class of options and of the classes of its fields.

    Args:
        parser: the parser.
        cls: a dataclass.
        has_flag: returns whether the command has the flag of a field.
        **keywords: further arguments of `add_argument` and `group`, by field, for what only the command knows.
    """
    for option in options_of(cls):
        if dataclasses.is_dataclass(option.type):
            add_arguments(parser, option.type, has_flag, **keywords)
        elif option.flag and has_flag(option.name):
            arguments = {**option.keywords(), **keywords.get(option.name, {})}
            title = arguments.pop("group", option.flag.group)
            if title:
                group(parser, title).add_argument(f"--{option.flag_name}", **arguments)
            else:
                parser.add_argument(option.name, **arguments)


def from_args(cls: Callable[..., T], args: argparse.Namespace, **values: Any) -> T:
    """Return options with the values of their flags; a flag without a value leaves the default of its field.

    Args:
        cls: a dataclass.
        args: the parsed flags.
        **values: options that are determined in another way. They replace the values of flags.

    Raises:
        The errors of `__post_init__` of the class.
    """
    for option in options_of(cls):
        if option.name in values:
            continue
        if dataclasses.is_dataclass(option.type):
            values[option.name] = from_args(option.plain_type, args)
        elif option.flag and (value := getattr(args, option.flag_name, None)) is not None:
            is_tuple = isinstance(value, list) and get_origin(option.plain_type) is tuple
            values[option.name] = tuple(value) if is_tuple else value
    return cls(**values)


def from_mapping(cls: type[T], fields: T | Mapping[str, Any] | None, where: str, error: type[Exception]) -> T:
    """Return options from a mapping, as Beam YAML has them.

    Args:
        cls: a dataclass.
        fields: values by field; None for the defaults. An instance of the class is returned as it is.
        where: name of the mapping, for messages.
        error: class of the error.

    Raises:
        error: it is no mapping, a field is unknown, or its value is invalid.
    """
    if isinstance(fields, cls):
        return fields
    if isinstance(fields, Mapping):
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if unknown := [name for name in fields if name not in known]:
            raise error(f"{where}.{unknown[0]} is unknown; choose from {', '.join(known)}")
    try:
        return typed_json.convert({} if fields is None else fields, cls, where)
    except typed_json.JsonError as invalid:
        raise error(str(invalid)) from invalid


def check(options: Any, error: type[Exception]) -> None:
    """Check the types and ranges of all options, for `__post_init__`.

    Args:
        options: an instance of a dataclass.
        error: class of the error.

    Raises:
        error: a value has the wrong type or is out of range.
    """
    for option in options_of(options.__class__):
        value = getattr(options, option.name)
        if dataclasses.is_dataclass(option.type):
            is_valid = type(value) is option.type
        else:
            is_valid = _is_valid(value, option.type)
        if not is_valid:
            shown = in_quotes(value) if isinstance(value, str) else repr(value)
            raise error(f"invalid {option.shown_name} {shown}: must be {option.requirement()}")


def _is_valid(value: object, kind: Any) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    try:
        # A float of NumPy is a subclass, which msgspec does not take.
        msgspec.convert(float(value) if isinstance(value, float) else value, kind)
    except msgspec.ValidationError:
        return False
    return True
