"""Files of Iceberg clients: those that the metadata of a table names, and those that are deleted with a purged table.

Clients choose the names of their files, so nothing in a name tells whether one is in use. A file is in use if the
current metadata of any table of Iceberg clients names it: a table may have been registered from another one's metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.history.history import trusted_manifests
from lamella.snapshot.errors import InvalidRequest, LocationRefused, ManifestError, ObjectNotFound, TableNotFound
from lamella.snapshot.source import HOSTED, LOCATION
from lamella.snapshot.storage import AllowedLocations, Store, normal
from lamella.snapshot.warehouse import Warehouse

if TYPE_CHECKING:  # pyiceberg is loaded when it is used
    from lamella.snapshot.iceberg.manifest_entries import ManifestEntries

#: Below the table's folder: the files of Iceberg clients.
ICEBERG_FOLDER: Final = "iceberg"
_METADATA: Final = msgspec.json.Decoder(dict[str, Any])


class NamedFiles(NamedTuple):
    """Files that metadata names: data files, and all others."""

    data: set[str]
    others: set[str]


class IcebergFiles:
    """Reads which files tables of Iceberg clients have; only where each table may have files."""

    def __init__(
        self,
        catalog: Catalog,
        warehouse: Warehouse,
        store: Store,
        locations_of: Callable[[TableRecord], AllowedLocations],
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._store = store
        self._locations_of = locations_of
        self._manifests: ManifestEntries | None = None

    def metadata_file(self, record: TableRecord) -> str | None:
        """Return the metadata file of a table; None if Iceberg clients do not commit to it. Raises ObjectNotFound."""
        with trusted_manifests():
            properties = self._warehouse.head(record.pointer).properties
        return properties.get(LOCATION) if properties.get(HOSTED) else None

    def of(self, record: TableRecord) -> NamedFiles:
        """Return all files that the metadata of a table names, with the metadata; none for other tables.

        Raises:
            ObjectNotFound: a file of metadata is missing.
            ManifestError: one is damaged, or is where the table may have no files.
            StoreError: one cannot be read.
        """
        location = self.metadata_file(record)
        return NamedFiles(set(), set()) if location is None else self._named(record, location)

    def of_others(self, table_id: str, now_ms: int) -> set[str]:
        """Return the files of all tables but one; of dropped ones, until their removal.

        Raises:
            ManifestError, StoreError: they are unknown, since metadata cannot be read.
        """
        found: set[str] = set()
        for record in self._tables(now_ms):
            if record.table_id != table_id:
                try:
                    files = self.of(record)
                except ObjectNotFound as error:
                    name = f"{record.namespace}.{record.name}"
                    message = f"which files the Iceberg table {name} uses is unknown: {error.message}"
                    raise ManifestError(message, location=record.location) from error
                found |= files.data | files.others
        return found

    def _tables(self, now_ms: int) -> Iterator[TableRecord]:
        dropped = {each.record.table_id: each for each in self._catalog.dropped_before(now_ms + 1)}
        for table_id in self._catalog.tables_with_files():
            try:
                record = self._catalog.table_by_id(table_id)
                if record.branch_of is None:  # the metadata of a table names the files of its branches
                    yield record
            except TableNotFound:
                if table_id in dropped and not dropped[table_id].removal_scheduled:
                    yield dropped[table_id].record

    def _named(self, record: TableRecord, location: str) -> NamedFiles:
        allowed = self._locations_of(record)

        def read(path: str) -> bytes:
            allowed.require(normal(path))
            return self._store.read(normal(path))

        found = NamedFiles(set(), {location})
        try:
            for path, is_data in self._paths(_METADATA.decode(read(location)), read):
                try:
                    (found.data if is_data else found.others).add(normal(path))
                except InvalidRequest:
                    continue  # in a store that the service does not have: it deletes nothing there
        except (msgspec.DecodeError, KeyError, TypeError) as error:
            raise ManifestError(f"{location} is not the metadata of an Iceberg table", location=location) from error
        except LocationRefused as error:
            raise ManifestError(error.message, location=location) from error
        return found

    def _paths(self, metadata: dict[str, Any], read: Callable[[str], bytes]) -> Iterator[tuple[str, bool]]:
        """Yield the files that metadata names, and whether each is a data file."""
        from lamella.snapshot.iceberg.manifest_entries import DATA, ManifestEntries, Read

        if self._manifests is None:
            self._manifests = ManifestEntries()
        reader = Read(read, lambda _: None)  # each file is checked when it is read
        for each in metadata.get("metadata-log") or ():
            yield each["metadata-file"], False
        for each in (*(metadata.get("statistics") or ()), *(metadata.get("partition-statistics") or ())):
            yield each["statistics-path"], False
        seen: set[str] = set()
        for snapshot in metadata.get("snapshots") or ():
            manifest_list = snapshot["manifest-list"]  # format version 1 may have none: then the files are unknown
            yield manifest_list, False
            for manifest in self._manifests.listed(manifest_list, reader):
                if manifest.manifest_path in seen:
                    continue
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path, False
                for file in self._manifests.files(manifest, reader):
                    yield file.path, file.content == DATA
