"""The table of prices, `prices.toml`: what is in it, and what is wrong with one that a user edited.

This file imports neither Beam nor TensorFlow.
"""

import datetime
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.errors import SubmitError

DEFAULT_FILE = Path(__file__).with_name("prices.toml")
DATAFLOW = ("vcpu_hour", "memory_gb_hour", "disk_gb_hour", "shuffle_gb")
STORAGE = ("gb_month", "thousand_writes")


class Price(NamedTuple):
    """A line of the table.

    Attributes:
        price: dollars per unit.
        spot: price of a preemptible unit; None if not offered or unknown.
        read: the day it was looked up.
        source: where.
        verified: whether the seller's own page was at hand.
    """

    price: float
    spot: float | None
    read: datetime.date
    source: str
    verified: bool


class Prices(NamedTuple):
    """The table: prices by name of each group; `path` is the file they come from."""

    path: str
    currency: str
    region: str
    dataflow: dict[str, Price]
    storage: dict[str, Price]
    accelerator: dict[str, Price]


def load_prices(path: str | None) -> Prices:
    """Read the table of prices of beambert, or another.

    Raises:
        SubmitError: no such file, no TOML, or a line that is missing or not understood; the message names it.
    """
    file = Path(path) if path else DEFAULT_FILE
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SubmitError(f"--prices {file} does not exist; check the path") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SubmitError(f"--prices {file} cannot be read ({error}); give a TOML file like {DEFAULT_FILE}") from error
    groups = {}
    for group, required in (("dataflow", DATAFLOW), ("storage", STORAGE), ("accelerator", ())):
        table = content.get(group, {})
        for name in required:
            if name not in table:
                raise SubmitError(f"--prices {file} has no [{group}.{name}]; copy it from {DEFAULT_FILE}")
        groups[group] = {name: _price(f"{file}: [{group}.{name}]", line) for name, line in table.items()}
    return Prices(str(file), str(content.get("currency", "USD")), str(content.get("region", "")), **groups)


def _price(where: str, line: Any) -> Price:
    if not isinstance(line, dict):
        raise SubmitError(f"--prices {where} is no table; give it price, read and source")
    price: Any = line.get("price")
    spot: Any = line.get("spot")
    for name, value in (("price", price), ("spot", spot)):
        optional = name == "spot" and value is None
        if not optional and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
            raise SubmitError(f"--prices {where} has {name} = {value!r}; give dollars, such as {name} = 1.20")
    read = line.get("read")
    if not isinstance(read, datetime.date):
        raise SubmitError(f"--prices {where} has read = {read!r}; give the day it was looked up, such as 2026-11-21")
    if not line.get("source"):
        raise SubmitError(f"--prices {where} has no source; say where the price comes from")
    return Price(float(price), spot, read, str(line["source"]), bool(line.get("verified", False)))
