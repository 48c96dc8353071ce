"""Configurations of commands: frozen dataclasses whose fields have the names of flags.

The fields define the defaults of the flags.
"""

import argparse
import dataclasses
from typing import Any, Self


class FlagConfig:
    """Base class of frozen dataclasses created from the flags of a command; `__post_init__` validates them."""

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Self:
        """Return the configuration of parsed flags; flags without a field are ignored.

        Raises:
            The errors of `__post_init__` of the class.
        """
        return cls(**flag_values(cls, args))


def flag_values(config: type[Any], args: argparse.Namespace) -> dict[str, Any]:
    """Return the values of flags by the field names of a dataclass; lists are converted to tuples."""
    values = {field.name: getattr(args, field.name) for field in dataclasses.fields(config) if field.name in args}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
