"""Which release of Lamella this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """The version of the installed distribution."""
    try:
        return version("lamella")
    except PackageNotFoundError:
        return "unreleased"
