"""The versions that a build ran with, for its manifest."""

import importlib.metadata
import platform
import unicodedata

from pipelines.errors import DatasetError
from tokenizer.normalization import CHARACTER_RULES


def versions() -> dict[str, str]:
    """Return the versions of Python, its Unicode data, and the packages that results can depend on."""
    packages = ("beambert", "apache-beam", "numpy", "pyarrow", "sentencex")
    package_versions = {package: importlib.metadata.version(package) for package in packages}
    return {"python": platform.python_version(), "unicode": unicodedata.unidata_version, **package_versions}


def require_same_rules(character_rules: str, made_by: str) -> None:
    """Raise DatasetError if this Python splits words by other rules than the data that its result is mixed with.

    Args:
        character_rules: `tokenizer.normalization.CHARACTER_RULES` as it was there.
        made_by: what has it, for the message.
    """
    if character_rules != CHARACTER_RULES:
        raise DatasetError(
            f"Python {platform.python_version()} here knows the characters of {CHARACTER_RULES}, {made_by} those of "
            f"{character_rules}, and some words would come out otherwise; use the same Python version for both"
        )
