"""What a build ran with, for its manifest."""

import importlib.metadata
import platform
import unicodedata


def versions() -> dict[str, str]:
    """Versions of Python, its Unicode data, and the packages that results can depend on."""
    packages = ("beambert", "apache-beam", "numpy", "pyarrow", "sentencex")
    found = {package: importlib.metadata.version(package) for package in packages}
    return {"python": platform.python_version(), "unicode": unicodedata.unidata_version, **found}
