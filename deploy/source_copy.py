"""Copy the source of this package, from which `submit tpu` and `submit dataflow` build packages."""

import shutil
from pathlib import Path

SOURCE = Path(__file__).parents[2]


def copy_source(destination: Path) -> Path:
    """Copy what a build reads from the checkout; return the directory.

    A build writes into its directory, and would include the files that an earlier one left in the checkout.

    Args:
        destination: a new directory.
    """
    destination.mkdir()
    for path in SOURCE.iterdir():
        if (path / "__init__.py").is_file():
            shutil.copytree(
                path, destination / path.name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.so")
            )
        elif path.suffix in (".py", ".toml", ".md") or path.name == "LICENSE":
            shutil.copy(path, destination)
    return destination
