"""Load and validate the price table, `prices.toml`.

This file imports neither Beam nor TensorFlow.
"""

import datetime
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from beambert.pipelines.errors import SubmitError

DEFAULT_FILE = Path(__file__).with_name("prices.toml")
DATAFLOW = ("vcpu_hour", "memory_gb_hour", "disk_gb_hour", "shuffle_gb")
STORAGE = ("gb_month", "thousand_writes")


class Price(NamedTuple):
    """A price of the table.

    Attributes:
        price: US dollars per unit.
        spot: spot price per unit; None where not offered or unknown.
        read: date of the look-up.
        source: source of the price.
        verified: whether the price was checked against the provider's price page.
    """

    price: float
    spot: float | None
    read: datetime.date
    source: str
    verified: bool


class Prices(NamedTuple):
    """The price table: prices by name for each group; `path` is its file."""

    path: str
    currency: str
    region: str
    dataflow: dict[str, Price]
    storage: dict[str, Price]
    accelerator: dict[str, Price]


def load_prices(path: str | None) -> Prices:
    """Load a price table.

    Args:
        path: a TOML file; None for `prices.toml` of this package.

    Raises:
        SubmitError: the file is missing or not valid TOML, or an entry is missing or invalid.
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
        if not isinstance(table, dict):
            raise SubmitError(f"--prices {file} has {group} = {table!r}; write tables such as [{group}.NAME]")
        for name in required:
            if name not in table:
                raise SubmitError(f"--prices {file} is missing [{group}.{name}]; copy it from {DEFAULT_FILE}")
        groups[group] = {name: _price(f"{file}: [{group}.{name}]", line) for name, line in table.items()}
    return Prices(str(file), str(content.get("currency", "USD")), str(content.get("region", "")), **groups)


def _price(where: str, line: Any) -> Price:
    if not isinstance(line, dict):
        raise SubmitError(f"--prices {where} is not a table; write price, read and source below its heading")
    price: Any = line.get("price")
    spot: Any = line.get("spot")
    for name, value in (("price", price), ("spot", spot)):
        optional = name == "spot" and value is None
        if not optional and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
            raise SubmitError(f"--prices {where} has {name} = {value!r}; use US dollars, such as {name} = 1.20")
    read = line.get("read")
    if not isinstance(read, datetime.date):
        raise SubmitError(f"--prices {where} has read = {read!r}; use the date of the look-up, such as 2026-11-21")
    if not line.get("source"):
        raise SubmitError(f'--prices {where} has no source; add source = "..."')
    return Price(float(price), spot, read, str(line["source"]), bool(line.get("verified", False)))
