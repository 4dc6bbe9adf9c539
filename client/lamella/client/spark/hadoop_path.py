"""Locations of manifests as Spark's file system layer writes them, and the few that it cannot read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.layout.location import parse

#: What a local path is normalised for.
_UNUSUAL: Final = re.compile(r"//|/\.|/$|\0")


def hadoop_path(location: str) -> str:
    """The text for ``org.apache.hadoop.fs.Path``: nothing escaped, ``s3://`` as ``s3a://``.

    Raises:
        InvalidRequest: a location that Hadoop would read as another one (``//``, ``.`` or ``..`` within an S3 key),
            or that only this process can see (``memory://``).
    """
    if location.startswith("file:///") and not _UNUSUAL.search(location, 7):
        return location
    at = parse(location)
    if at.scheme == "file":
        return f"file://{at.path}"
    if at.scheme == "s3":
        if any(part in ("", ".", "..") for part in at.path.split("/")):
            raise InvalidRequest(
                f"Spark cannot name {location!r}: Hadoop removes empty parts, '.' and '..' from a path",
                location=location,
            )
        return f"s3a://{at.path}"
    raise InvalidRequest(f"Spark cannot read {location!r}: no executor can see it", location=location)


def refuse_hidden(locations: Iterable[str]) -> None:
    """Raise InvalidRequest when Spark's file index would leave out a file because of its name.

    Its rule: a name that starts with ``.``, or with ``_`` and holds no ``=``. It drops such files without a word.
    """
    for location in locations:
        name = location.rpartition("/")[2]
        if name.startswith(".") or (name.startswith("_") and "=" not in name):
            raise InvalidRequest(
                f"Spark's file index leaves out {location!r} because of its name; rename it and register it again",
                location=location,
            )
