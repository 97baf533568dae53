"""Where build products live: outside the checkout, so that a fresh clone starts warm."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return the cache directory, created if needed.

    ``NPU_PLATFORM_CACHE`` wins; otherwise ``$XDG_CACHE_HOME/npu-platform``, and
    ``~/.cache/npu-platform`` where that is not set either (XDG Base Directory rules).
    The Makefile computes the same path for the virtual environment.
    """
    explicit = os.environ.get("NPU_PLATFORM_CACHE")
    if explicit:
        path = Path(explicit)
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        path = (Path(base) if base else Path.home() / ".cache") / "npu-platform"
    path.mkdir(parents=True, exist_ok=True)
    return path
