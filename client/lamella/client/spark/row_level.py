"""What Spark asks of a table for ``UPDATE``, ``MERGE`` and ``DELETE``: here, to be told what to do instead.

A ``DELETE`` whose condition Spark can hand over as predicates becomes a call of the table's ``deleteWhere`` in the end;
the operation below, which would read and replace rows, is planned on the way there, and never runs.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from lamella.client.spark.gateway import CONNECTOR, Gateway
from lamella.client.spark.lake import LakeTable
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.scan import LakeScanBuilder
from lamella.snapshot.errors import FilterNotEvaluable, InvalidRequest

_WRITE: Final = CONNECTOR + "write."
_INSTEAD: Final = {
    "UPDATE": "lamella.client.spark.update(spark, {name!r}, {{column: sql}}, where=...)",
    "MERGE": "lamella.client.spark.merge(source, {name!r}, on=...)",
}


def instead_of_delete(name: str) -> str:
    """A sentence on what deletes rows that a ``DELETE`` cannot."""
    return (
        f"lamella.client.spark.delete(spark, {name!r}, where) knows patterns and more functions;"
        f" merge(source, {name!r}, on).when_matched_delete() takes any condition, and rows that another query finds"
    )


class LakeRowLevel(Proxy):
    """Builder and operation in one."""

    class Java:
        implements = [  # noqa: RUF012  # py4j reads it from the class
            _WRITE + "RowLevelOperationBuilder",
            _WRITE + "RowLevelOperation",
        ]

    def __init__(self, gateway: Gateway, table: LakeTable, command: Any) -> None:
        super().__init__(gateway)
        self._table = table
        self._command = command
        verb = str(command.toString())
        if verb in _INSTEAD:
            instead = _INSTEAD[verb].format(name=table.name)
            raise InvalidRequest(f"{verb} of a Lamella table is not done in SQL; use {instead}")

    def build(self) -> Any:
        return self

    def command(self) -> Any:
        return self._command

    def description(self) -> str:
        return f"Lamella {self._table.name}"

    def requiredMetadataAttributes(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "expressions.NamedReference")

    def newScanBuilder(self, options: Any) -> Any:
        return LakeScanBuilder(self._gateway, self._table, options)

    def newWriteBuilder(self, _info: Any) -> Any:
        return LakeRowLevelWrite(self._gateway, self._table)


class LakeRowLevelWrite(Proxy):
    """Builder and write in one; it refuses to run."""

    class Java:
        implements = [_WRITE + "WriteBuilder", _WRITE + "Write"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, table: LakeTable) -> None:
        super().__init__(gateway)
        self._table = table

    def build(self) -> Any:
        return self

    def description(self) -> str:
        return f"Lamella {self._table.name}"

    def supportedCustomMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomMetric")

    def reportDriverMetrics(self) -> Any:
        return self._gateway.empty_array(CONNECTOR + "metric.CustomTaskMetric")

    def toBatch(self) -> NoReturn:
        raise FilterNotEvaluable(
            "Spark does not hand over a part of the condition of this DELETE (a subquery, a pattern, a function)."
            f" {instead_of_delete(self._table.name)}"
        )
