"""The metadata service: HTTP on top of the snapshot core, and its state."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def release() -> str:
    """Return the version of the installed distribution."""
    try:
        return version("lamella")
    except PackageNotFoundError:
        return "unreleased"
