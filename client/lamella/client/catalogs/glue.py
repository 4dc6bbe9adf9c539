"""The Glue Data Catalog of AWS, read with boto3."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lamella.client.catalogs.metastore import MetastoreTable, Partition, Storage, source_table
from lamella.client.catalogs.tables import SourceTable
from lamella.snapshot.errors import InvalidRequest, StoreError


class GlueCatalog:
    """The tables of a Glue Data Catalog. Credentials are those that boto3 finds.

    ``region``: None: as boto3 is configured. ``catalog_id``: of another account's catalog. ``endpoint_url``: for
    servers of the same interface.
    """

    def __init__(
        self, region: str | None = None, *, catalog_id: str | None = None, endpoint_url: str | None = None
    ) -> None:
        """Set up; sends nothing.

        Raises:
            InvalidRequest: no region is given or configured.
            ModuleNotFoundError: the extra ``lamella[glue]`` is not installed.
        """
        import boto3
        from botocore.exceptions import BotoCoreError

        try:
            self._client: Any = boto3.client("glue", region_name=region, endpoint_url=endpoint_url)
        except BotoCoreError as error:
            raise InvalidRequest(f"Glue cannot be used: {error}") from error
        self._scope = {} if catalog_id is None else {"CatalogId": catalog_id}
        self._account = catalog_id
        self._known: dict[str, dict[str, Any]] = {}

    @property
    def address(self) -> str:
        """Return ``glue REGION ACCOUNT``; the account is known when the databases were listed, if there are any."""
        account = () if self._account is None else (self._account,)
        return " ".join(("glue", self._client.meta.region_name, *account))

    def databases(self) -> list[str]:
        """Return the names of all databases."""
        found = self._pages("get_databases", "DatabaseList")
        if self._account is None:
            self._account = next((str(each["CatalogId"]) for each in found if each.get("CatalogId")), None)
        return sorted(each["Name"] for each in found)

    def names(self, database: str) -> list[str]:
        """Return the names of the tables and views of a database."""
        found = {each["Name"]: each for each in self._pages("get_tables", "TableList", DatabaseName=database)}
        self._known[database] = found
        return sorted(found)

    def tables(self, database: str, names: Sequence[str]) -> Iterator[SourceTable]:
        """Yield some tables of a database, as they were when their names were listed."""
        if database not in self._known:
            self.names(database)
        known = self._known[database]
        for name in names:
            if name in known:
                yield self._table(database, known[name])

    def _table(self, database: str, found: Mapping[str, Any]) -> SourceTable:
        name = str(found["Name"])
        if "TargetTable" in found or "FederatedTable" in found:
            error = InvalidRequest("it is a link to a table of another catalog: import that")
            return SourceTable(database=database, name=name, refused=error)
        described = found.get("StorageDescriptor") or {}
        table = MetastoreTable(
            database=database,
            name=name,
            kind=found.get("TableType") or "",
            storage=_storage(described),
            columns=_columns(described.get("Columns")),
            keys=_columns(found.get("PartitionKeys")),
            parameters=found.get("Parameters") or {},
            in_skewed_folders=bool(described.get("StoredAsSubDirectories"))
            or bool((described.get("SkewedInfo") or {}).get("SkewedColumnValueLocationMaps")),
        )
        return source_table(table, self._partitions_of(database, name))

    def _partitions_of(self, database: str, name: str) -> Callable[[], list[Partition]]:
        def partitions() -> list[Partition]:
            found = self._pages(
                "get_partitions", "Partitions", DatabaseName=database, TableName=name, ExcludeColumnSchema=True
            )
            return [
                Partition(values=tuple(each["Values"]), storage=_storage(each.get("StorageDescriptor") or {}))
                for each in found
            ]

        return partitions

    def _pages(self, operation: str, member: str, **arguments: Any) -> list[dict[str, Any]]:
        """Return the items of all pages.

        Raises:
            StoreError: Glue cannot be reached, or reports an error.
        """
        with _errors(self.address):
            pages = self._client.get_paginator(operation).paginate(**self._scope, **arguments)
            return [item for page in pages for item in page[member]]


@contextmanager
def _errors(address: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise StoreError(f"Glue cannot be read: {error}", location=address) from error


def _columns(found: Sequence[Mapping[str, Any]] | None) -> tuple[tuple[str, str], ...]:
    return tuple((str(column["Name"]), str(column.get("Type") or "")) for column in found or ())


def _storage(found: Mapping[str, Any]) -> Storage:
    serde = found.get("SerdeInfo") or {}
    return Storage(
        location=found.get("Location"),
        input_format=found.get("InputFormat"),
        serde=serde.get("SerializationLibrary"),
        parameters=serde.get("Parameters") or {},
    )
