"""Names of namespaces, tables, tags and keys, and the locations that tables and files may have.

A namespace may have levels (``sales.eu``), so ``sales.eu.orders`` is table ``orders`` in namespace ``sales.eu``; levels
are just part of the name. A table's name has none. Where a snapshot is requested, a UUID is an id and anything else a
tag, so a tag cannot be a UUID.

Location rules apply to files that are added to a table, or read in order to be added. Blocks that a table has already
stay: a block that was registered before a rule was made is pruned and read as before. But it gets no signed URL, cannot
come back by a rollback, and is not deleted by a clean-up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from lamella.service.catalog.records import BRANCH_SIGN, MAX_NAME_LENGTH, main_name
from lamella.service.config.settings import ENV_PREFIX, Settings
from lamella.snapshot.errors import InvalidRequest, LocationRefused
from lamella.snapshot.ids import canonical_id
from lamella.snapshot.job_kinds import JobKind
from lamella.snapshot.manifest import Block
from lamella.snapshot.storage import AllLocations, AllowedLocations, TableLocations, check_prefix
from lamella.snapshot.vacuum import foreign_table
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import RefusedFile

Kind = Literal["namespace", "table", "view", "tag", "branch", "schedule", "key"]

#: No leading dash, since names are used in command lines.
_PART: Final = r"[A-Za-z0-9_][A-Za-z0-9_-]*"
_PATTERNS: Final[dict[Kind, re.Pattern[str]]] = {
    "namespace": re.compile(rf"{_PART}(?:\.{_PART})*"),
    "table": re.compile(_PART),
    "view": re.compile(_PART),
    "tag": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*"),
    "branch": re.compile(_PART),
    "schedule": re.compile(_PART),
    "key": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*"),
}
_RULES: Final[dict[Kind, str]] = {
    "namespace": "letters, digits, '_' and '-' (not first) are allowed, and single dots between its levels",
    "table": "letters, digits, '_' and '-' (not first) are allowed",
    "view": "letters, digits, '_' and '-' (not first) are allowed",
    "tag": "letters, digits, '_', '-' and '.' (the last two not first) are allowed, and it cannot be a UUID",
    "branch": "letters, digits, '_' and '-' (not first) are allowed, and it cannot be a UUID or a number",
    "schedule": "letters, digits, '_' and '-' (not first) are allowed",
    "key": "letters, digits, '_', '-' and '.' (the last two not first) are allowed",
}


def check_name(kind: Kind, name: str) -> str:
    """Return ``name``. Names are case-sensitive.

    Raises:
        InvalidRequest: empty, too long, or with other characters; for a tag or branch, also a UUID in any spelling, for
            a branch, a number.
    """
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidRequest(
            f"a {kind} name has at most {MAX_NAME_LENGTH} characters, not {len(name)}", **{kind: name[:MAX_NAME_LENGTH]}
        )
    is_other = (kind in ("tag", "branch") and canonical_id(name) is not None) or (kind == "branch" and name.isdigit())
    if _PATTERNS[kind].fullmatch(name) is None or is_other:
        raise InvalidRequest(f"{name!r} is not a {kind} name: {_RULES[kind]}", **{kind: name})
    return name


def require_table(name: str) -> None:
    """Raise InvalidRequest for the name of a branch, where the table with all its branches is meant."""
    if BRANCH_SIGN in name:
        raise InvalidRequest(
            f"{name} is a branch, and this is done to a table: name {main_name(name)}, or drop the branch", table=name
        )


def split_name(table: str) -> tuple[str, str]:
    """Return the namespace and the name of ``namespace.table``. Raises InvalidRequest."""
    namespace, _, name = table.rpartition(".")
    if not namespace:
        raise InvalidRequest(f"{table!r} is not namespace.table")
    return namespace, name


def require_own(warehouse: Warehouse, table_id: str, location: str) -> None:
    """Raise InvalidRequest for a file in another table's folder.

    That table's clean-up looks only at its own snapshots, and would delete a file that this one needs.
    """
    other = foreign_table(warehouse, table_id, location)
    if other is not None:
        raise InvalidRequest(f"the file belongs to another table, {other}; copy it", location=location, table_id=other)


def refused_foreign(warehouse: Warehouse, table_id: str, locations: Iterable[str]) -> list[RefusedFile]:
    """Return the refusals of the files in other tables' folders."""
    refused = []
    for location in locations:
        try:
            require_own(warehouse, table_id, location)
        except InvalidRequest as error:
            refused.append(RefusedFile(path=location, code=error.code, reason=error.message))
    return refused


#: Matches every namespace.
_EVERY: Final = "*"


class LocationRules:
    """Location rules of the settings. Without ``allowed_locations`` there are rules only if ``auth`` is on.

    Raises:
        InvalidRequest: an invalid prefix.
    """

    def __init__(self, settings: Settings, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._root = settings.warehouse_url
        given = settings.allowed_locations
        self._on = given is not None or settings.auth
        self._prefixes = given or {}
        check_rules(settings)

    def of(self, namespace: str, table_id: str | None) -> AllowedLocations:
        """Return the allowed locations of a table; ``table_id`` None: a table that does not exist yet."""
        return self.listed(namespace, table_id) if self._on else AllLocations()

    def listed(self, namespace: str, table_id: str | None) -> AllowedLocations:
        """Return the table's own folder and the prefixes of the settings, also where tables may use any location."""
        own = None if table_id is None else self._warehouse.table_location(table_id)
        prefixes = (*self._prefixes.get(_EVERY, ()), *self._prefixes.get(namespace, ()))
        return TableLocations(self._root, own, prefixes)


def check_rules(settings: Settings) -> None:
    """Raise InvalidRequest for an invalid prefix in the settings."""
    for prefixes in (settings.allowed_locations or {}).values():
        for prefix in prefixes:
            try:
                check_prefix(prefix, settings.warehouse_url)
            except InvalidRequest as error:
                raise InvalidRequest(f"{ENV_PREFIX}ALLOWED_LOCATIONS: {error.message}") from error


def refused_locations(allowed: AllowedLocations, locations: Iterable[str]) -> tuple[list[str], list[RefusedFile]]:
    """Return the allowed locations, and refusals of the others."""
    accepted, refused = [], []
    for location in locations:
        try:
            allowed.require(location)
        except InvalidRequest as error:
            refused.append(RefusedFile(path=location, code=error.code, reason=error.message))
        else:
            accepted.append(location)
    return accepted, refused


def require_job_locations(allowed: AllowedLocations, kind: JobKind, arguments: Mapping[str, Any]) -> None:
    """Raise LocationRefused if a job of a table would write to a location that the table may not use."""
    for name in kind.location_arguments:
        if name in arguments:
            allowed.require_all_below(str(arguments[name]))


def require_allowed(allowed: AllowedLocations, blocks: Iterable[Block]) -> None:
    """Raise LocationRefused for the first block at a location that is not allowed; other checks report other errors."""
    for block in blocks:
        try:
            for location in (block.location, *(entry.location for entry in block.deletes)):
                allowed.require(location)
        except LocationRefused:
            raise
        except InvalidRequest:
            continue  # not a location: the block's own check reports it
