"""Paths as they are typed, made into what the service can resolve."""

from __future__ import annotations

from pathlib import Path


def location_of(text: str) -> str:
    """A URL stays as it is; a path is made absolute, since the service has another working directory.

    A slash at the end is kept: it says that a directory is meant.
    """
    if "://" in text:
        return text
    absolute = str(Path(text).expanduser().absolute())
    return absolute + "/" if text.endswith("/") and not absolute.endswith("/") else absolute
