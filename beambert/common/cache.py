"""The directory of downloads and of copies of remote files."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory: that of the variable BEAMBERT_CACHE, else `beambert` in the user's cache directory."""
    base = os.environ.get("BEAMBERT_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "beambert"
    return Path(base).expanduser()
