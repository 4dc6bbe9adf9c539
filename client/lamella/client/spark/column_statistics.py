"""Statistics of columns for Spark's cost-based optimiser.

They are those of the snapshot: the counts of nulls and distinct values are upper bounds for the blocks that a scan
reads, and the bounds enclose their values. An estimate needs no more, but no row is ever left out by them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from lamella.client.spark.gateway import CONNECTOR, Gateway
from lamella.client.spark.local_rows import internal_rows
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.python_blocks import spark_arrow_schema
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.schema import Column, quoted
from lamella.snapshot.schema.arrow import constant_scalars, repeated
from lamella.snapshot.stats import ColumnStats
from lamella.snapshot.stats.bound import from_bound

if TYPE_CHECKING:
    from lamella.client.spark.lake import LakeTable

_STATISTICS: Final = CONNECTOR + "read.colstats.ColumnStatistics"
#: Spark's types whose bounds its optimiser uses.
_BOUNDED: Final = frozenset(
    {"boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"}
)

_log = logging.getLogger(__name__)


class ColumnFacts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is known of a column; ``bounds``: its minimum and maximum as ``java.util.Optional``, in Spark's internal
    types."""

    null_count: int | None
    distinct_count: int | None
    bounds: tuple[Any, Any]


class LakeColumnStatistics(Proxy):
    """The statistics of one column."""

    class Java:
        implements = [_STATISTICS]  # noqa: RUF012

    def __init__(self, gateway: Gateway, facts: ColumnFacts) -> None:
        super().__init__(gateway)
        self._facts = facts

    def distinctCount(self) -> Any:
        return self._optional(self._facts.distinct_count)

    def nullCount(self) -> Any:
        return self._optional(self._facts.null_count)

    def min(self) -> Any:
        return self._facts.bounds[0]

    def max(self) -> Any:
        return self._facts.bounds[1]

    def avgLen(self) -> Any:
        return self._optional(None)  # sizes in footers are those of encoded values

    def maxLen(self) -> Any:
        return self._optional(None)

    def histogram(self) -> Any:
        return self._nothing

    @cached_property
    def _nothing(self) -> Any:
        return self._gateway.static("java.util.Optional", "empty")()

    def _optional(self, count: int | None) -> Any:
        if count is not None:
            return self._gateway.optional_long(count)
        return self._gateway.static("java.util.OptionalLong", "empty")()


def is_wanted(gateway: Gateway) -> bool:
    """Whether Spark's optimiser uses statistics of columns."""
    return bool(gateway.classes.scans.wantsColumnStatistics(gateway.conf))


def column_statistics(gateway: Gateway, table: LakeTable, names: Iterable[str], row_count: int) -> dict[Any, Any]:
    """Return statistics of columns as the entries of a Java map; ``row_count``: rows that the scan reads.

    Empty, if the service cannot tell: they are only estimates.
    """
    try:
        found = table.column_stats
    except LamellaError as error:
        _log.warning("Spark plans without statistics of columns of %s: %s", table.key, error.message)
        return {}
    wanted = {name.lower() for name in names}
    columns = [column for column in table.schema.columns if column.name.lower() in wanted and not column.fields]
    bounds = _bounds(gateway, table, columns, found)
    reference = gateway.static(CONNECTOR + "expressions.Expressions", "column")
    made = {}
    for column in columns:
        stats = found.get(column.id)
        if stats is None:
            continue
        facts = ColumnFacts(
            null_count=None if stats.null_count is None else min(stats.null_count, row_count),
            distinct_count=None if stats.distinct_of_values is None else min(stats.distinct_of_values, row_count),
            bounds=bounds[column.id],
        )
        made[reference(quoted(column.name))] = LakeColumnStatistics(gateway, facts)
    return made


def _bounds(
    gateway: Gateway, table: LakeTable, columns: Iterable[Column], found: Mapping[int, ColumnStats]
) -> dict[int, tuple[Any, Any]]:
    """Return minimum and maximum of each column as ``java.util.Optional``.

    The values never come to Python: py4j would send them back with other types.
    """
    fields = {field["name"].lower(): field for field in json.loads(table.columns.readable)["fields"]}
    nothing = gateway.static("java.util.Optional", "empty")()
    made: dict[int, list[Any]] = {}
    wanted: list[tuple[int, int, dict[str, Any], pa.Scalar]] = []
    for column in columns:
        made[column.id] = [nothing, nothing]
        field, stats = fields.get(column.name.lower()), found.get(column.id)
        if field is None or stats is None or not _is_bounded(field["type"]):
            continue
        for side, bound in enumerate((stats.min, stats.max)):
            if bound is not None:
                value = constant_scalars({column.id: from_bound(column.dtype, bound)}, table.schema)[column.id]
                wanted.append((column.id, side, {**field, "name": f"{column.id}_{side}", "metadata": {}}, value))
    if wanted:
        struct = json.dumps({"type": "struct", "fields": [field for _, _, field, _ in wanted]})
        target = spark_arrow_schema(struct)
        arrays = [repeated(value, 1, each.type) for (_, _, _, value), each in zip(wanted, target, strict=True)]
        (row,) = internal_rows(gateway, struct, pa.table(arrays, schema=target))
        values = row.toSeq(gateway.struct_type(struct)).lift()
        optional = gateway.static("scala.jdk.javaapi.OptionConverters", "toJava")
        for at, (column_id, side, _, _) in enumerate(wanted):
            made[column_id][side] = optional(values.apply(at))
    return {column_id: (low, high) for column_id, (low, high) in made.items()}


def _is_bounded(spark_type: Any) -> bool:
    return isinstance(spark_type, str) and (spark_type in _BOUNDED or spark_type.startswith("decimal("))
