"""Record the package versions of a build, and check that character rules match."""

import importlib.metadata
import platform
import unicodedata

from beambert.common.imports import is_installed
from beambert.pipelines.errors import DatasetError
from beambert.tokenizer.normalization import CHARACTER_RULES


def versions(file_format: str = "tfrecord") -> dict[str, str]:
    """Return the versions of Python, its Unicode data, and the packages that can affect results.

    Args:
        file_format: Format of the shards; "array_record" has a package of its own. "corpus" for a corpus, whose text
            may come from web pages.
    """
    packages = ["beambert", "apache-beam", "numpy", "pyarrow", "sentencex"]
    if file_format == "corpus" and is_installed("resiliparse"):
        packages.append("resiliparse")
    if file_format == "array_record":
        packages.append("array-record")
    package_versions = {package: importlib.metadata.version(package) for package in packages}
    return {"python": platform.python_version(), "unicode": unicodedata.unidata_version, **package_versions}


def require_same_rules(character_rules: str, made_by: str) -> None:
    """Raise DatasetError if this Python splits words by other Unicode rules than existing data.

    Args:
        character_rules: Value of `beambert.tokenizer.normalization.CHARACTER_RULES` that made the data.
        made_by: Where that value comes from, for the message.
    """
    if character_rules != CHARACTER_RULES:
        raise DatasetError(
            f"Python {platform.python_version()} on this machine uses {CHARACTER_RULES}, but {made_by} uses "
            f"{character_rules}, which splits some words differently; use the same Python version for both"
        )
