"""The rules of ``allowed_locations``: which places a request may name for a table.

They decide about what is to become part of a table, or is read in order to. Blocks that a table has already stay its
own: what was registered before a rule was made is pruned and read as ever, but it gets no signed URL, does not come
back by a rollback, and is not deleted by a clean-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from lamella.service.settings import ENV_PREFIX, Settings
from lamella.snapshot.errors import InvalidRequest, LocationRefused
from lamella.snapshot.jobs import JobKind
from lamella.snapshot.layout import AllowedPlaces, Anywhere, Places, check_prefix
from lamella.snapshot.manifest import Block
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import RefusedFile

#: Stands for every namespace.
_EVERY: Final = "*"


class LocationRules:
    """Made of settings once. Without ``allowed_locations`` there are rules only where requests are authenticated.

    Raises:
        InvalidRequest: a prefix that makes no allowed place.
    """

    def __init__(self, settings: Settings, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._root = settings.warehouse_url
        given = settings.allowed_locations
        self._on = given is not None or settings.auth
        self._prefixes = given or {}
        check_rules(settings)

    def of(self, namespace: str, table_id: str | None) -> Places:
        """The places of a table; ``table_id`` None: one that is not made yet."""
        if not self._on:
            return Anywhere()
        own = None if table_id is None else self._warehouse.table_location(table_id)
        prefixes = (*self._prefixes.get(_EVERY, ()), *self._prefixes.get(namespace, ()))
        return AllowedPlaces(self._root, own, prefixes)


def check_rules(settings: Settings) -> None:
    """Raise InvalidRequest for a prefix among the settings that makes no allowed place."""
    for prefixes in (settings.allowed_locations or {}).values():
        for prefix in prefixes:
            try:
                check_prefix(prefix, settings.warehouse_url)
            except InvalidRequest as error:
                raise InvalidRequest(f"{ENV_PREFIX}ALLOWED_LOCATIONS: {error.message}") from error


def refused_places(places: Places, locations: Iterable[str]) -> tuple[list[str], list[RefusedFile]]:
    """The locations that may be used, and what is said of the others."""
    allowed, refused = [], []
    for location in locations:
        try:
            places.require(location)
        except InvalidRequest as error:
            refused.append(RefusedFile(path=location, code=error.code, reason=error.message))
        else:
            allowed.append(location)
    return allowed, refused


def require_job_places(places: Places, kind: JobKind, arguments: Mapping[str, Any]) -> None:
    """Raise LocationRefused when a job of a table would write where the table may not have files."""
    for name in kind.location_arguments:
        if name in arguments:
            places.require_all_below(str(arguments[name]))


def require_places(places: Places, blocks: Iterable[Block]) -> None:
    """Raise LocationRefused for the first block that may not be where it is; other mistakes are told elsewhere."""
    for block in blocks:
        try:
            places.require(block.location)
        except LocationRefused:
            raise
        except InvalidRequest:
            continue  # no location at all: the block's own check says so
