"""A table as a ``HadoopFsRelation`` with a file index of ours: works where the V2 way does not.

It has no name in SQL, no pruning by join keys and no statistics after pruning. It stays at the snapshot at which it
was made. Its filters reach Spark's Parquet reader by way of session settings, so the reader's own skipping is turned
off by the relation's options where it is not sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lamella.client.spark.catalyst import Walker
from lamella.client.spark.gateway import DATASOURCES, SQL, Gateway
from lamella.client.spark.lake import LakeTable
from lamella.client.spark.literal import TRUE
from lamella.client.spark.proxy import Proxy
from lamella.client.spark.reader_options import reader_options, refuse_case_sensitive, skippable_columns
from lamella.client.spark.statuses import file_statuses
from lamella.snapshot.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def relation_frame(gateway: Gateway, table: LakeTable, columns: Sequence[str] | None = None) -> DataFrame:
    """A frame over the table at its snapshot; filters on it prune when it is run.

    Raises:
        InvalidSchema: a column that Spark cannot read, unless ``columns`` leaves it out.
        InvalidRequest: blocks have one of the columns under an earlier name, or the session tells names apart by case.
    """
    from pyspark.sql import DataFrame

    names = [column.name for column in table.schema.columns] if columns is None else list(columns)
    table.columns.check(names)
    if not table.is_plain(columns):
        raise InvalidRequest(
            f"blocks of {table.name} have columns under earlier names, which cannot be read this way; read it through"
            " the catalog of lamella.client.spark.attach, or compact it"
        )
    refuse_case_sensitive(gateway.spark)
    # Which blocks will be read is not known yet. Who trusts the writers' page indexes trusts their footers.
    trusted = skippable_columns(table.schema) if table.settings.page_index else []
    options = reader_options(table.schema, page_index=bool(table.settings.page_index), believed=trusted)
    relation = gateway.java_class(DATASOURCES + "HadoopFsRelation")(
        BlockIndex(gateway, table),
        gateway.java_class(SQL + "types.StructType")(),
        gateway.struct_type(table.columns.readable),
        gateway.none,
        gateway.java_class(DATASOURCES + "parquet.ParquetFileFormat")(),
        gateway.scala_map(options),
        gateway.session,
    )
    frame = DataFrame(gateway.session.baseRelationToDataFrame(relation), gateway.spark)
    return frame if columns is None else frame.select(*[f"`{name.replace('`', '``')}`" for name in names])


class BlockIndex(Proxy):
    """``FileIndex`` over the blocks of one snapshot.

    The partition schema is empty on purpose: Spark does not evaluate partition filters again after the scan, so
    a filter that is only used for pruning must never be one.
    """

    class Java:
        implements = [DATASOURCES + "FileIndex"]  # noqa: RUF012

    def __init__(self, gateway: Gateway, table: LakeTable) -> None:
        super().__init__(gateway)
        self._table = table

    def _key(self) -> str:
        return f"Lamella {self._table.key}"

    def rootPaths(self) -> Any:
        # Shown in plans and otherwise unused.
        path = self._gateway.path(f"lamella:/{self._table.key}")
        return self._gateway.seq([path])

    def partitionSchema(self) -> Any:
        return self._gateway.java_class(SQL + "types.StructType")()

    def sizeInBytes(self) -> int:
        return self._table.size_bytes

    def inputFiles(self) -> Any:
        return self._gateway.array("java.lang.String", [path for path, _ in self._table.kept(None).files()])

    def refresh(self) -> None:
        """A snapshot does not change."""

    def isTimeTravel(self) -> bool:
        return True

    def metadataOpsTimeNs(self) -> Any:
        return self._gateway.none

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        walker = Walker(self._table.schema, time_zone=self._gateway.time_zone())
        trees = [walker.conjunction(filters) for filters in (partition_filters, data_filters)]
        used = [tree for tree in trees if tree != TRUE]
        tree = {"type": "and", "children": used} if used else None
        kept = self._table.kept(tree, time_zone=walker.time_zone)
        statuses = file_statuses(self._gateway, kept.files())
        no_values = self._gateway.java_class(SQL + "catalyst.InternalRow").empty()
        directory = self._gateway.java_class(DATASOURCES + "PartitionDirectory").apply(no_values, statuses)
        return self._gateway.seq([directory])
