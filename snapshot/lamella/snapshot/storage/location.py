"""Locations of objects, and the files that a URL or glob stands for."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from lamella.snapshot.errors import InvalidRequest, OtherTableFormat

#: URL schemes by the store that serves them; Hadoop's names for S3 are accepted too.
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
    """Parses a location. Local paths are normalized (``.``, ``..``, repeated and trailing slashes); S3 keys stay as
    they are.

    Raises:
        InvalidRequest: relative path, unknown scheme, a host in a file URL, no bucket, a NUL byte.
    """
    if "\0" in text:
        raise InvalidRequest(f"a location cannot contain a NUL byte: {text!r}", location=text)
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
    """Returns the normalized spelling of a location; raises as :func:`parse`."""
    return str(parse(text))


def _normal(path: str) -> str:
    if path.startswith("/") and "//" not in path and "/." not in path and (not path.endswith("/") or path == "/"):
        return path  # normpath would change nothing
    return "/" + posixpath.normpath(path).lstrip("/")


#: The suffix of data files below a folder.
SUFFIX: Final = ".parquet"

#: Folders that mark a table of another format, in which not every file counts, by format.
_LOGS: Final = {"_delta_log": "a Delta table", ".hoodie": "a Hudi table", "_ducklake": "a DuckLake table"}
_METADATA: Final = ".metadata.json"
_ICEBERG: Final = "an Iceberg table"
#: Formats whose tables can be followed.
_KINDS: Final = {"a Delta table": "delta", _ICEBERG: "iceberg"}

_MAGIC = re.compile(r"[*?\[]")


def has_magic(path: str) -> bool:
    """Returns whether the path contains a glob character."""
    return _MAGIC.search(path) is not None


def is_hidden(name: str) -> bool:
    """Returns whether one part of a path is hidden by Spark's rule; ``_part=1`` is a partition folder and therefore not
    hidden."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def is_data_file(below: str) -> bool:
    """Returns whether a path, relative to the named folder, is a data file."""
    return below.endswith(SUFFIX) and not any(is_hidden(part) for part in below.split("/") if part)


def glob_root(path: str) -> str:
    """Returns the longest folder of a glob without glob characters; it ends with a slash, or is empty."""
    parts = path.split("/")
    plain = next(i for i, part in enumerate(parts) if has_magic(part))
    return "/".join(parts[:plain]) + "/" if plain else ""


def refuse_other_formats(listed: Iterable[str], chosen: Iterable[str], otherwise: str = "") -> None:
    """Raise OtherTableFormat if a chosen location is part of another format's table.

    Only the table's log, which ``listed`` contains, tells which files count: a file that was deleted or rewritten may
    still exist. ``otherwise``: an alternative to following the table, for the message.
    """
    logs = {log[0]: (location, log[1]) for location in listed if (log := _log_of(location)) is not None}
    for location in chosen if logs else ():
        root = next((root for root in logs if location.startswith(root + "/")), None)
        if root is None:
            continue
        found_at, name = logs[root]
        follow = "tables of this format cannot be followed"
        if name in _KINDS:
            follow = f"lamella external create NAMESPACE.TABLE {_KINDS[name]} follows the table"
        raise OtherTableFormat(
            f"{found_at} is part of {name}: not all files in {root} are current. {follow}{otherwise}", location=root
        )


def _log_of(location: str) -> tuple[str, str] | None:
    """Returns the folder of the table whose log or metadata contains the location, and its format."""
    parts = location.split("/")[:-1]
    if location.endswith(_METADATA) and parts[-1:] == ["metadata"]:
        return "/".join(parts[:-1]), _ICEBERG
    number = next((number for number, part in enumerate(parts) if part in _LOGS), None)
    return None if number is None else ("/".join(parts[:number]), _LOGS[parts[number]])


class Glob:
    """A glob over slash-separated paths."""

    def __init__(self, pattern: str) -> None:
        parts = [part for part in pattern.split("/") if part]
        self._matchers = [part if part == "**" else re.compile(_regex(part), re.DOTALL) for part in parts]
        self._may_hide = [part[0] in "._" for part in parts]

    def selects(self, path: str) -> bool:
        """Returns whether the file matches, or is a data file below a folder that matches."""
        parts = [part for part in path.split("/") if part]
        return any(end == len(parts) or is_data_file("/".join(parts[end:])) for end in self._ends(parts))

    def _ends(self, parts: list[str]) -> set[int]:
        """Returns how many leading parts the whole pattern can match."""
        at = {0}
        for matcher, may_hide in zip(self._matchers, self._may_hide, strict=True):
            after: set[int] = set()
            for start in at:
                if isinstance(matcher, str):
                    after.add(start)
                    for end in range(start, len(parts)):
                        if is_hidden(parts[end]):
                            break
                        after.add(end + 1)
                elif start < len(parts) and (may_hide or not is_hidden(parts[start])):
                    after.update({start + 1} if matcher.fullmatch(parts[start]) else ())
            at = after
        return at


def _regex(part: str) -> str:
    """Converts one part of a glob to a pattern without backtracking: the text between two stars is matched at its first
    position, which leaves most for the rest."""
    pieces: list[str] = [""]
    at = 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "."
        elif char == "[":
            negated = part[at : at + 1] in ("!", "^")
            first = at + negated
            close = part.find("]", first + 1)
            if close < 0:
                pieces[-1] += re.escape(char)
                continue
            body = part[first:close].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
            body = re.sub(r"(&&|\|\||~~)", lambda m: "\\" + m.group()[0] + "\\" + m.group()[1], body)
            pieces[-1] += f"[{'^' if negated else ''}{body}]"
            at = close + 1
        else:
            pieces[-1] += re.escape(char)
    if len(pieces) == 1:
        return pieces[0]
    between = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1] if piece)
    return f"{pieces[0]}{between}.*{pieces[-1]}"
