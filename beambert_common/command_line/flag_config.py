"""Configurations of commands: frozen dataclasses whose fields have the names of flags.

The fields hold the defaults, and the flags take them from there.
"""

import argparse
import dataclasses
from typing import Any, Self


class FlagConfig:
    """The base of a frozen dataclass that is made from the flags of a command; `__post_init__` checks it."""

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Self:
        """Return the configuration that parsed flags name; flags of other commands are left out.

        Raises:
            as `__post_init__` of the class does.
        """
        return cls(**flag_values(cls, args))


def flag_values(config: type[Any], args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the flags that have the names of fields of a dataclass; a list becomes a tuple."""
    values = {field.name: getattr(args, field.name) for field in dataclasses.fields(config) if field.name in args}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
