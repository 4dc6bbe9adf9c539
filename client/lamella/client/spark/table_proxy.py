"""A table of the catalog at one snapshot, as Spark sees it: read, written to, deleted from."""

from __future__ import annotations

from typing import Any, Final

from lamella.client.spark.deleting import delete
from lamella.client.spark.gateway import CONNECTOR
from lamella.client.spark.landing import EVERY_ROW
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.row_level import LakeRowLevel, instead_of_delete
from lamella.client.spark.scan import LakeScanBuilder
from lamella.client.spark.sql_write import Destination, LakeWriteBuilder
from lamella.snapshot.errors import FilterNotEvaluable

_CATALOG: Final = CONNECTOR + "catalog."
_CAPABILITIES: Final = ("BATCH_READ", "V1_BATCH_WRITE", "TRUNCATE", "OVERWRITE_BY_FILTER")


class LakeTableProxy(Proxy):
    """A table at one snapshot."""

    class Java:
        implements = [  # noqa: RUF012  # py4j reads it from the class
            _CATALOG + "SupportsRead",
            _CATALOG + "SupportsWrite",
            _CATALOG + "SupportsDeleteV2",
            _CATALOG + "SupportsRowLevelOperations",
        ]

    def __init__(self, destination: Destination, shown_name: str, shape: tuple[Any, Any]) -> None:
        super().__init__(destination.gateway)
        self._destination = destination
        self._table = destination.table
        self._shown_name = shown_name
        self._struct, self._columns = shape

    def _key(self) -> str:
        return f"Lamella {self._shown_name}@{self._table.snapshot_id}"

    def name(self) -> str:
        return self._shown_name

    def id(self) -> str:
        return self._table.table_id

    def version(self) -> str:
        return self._table.snapshot_id

    def schema(self) -> Any:
        return self._struct

    def columns(self) -> Any:
        return self._columns

    def partitioning(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.Transform")

    def constraints(self) -> Any:
        return self._gateway.empty_array(_CATALOG + "constraints.Constraint")

    def properties(self) -> Any:
        return self._gateway.java_map(self._table.shown_properties())

    def capabilities(self) -> Any:
        found = [self._gateway.constant(_CATALOG + "TableCapability", name) for name in _CAPABILITIES]
        return self._gateway.java_set(found)

    def newScanBuilder(self, options: Any) -> Any:
        return LakeScanBuilder(self._gateway, self._table, options)

    def newWriteBuilder(self, info: Any) -> Any:
        return LakeWriteBuilder(self._destination, info.options())

    def newRowLevelOperationBuilder(self, info: Any) -> Any:
        return LakeRowLevel(self._gateway, self._table, info.command())

    def canDeleteWhere(self, predicates: Any) -> bool:
        try:
            self._destination.filter_of(predicates)
        except FilterNotEvaluable as error:
            raise FilterNotEvaluable(f"{error.message}. {instead_of_delete(self._table.name)}") from error
        return True

    def deleteWhere(self, predicates: Any, *_options: Any) -> None:
        self._delete(self._destination.filter_of(predicates))

    def truncateTable(self, *_options: Any) -> bool:
        self._delete(EVERY_ROW)
        return True

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomTaskMetric")

    def _delete(self, filter: dict[str, Any]) -> None:
        defaults = self._destination.defaults
        delete(
            self._gateway.spark,
            self._table.name,
            filter,
            client=self._destination.lake,
            compression=defaults.compression,
            storage_options=defaults.storage_options,
            scratch=defaults.scratch,
        )
