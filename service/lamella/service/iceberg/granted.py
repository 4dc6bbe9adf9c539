"""Which folders on S3 an Iceberg client may use with a table: those of the table, and no others.

Clients choose the location of a table and the folders of its files, so these count only where the table may have files
by the settings. Rules of the settings are required here: where tables may use any location, a client would otherwise
get access to all that the service can reach.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lamella.service.maintenance.iceberg_files import ICEBERG_FOLDER
from lamella.service.tables.names import LocationRules
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.iceberg.table_metadata import Json
from lamella.snapshot.storage import normal
from lamella.snapshot.warehouse import Warehouse

#: Properties of a table that name folders of its files.
_FOLDERS: Final = (
    "write.metadata.path",
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
#: Policies of S3 give other characters a meaning.
_PLAIN: Final = re.compile(r"s3://[^*?$\[\]{}\"\\\x00-\x1f\x7f]+/")


class GrantedFolders(msgspec.Struct, frozen=True):
    """Locations on S3 that end with a slash. Every folder of ``written`` is in one of ``read``."""

    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()

    @property
    def buckets(self) -> tuple[str, ...]:
        """Return the buckets of all folders."""
        return tuple(dict.fromkeys(bucket_of(each) for each in self.read))


def bucket_of(location: str) -> str:
    """Return the bucket of a location on S3."""
    return location.removeprefix("s3://").partition("/")[0]


def granted_folders(
    rules: LocationRules, warehouse: Warehouse, namespace: str, table_id: str, metadata: Json | None, *, may_write: bool
) -> GrantedFolders:
    """Return the folders of a table. ``metadata``: None for a table that Iceberg clients do not commit to.

    The table's own folder has Lamella's manifests, so only the part of Iceberg clients may be written.
    """
    own = f"{warehouse.table_location(table_id).rstrip('/')}/"
    allowed = rules.listed(namespace, table_id)
    read, written = [own], []
    for location in () if metadata is None else _locations(metadata):
        try:
            folder = f"{normal(location).rstrip('/')}/"
            allowed.require_all_below(folder)
        except InvalidRequest:
            continue
        read.append(folder)
        if folder.startswith(f"{own}{ICEBERG_FOLDER}/") or not folder.startswith(own):
            written.append(folder)
    return GrantedFolders(_outermost(read), _outermost(written) if may_write else ())


def _locations(metadata: Json) -> Iterator[str]:
    yield str(metadata["location"])
    for name in _FOLDERS:
        given = metadata["properties"].get(name)
        if given:
            yield str(given)


def _outermost(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the folders on S3 that are in no other one."""
    plain = sorted({each for each in folders if _PLAIN.fullmatch(each)})
    return tuple(each for each in plain if not any(each != other and each.startswith(other) for other in plain))
