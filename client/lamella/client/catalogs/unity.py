"""Unity Catalog, read by its REST interface: Databricks' and the open-source server's.

A table of Unity Catalog has three levels: ``catalog.schema.table``. Here the first two are the database.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from lamella.client.catalogs.hive_types import spark_columns
from lamella.client.catalogs.tables import SourceTable
from lamella.snapshot.errors import InvalidRequest, LamellaError, NotParquet, OtherTableFormat, StoreError
from lamella.snapshot.wire import HiveTable

_PATH: Final = "/api/2.1/unity-catalog"
_PAGE: Final = 100
#: Kinds of tables with files that the catalog has no further say about.
_KINDS: Final = ("MANAGED", "EXTERNAL")
#: The property by which a table says that only the catalog knows its newest commits.
_CATALOG_MANAGED: Final = ("delta.feature.catalogManaged", "delta.feature.catalogOwned-preview")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which could lead the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


class UnityCatalog:
    """The tables of Unity Catalog. ``uri``: the server's address. ``token``: an access token.

    Lamella's service reads the files with its own credentials; the catalog is not asked for any. Tables with row
    filters or column masks are refused: their files have more than a reader may see.
    """

    def __init__(self, uri: str, *, token: str | None = None, timeout_s: float = 60.0) -> None:
        """Set up; sends nothing.

        Raises:
            InvalidRequest: not an address of http or https.
        """
        parts = urlsplit(uri)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or parts.query:
            raise InvalidRequest(f"not the address of a Unity Catalog server: {uri!r}; write https://host")
        self._base = uri.rstrip("/").removesuffix(_PATH)
        self._token = token
        self._timeout_s = timeout_s
        self._known: dict[str, dict[str, Mapping[str, Any]]] = {}

    @property
    def address(self) -> str:
        """Return ``unity`` with the server's address."""
        return f"unity {self._base}"

    def databases(self) -> list[str]:
        """Return the names of all schemas, as ``catalog.schema``."""
        catalogs = [each["name"] for each in self._pages("/catalogs", "catalogs")]
        return sorted(
            f"{catalog}.{schema['name']}"
            for catalog in catalogs
            for schema in self._pages("/schemas", "schemas", catalog_name=catalog)
        )

    def names(self, database: str) -> list[str]:
        """Return the names of the tables and views of a schema."""
        catalog, _, schema = database.partition(".")
        found = self._pages("/tables", "tables", catalog_name=catalog, schema_name=schema)
        self._known[database] = {str(each["name"]): each for each in found}
        return sorted(self._known[database])

    def tables(self, database: str, names: Sequence[str]) -> Iterator[SourceTable]:
        """Yield some tables of a schema, as they were when their names were listed."""
        if database not in self._known:
            self.names(database)
        for name in names:
            if name in self._known[database]:
                try:
                    yield _table(database, name, self._known[database][name])
                except LamellaError as error:
                    yield SourceTable(database=database, name=name, refused=error)

    def _pages(self, path: str, member: str, **query: str) -> Iterator[Mapping[str, Any]]:
        token: str | None = None
        while True:
            page = {"page_token": token} if token else {}
            answer = self._get(path, {**query, "max_results": str(_PAGE), **page})
            yield from answer.get(member) or ()
            token = answer.get("next_page_token")
            if not token:
                return

    def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return an answer of the server.

        Raises:
            StoreError: it cannot be reached, or refuses.
        """
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        url = f"{self._base}{_PATH}{path}?{urlencode(query)}"
        request = urllib.request.Request(url, headers=headers)  # noqa: S310  # http or https: checked above
        try:
            with _OPENER.open(request, timeout=self._timeout_s) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            said = error.read(1_000).decode("utf-8", "replace")
            raise StoreError(
                f"Unity Catalog answers {error.code} to {path}: {said or error.reason}", location=self._base
            ) from error
        except (OSError, ValueError) as error:
            raise StoreError(f"Unity Catalog cannot be read: {error}", location=self._base) from error


def _table(database: str, name: str, found: Mapping[str, Any]) -> SourceTable:
    """Return what a table is for an import; raises LamellaError with the reason why it cannot be imported."""
    kind, data_format = str(found.get("table_type") or ""), str(found.get("data_source_format") or "").upper()
    properties: Mapping[str, str] = found.get("properties") or {}
    location = found.get("storage_location")
    if "VIEW" in kind:
        raise InvalidRequest("it is a view: only tables have files")
    if kind not in _KINDS:
        raise InvalidRequest(f"a table of the kind {kind or 'unknown'} cannot be imported")
    columns = found.get("columns") or ()
    if found.get("row_filter") or any(column.get("mask") for column in columns):
        raise InvalidRequest("the catalog filters its rows or masks its columns, which a reader of files would not")
    if any(str(properties.get(each, "")).lower() in ("supported", "enabled", "true") for each in _CATALOG_MANAGED):
        raise InvalidRequest("the catalog manages the commits of this table: its log does not have the newest ones")
    if data_format == "DELTA":
        return SourceTable(database=database, name=name, kind="delta", location=_location(location))
    if data_format == "ICEBERG":
        raise OtherTableFormat("it is an Iceberg table: import the catalog's Iceberg REST interface")
    if data_format != "PARQUET":
        raise NotParquet(f"its files are {data_format.lower() or 'of an unknown format'}, not Parquet")
    if any(column.get("partition_index") is not None for column in columns):
        raise InvalidRequest("its interface has no list of the partitions of a Parquet table")
    return SourceTable(
        database=database,
        name=name,
        kind="hive",
        location=_location(location),
        hive=HiveTable(columns=spark_columns(json.dumps({"type": "struct", "fields": [*map(_field, columns)]}))),
    )


def _location(text: object) -> str:
    if not isinstance(text, str) or not text:
        raise InvalidRequest("the catalog has no location of this table")
    return text


def _field(column: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a column as a field of Spark's schema, which the catalog keeps as text."""
    try:
        field: Mapping[str, Any] = json.loads(column["type_json"])
        return {"name": str(field["name"]), "type": field["type"], **field}
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(f"the type of column {column.get('name')!r} cannot be read") from error
