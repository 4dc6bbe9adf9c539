"""The metadata service: HTTP over the snapshot core, and the state behind it."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def release() -> str:
    """The version of the installed distribution."""
    try:
        return version("lamella")
    except PackageNotFoundError:
        return "unreleased"
