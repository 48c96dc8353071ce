"""Print the warnings of libraries on the terminal, except those of Apache Beam."""

import logging
from pathlib import Path


def print_library_warnings() -> None:
    """Print warnings of libraries to stderr; not those of Apache Beam, whose errors a command reports itself.

    Without [gcp], Beam calls `logging.warning` when it is imported. That prints the warning, and where the root logger
    has no handler, it also adds one, which prints the messages of all loggers from then on.
    """
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    handler.addFilter(lambda record: "apache_beam" not in Path(record.pathname).parts)
    logging.getLogger().addHandler(handler)
