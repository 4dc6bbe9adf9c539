"""Locations: how what a user types becomes the one spelling that manifests hold."""

from __future__ import annotations

import posixpath
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidRequest

#: URL schemes by the store that serves them; Hadoop's names for S3 are read too.
SCHEMES: Final = {"file": "file", "memory": "memory", "s3": "s3", "s3a": "s3", "s3n": "s3"}


class Location(msgspec.Struct, frozen=True):
    """A parsed location: the scheme, and the path in the form of that store.

    ``file``: an absolute path; ``memory``: a path with a leading slash; ``s3``: ``bucket/key``.
    """

    scheme: str
    path: str

    def __str__(self) -> str:
        if self.scheme == "memory":
            return "memory:/" + self.path
        return f"{self.scheme}://{self.path}"


def parse(text: str) -> Location:
    """Read a location. Local paths lose ``.``, ``..``, doubled and trailing slashes; S3 keys are taken as they are.

    Raises:
        InvalidRequest: relative path, unknown scheme, a host in a file URL, no bucket, a NUL byte.
    """
    if "\0" in text:
        raise InvalidRequest(f"a location cannot hold a NUL byte: {text!r}", location=text)
    scheme, separator, rest = text.partition(":")
    if not separator or "/" in scheme:
        scheme, rest = "file", text
    known = SCHEMES.get(scheme.lower())
    if known is None:
        raise InvalidRequest(f"no store serves {text!r}; known: {sorted(SCHEMES)}", location=text)
    if known == "s3":
        path = rest.removeprefix("//")
        if path is rest or not path.partition("/")[0]:
            raise InvalidRequest(f"not an S3 location: {text!r}; write s3://bucket/key", location=text)
        return Location(known, path)
    if known == "memory":
        return Location(known, _normal("/" + rest.removeprefix("//")))
    path = rest.removeprefix("//") if rest.startswith("//") and separator else rest
    if not path.startswith("/"):
        raise InvalidRequest(f"not an absolute path or URL: {text!r}", location=text)
    return Location(known, _normal(path))


def normal(text: str) -> str:
    """The one spelling of a location; raises as :func:`parse` does."""
    return str(parse(text))


def _normal(path: str) -> str:
    if path.startswith("/") and "//" not in path and "/." not in path and (not path.endswith("/") or path == "/"):
        return path  # nothing that normpath would change
    return "/" + posixpath.normpath(path).lstrip("/")
