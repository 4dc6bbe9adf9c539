"""Import: tables of another catalog become external tables, and later imports refresh them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, Literal

import msgspec

from lamella.client.catalogs.tables import Selection, SourceCatalog, SourceTable
from lamella.client.http.external import OnProgress
from lamella.client.http.lake import Lake
from lamella.snapshot.errors import (
    AlreadyExists,
    InvalidRequest,
    LamellaError,
    NamespaceNotFound,
    TableNotFound,
    Unauthenticated,
    Unavailable,
)
from lamella.snapshot.storage import normal
from lamella.snapshot.wire import ExternalSource, HiveTable, RefusedFile

#: Properties of an imported table: the catalog that it comes from, and its name there.
CATALOG: Final = "lamella.import.catalog"
TABLE: Final = "lamella.import.table"
_KIND: Final = "lamella.source.kind"
_LOCATION: Final = "lamella.source.location"

#: ``created`` and ``refreshed``: the table is up to date with its source. ``unchanged``: it was already. ``missing``:
#: the source no longer has it; ``dropped``: so it was dropped here. ``refused``: see ``code`` and ``reason``.
Action = Literal["created", "refreshed", "unchanged", "missing", "dropped", "refused"]


class ImportedTable(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did, or (dry run) would do, with one table.

    ``source``: its name in the catalog. ``kind``: "hive", "delta" or "iceberg"; None: unknown. ``table``: its name
    here. ``blocks``: the number of blocks after the import, None if it is not known. ``added`` and ``removed``: files;
    one that was replaced counts as both. ``files``: those that a refresh refused, with the reasons.
    """

    source: str
    kind: str | None
    table: str
    action: Action
    blocks: int | None = None
    added: int = 0
    removed: int = 0
    code: str | None = None
    reason: str | None = None
    files: tuple[RefusedFile, ...] = ()


class ImportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import, a table at a time. ``dry_run``: nothing was changed."""

    dry_run: bool
    tables: tuple[ImportedTable, ...]


class ImportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How tables are imported.

    ``into``: the namespace of all tables; None: each is in a namespace with the name of its database. ``dry_run``:
    change nothing. ``drop_missing``: drop tables that were imported and that the source no longer has. ``allow_empty``:
    as in a refresh. ``time_zone``: of timestamps that are partition values. ``service_catalog``: the name of the
    catalog in the service's setting ``iceberg_catalogs``; the service then follows Iceberg tables by itself.
    """

    into: str | None = None
    dry_run: bool = False
    drop_missing: bool = False
    allow_empty: bool = False
    time_zone: str = "UTC"
    service_catalog: str | None = None


#: Called with the name of each table before it is imported, its number from 0 on and the number of tables; returns what
#: is called with the progress of its refresh.
OnTable = Callable[[str, int, int], OnProgress | None]


def import_tables(
    lake: Lake,
    catalog: SourceCatalog,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    options: ImportOptions | None = None,
    *,
    on_table: OnTable | None = None,
) -> Iterator[ImportedTable]:
    """Import the selected tables of a catalog, and yield the result of each; see ``docs/import.md``.

    ``include`` and ``exclude``: patterns such as ``sales`` (a database) and ``sales.order*``. A table that was imported
    before is refreshed. A table that is refused does not stop the others.

    Raises:
        InvalidRequest: a pattern that is not valid, or a name that the catalog does not have.
        StoreError: the catalog cannot be read.
        Unavailable, Unauthenticated: Lamella's service cannot be used.
    """
    return _Import(lake, catalog, Selection(include, exclude), options or ImportOptions(), on_table).run()


class _Import:
    def __init__(
        self,
        lake: Lake,
        catalog: SourceCatalog,
        selection: Selection,
        options: ImportOptions,
        on_table: OnTable | None,
    ) -> None:
        self._lake = lake
        self._catalog = catalog
        self._selection = selection
        self._options = options
        self._on_table = on_table

    def run(self) -> Iterator[ImportedTable]:
        wanted: dict[str, list[str]] = {}
        databases = self._catalog.databases()
        for database in databases:
            if self._selection.may_have(database):
                names = [name for name in self._catalog.names(database) if self._selection.has(database, name)]
                wanted[database] = names
        found = [(of, name) for of, names in wanted.items() for name in names]
        missing = self._selection.without_match(databases, found)
        known = self._imported(wanted)
        missing = [each for each in missing if not any(_is_of(each, source) for source in known)]
        if missing:
            raise InvalidRequest(f"the catalog has no table {', '.join(map(repr, missing))}")
        number = 0
        targets: dict[str, str] = {}
        for database, names in wanted.items():
            for source in self._catalog.tables(database, names):
                target = self._target(source)
                if target in targets:
                    error = AlreadyExists(f"{targets[target]} has the same name here; import one of them elsewhere")
                    yield self._refused(source, error)
                    continue
                targets[target] = source.full_name
                progress = None if self._on_table is None else self._on_table(source.full_name, number, len(found))
                yield self._one(source, progress)
                number += 1
        present = set(found)
        for name, target in known.items():
            if _split(name) not in present and self._selection.has(*_split(name)):
                yield self._missing(name, target)

    def _target(self, source: SourceTable) -> str:
        return f"{self._options.into or source.database}.{source.name}"

    def _imported(self, wanted: Iterable[str]) -> dict[str, str]:
        """Return the tables that were imported from this catalog, by their names in it."""
        into = self._options.into
        namespaces = [
            name
            for name in (each.name for each in self._lake.namespaces())
            if (name == into if into is not None else name in wanted or self._selection.may_have(name))
        ]
        found: dict[str, str] = {}
        for namespace in namespaces:
            for name in self._lake.tables(namespace):
                table = f"{namespace}.{name}"
                properties = self._info(table)
                if properties is not None and properties.get(CATALOG) == self._catalog.address and TABLE in properties:
                    found[properties[TABLE]] = table
        return found

    def _info(self, table: str) -> Mapping[str, str] | None:
        try:
            return self._lake.table(table).info().properties
        except TableNotFound:
            return None

    def _one(self, source: SourceTable, progress: OnProgress | None) -> ImportedTable:
        if source.refused is not None:
            return self._refused(source, source.refused)
        try:
            return self._taken(source, progress)
        except (Unavailable, Unauthenticated):
            raise
        except LamellaError as error:
            return self._refused(source, error)

    def _taken(self, source: SourceTable, progress: OnProgress | None) -> ImportedTable:
        """Create the table unless it is there, and refresh it."""
        target = self._target(source)
        hive = self._hive(source)
        try:
            properties = self._lake.table(target).info().properties
        except (TableNotFound, NamespaceNotFound):
            if self._options.dry_run:
                return _result(source, target, "created")
            return self._created(source, target, hive, progress)
        self._require_same(source, target, properties)
        return self._refreshed(source, target, properties, hive, progress, "refreshed")

    def _hive(self, source: SourceTable) -> HiveTable | None:
        if source.hive is None or source.partitions is None:
            return source.hive
        return msgspec.structs.replace(source.hive, partitions=source.partitions())

    def _created(
        self, source: SourceTable, target: str, hive: HiveTable | None, progress: OnProgress | None
    ) -> ImportedTable:
        self._make_namespace(target.rpartition(".")[0])
        made = self._lake.create_external(
            target,
            self._source_of(source),
            schema=None if hive is None else hive.columns,
            properties={CATALOG: self._catalog.address, TABLE: source.full_name},
        )
        try:
            return self._refreshed(source, target, made.properties, hive, progress, "created")
        except BaseException:
            # Readers would take it for a table without rows.
            with suppress(LamellaError):  # the first error counts
                self._lake.drop_table(target, purge=True)
            raise

    def _make_namespace(self, name: str) -> None:
        if name not in (each.name for each in self._lake.namespaces()):
            try:
                self._lake.create_namespace(name)
            except AlreadyExists:
                return

    def _source_of(self, source: SourceTable) -> ExternalSource:
        if source.kind is None or source.location is None:
            raise InvalidRequest("the catalog does not say where the table is")
        if source.kind == "iceberg" and self._options.service_catalog is not None:
            return ExternalSource(kind="iceberg", catalog=self._options.service_catalog, table=source.full_name)
        time_zone = self._options.time_zone if source.kind == "hive" else "UTC"
        return ExternalSource(kind=source.kind, location=source.location, time_zone=time_zone)

    def _require_same(self, source: SourceTable, target: str, properties: Mapping[str, str]) -> None:
        """Raise AlreadyExists if the table here follows something else."""
        if properties.get(CATALOG) != self._catalog.address or properties.get(TABLE) != source.full_name:
            of = properties.get(CATALOG)
            what = "was not imported" if of is None else f"was imported from {properties.get(TABLE)} of {of}"
            raise AlreadyExists(f"{target} exists and {what}", table=target)
        if properties.get(_KIND) != source.kind:
            raise AlreadyExists(
                f"the table was a {properties.get(_KIND)} table and is now a {source.kind} table: drop {target}, and "
                "import it again",
                table=target,
            )
        if source.kind == "delta" and source.location and properties.get(_LOCATION) != normal(source.location):
            raise AlreadyExists(
                f"the table was at {properties.get(_LOCATION)} and is now at {source.location}: drop {target}, and "
                "import it again",
                table=target,
            )

    def _refreshed(
        self,
        source: SourceTable,
        target: str,
        properties: Mapping[str, str],
        hive: HiveTable | None,
        progress: OnProgress | None,
        action: Action,
    ) -> ImportedTable:
        location = source.location if source.kind in ("hive", "iceberg") and _LOCATION in properties else None
        answer = self._lake.table(target).refresh(
            "dry_run" if self._options.dry_run else "incremental",
            location=location,
            allow_empty=self._options.allow_empty,
            hive=hive,
            on_progress=progress,
        )
        would = answer.added or answer.removed or answer.replaced or answer.schema_changes
        is_same = action == "refreshed" and not (would if self._options.dry_run else answer.changed)
        return ImportedTable(
            source=source.full_name,
            kind=source.kind,
            table=target,
            action="unchanged" if is_same else action,
            blocks=answer.added + answer.replaced + answer.unchanged,
            added=answer.added + answer.replaced,
            removed=answer.removed + answer.replaced,
        )

    def _refused(self, source: SourceTable, error: LamellaError) -> ImportedTable:
        files = [RefusedFile(**each) for each in error.details.get("refused", ())]
        return ImportedTable(
            source=source.full_name,
            kind=source.kind,
            table=self._target(source),
            action="refused",
            code=error.code,
            reason=error.message,
            files=tuple(files),
        )

    def _missing(self, name: str, target: str) -> ImportedTable:
        dropped = self._options.drop_missing
        if dropped and not self._options.dry_run:
            self._lake.drop_table(target)
        return ImportedTable(source=name, kind=None, table=target, action="dropped" if dropped else "missing")


def _result(source: SourceTable, target: str, action: Action) -> ImportedTable:
    return ImportedTable(source=source.full_name, kind=source.kind, table=target, action=action)


def _is_of(pattern: str, source: str) -> bool:
    return source == pattern or source.rpartition(".")[0] == pattern


def _split(name: str) -> tuple[str, str]:
    database, _, table = name.rpartition(".")
    return database, table
