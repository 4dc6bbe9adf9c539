"""What a source says of itself at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from lamella.snapshot.errors import LocationRefused
from lamella.snapshot.layout import Places
from lamella.snapshot.schema import Column
from lamella.snapshot.source.constants import Constants
from lamella.snapshot.wire import RefusedFile


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A data file. ``size_bytes`` and ``content_id`` as far as the source gives them.

    ``constants``: values that the source's log says every row of the file has. ``folders``: values that the folders on
    the way to the file name.
    ``in_file``: field ids of columns that must stand in the file, since readers would take them from elsewhere.
    """

    location: str
    size_bytes: int | None = None
    content_id: str | None = None
    constants: Constants = ()
    folders: Constants = ()
    in_file: frozenset[int] = frozenset()


class SourceSchema(msgspec.Struct, frozen=True, kw_only=True):
    """One of a source's schemas. The ids of ``columns`` are the source's field ids (0: it knows columns by name)."""

    schema_id: int
    columns: tuple[Column, ...]


class SourceState(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one version. ``identity``: the source's own id, so that it is not taken for another one.

    ``refused``: files that belong to it and cannot be part of a table. ``schemas``: its schemas in the order that it
    had them, the current one last; empty: it declares none. ``numbers``: the field ids of columns, by their paths in
    files that do not number them. ``above``: values that folders above the root of a directory name.
    """

    files: tuple[SourceFile, ...]
    version: str | None = None
    identity: str | None = None
    refused: tuple[RefusedFile, ...] = ()
    schemas: tuple[SourceSchema, ...] = ()
    numbers: Mapping[tuple[str, ...], int] = {}
    above: Constants = ()


def outside(places: Places, locations: Iterable[str]) -> tuple[RefusedFile, ...]:
    """What is said of files of a source that lie where the table may have none."""
    reason = "the table may use no file there"
    return tuple(
        RefusedFile(path=location, code=LocationRefused.code, reason=reason)
        for location in locations
        if not places.allows(location)
    )
