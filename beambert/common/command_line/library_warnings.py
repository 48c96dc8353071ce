"""Print the warnings of libraries on the terminal, except those of Apache Beam."""

import logging
from pathlib import Path


def print_library_warnings() -> None:
    """Print warnings to stderr that no handler takes, as `logging` does; not those of Apache Beam.

    Without [gcp], Beam calls `logging.warning` when it is imported. That prints the warning, and where the root logger
    has no handler, it also adds one, which prints the messages of all loggers from then on.
    """
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))

    def is_printed(record: logging.LogRecord) -> bool:
        if "apache_beam" in Path(record.pathname).parts:
            return False
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(other is not handler for other in logger.handlers):
                return False
            logger = logger.parent
        return True

    handler.addFilter(is_printed)
    logging.getLogger().addHandler(handler)
