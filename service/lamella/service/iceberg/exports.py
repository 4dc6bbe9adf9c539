"""The warehouse ``exports`` of the Iceberg catalog: tables as they were last exported.

Clients that plan scans themselves (Trino, Flink) need manifests, which only an export writes. They find its metadata
here, so nobody has to tell them the newest metadata file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, current_table
from lamella.service.http.responses import tagged_by_content
from lamella.service.http.routing import ServedOperation
from lamella.service.process.threads import Threads
from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.iceberg import operations
from lamella.snapshot.iceberg.export_folder import current_version
from lamella.snapshot.iceberg.wire import IcebergConfig, LoadedTable
from lamella.snapshot.storage import Store, TableLayout

#: What a client gives as ``warehouse``; also the prefix of the paths that it gets.
EXPORTS_WAREHOUSE: Final = "exports"
EXPORTS_CONFIG: Final = IcebergConfig(
    defaults={},
    overrides={"prefix": EXPORTS_WAREHOUSE},
    endpoints=(
        "GET /v1/{prefix}/namespaces",
        "GET /v1/{prefix}/namespaces/{namespace}",
        "HEAD /v1/{prefix}/namespaces/{namespace}",
        "GET /v1/{prefix}/namespaces/{namespace}/tables",
        "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
        "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    ),
)


class ExportedTableRoutes:
    """The route of exported tables. ``properties``: what all clients get as configuration."""

    def __init__(self, *, catalog: Catalog, readers: Threads, store: Store, properties: Mapping[str, str]) -> None:
        self._catalog = catalog
        self._readers = readers
        self._store = store
        self._properties = dict(properties)

    async def load_exported_table(self, request: Request) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["table"]
        if request.method == "HEAD":
            await self._readers.run(lambda: current_table(self._catalog, namespace, name))
            return Response(None, 204)

        def work() -> bytes:
            record = current_table(self._catalog, namespace, name)
            found = current_version(self._store, TableLayout(record.location).iceberg)
            if found is None:
                raise NotExpressible(
                    f"{namespace}.{name} has no export yet: run `lamella export iceberg {namespace}.{name}`, or set a "
                    "schedule of the job export_iceberg"
                )
            loaded = LoadedTable(metadata_location=found.location, metadata=found.metadata, config=self._properties)
            return msgspec.json.encode(loaded)

        return tagged_by_content(request, await self._readers.run(work))

    def operations(self) -> tuple[ServedOperation, ...]:
        """The operations that these routes serve."""
        return (ServedOperation(operations.LOAD_EXPORTED_TABLE, self.load_exported_table),)
