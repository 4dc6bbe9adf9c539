"""A table's source as properties of the table, which only the service sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.layout import normal
from lamella.snapshot.wire import ExternalSource

PREFIX: Final = "lamella.source."
KIND: Final = PREFIX + "kind"
#: The source's own version when the table last changed, and its id.
VERSION: Final = PREFIX + "version"
IDENTITY: Final = PREFIX + "id"
#: How many files of the source are not in the table.
REFUSED: Final = PREFIX + "refused"
#: JSON objects: our column id by field id, our schema id by the source's schema id (Iceberg).
FIELDS: Final = PREFIX + "fields"
SCHEMAS: Final = PREFIX + "schemas"

_MEMBERS: Final = ("kind", "location", "catalog", "table", "path_columns")
_SOURCE: Final = msgspec.json.Decoder(ExternalSource)  # made here: threads must not meet the type for the first time


def source_of(properties: Mapping[str, str]) -> ExternalSource | None:
    """A table's source, None when it has none; raises InvalidRequest for properties that make no source."""
    if KIND not in properties:
        return None
    given: dict[str, Any] = {name: properties[PREFIX + name] for name in _MEMBERS if PREFIX + name in properties}
    try:
        return _SOURCE.decode(msgspec.json.encode(given))
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the table's source cannot be read: {error}") from error


def source_properties(source: ExternalSource) -> dict[str, str]:
    """The properties of a table that follows a source; its location in the one spelling.

    Raises:
        InvalidRequest: a member that is missing, or means nothing for this kind.
    """
    by_name = source.catalog is not None or source.table is not None
    if by_name and (source.kind != "iceberg" or source.catalog is None or source.table is None):
        raise InvalidRequest("catalog and table are given together, for an Iceberg table")
    if by_name == (source.location is not None):
        raise InvalidRequest("a source has a location, or (Iceberg) a catalog and a table")
    if source.path_columns != "refuse" and source.kind != "directory":
        raise InvalidRequest("path_columns is for directories")
    given = msgspec.to_builtins(source)
    if source.location is not None:
        given["location"] = normal(source.location)
    return {PREFIX + name: str(value) for name, value in given.items()}


def refuse_added(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a table whose files are its source's: what else is added would go again."""
    if KIND in properties:
        raise InvalidRequest("the table follows a source: change the files there, and refresh the table")


def refuse_columns(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a table that has the columns of its source."""
    if properties.get(KIND, "directory") != "directory":
        raise InvalidRequest("the table has the columns of its source: change them there, and refresh the table")


def refuse_properties(properties: Mapping[str, str]) -> None:
    """Raise InvalidRequest for properties that a request may not set."""
    for name in properties:
        if name.startswith(PREFIX):
            raise InvalidRequest(f"{name!r} is set by the service: create the table with a source", property=name)
