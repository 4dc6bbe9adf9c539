"""Changed rows of snapshots, read in Spark's Python workers.

The driver lists snapshots with the blocks that they added and removed. A task reads some blocks; where a snapshot both
removed and added blocks, one task reads all of them and finds the rows that only one side has, by the rules of
:mod:`lamella.client.scan.row_changes`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from lamella.client.rewrite.source import Source, grouped, positioned_rows
from lamella.client.scan.row_changes import (
    CHANGE_COLUMNS,
    MEMORY_BYTES,
    ChangedPart,
    changed_parts,
    is_silent,
    paired_rows,
)
from lamella.client.scan.row_difference import SIDES, RowDifference
from lamella.client.spark.gateway import Gateway
from lamella.client.spark.lake import LakeTable
from lamella.client.spark.listed_source import ListedSource, listed_scan
from lamella.client.spark.python_blocks import PARTITION_BYTES, spark_arrow_schema
from lamella.snapshot.schema import Schema
from lamella.snapshot.schema.arrow import arrow_field, conformed
from lamella.snapshot.storage import FsspecStore, Store
from lamella.snapshot.wire import PrunedBlock, SnapshotChanges

#: The fields of the columns that say what happened to a row, in Spark's JSON.
CHANGE_FIELDS: Final = tuple(
    {"name": field.name, "type": dtype, "nullable": False, "metadata": {}}
    for field, dtype in zip(CHANGE_COLUMNS, ("string", "long", "timestamp"), strict=True)
)


class ListedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshots of a read, as JSON for an option.

    ``history``: the table's schemas, the current one last; every block names its own. ``keys``: columns by which a
    deleted and an inserted row of a snapshot are an update. ``only_inserted``: deleted rows are left out.
    """

    snapshots: tuple[SnapshotChanges, ...]
    history: tuple[Schema, ...]
    keys: tuple[str, ...] = ()
    only_inserted: bool = False
    storage_options: dict[str, dict[str, Any]] = {}

    def tasks(self) -> Iterator[ListedChanges]:
        """Yield what each task reads: about :data:`PARTITION_BYTES` of files, but a whole snapshot if rows of both
        sides have to be compared."""
        pieces: list[SnapshotChanges] = []
        for changes in self.snapshots:
            if is_silent(changes):
                continue
            if changes.added and changes.removed:
                yield msgspec.structs.replace(self, snapshots=(changes,))
                continue
            for name in ("added", "removed"):
                groups = grouped(getattr(changes, name), lambda block: block.file_size, PARTITION_BYTES)
                nothing: dict[str, Any] = {"added": (), "removed": ()}
                pieces += [msgspec.structs.replace(changes, **{**nothing, name: tuple(some)}) for some in groups]
        for group in grouped(pieces, _size_bytes, PARTITION_BYTES):
            yield msgspec.structs.replace(self, snapshots=tuple(group))

    def rows(self, struct: str) -> Iterator[pa.RecordBatch]:
        """Yield the changed rows; ``struct``: columns of the table and of :data:`CHANGE_FIELDS`, at least one, in
        Spark's JSON."""
        fields: list[dict[str, Any]] = json.loads(struct)["fields"]
        own = {field["name"] for field in CHANGE_FIELDS}
        wanted = spark_arrow_schema(_struct([field for field in fields if field["name"] not in own]))
        target = pa.schema(
            [
                field.with_nullable(given["nullable"])  # Spark compares it
                for field, given in zip(spark_arrow_schema(struct), fields, strict=True)
            ]
        )
        store = FsspecStore(self.storage_options)
        for changes in self.snapshots:
            for kind, count, rows in self._of_snapshot(store, changes, wanted):
                if count and not (self.only_inserted and kind in ("delete", "update_preimage")):
                    yield _with_change(rows, count, kind, changes, target)

    def _of_snapshot(
        self, store: Store, changes: SnapshotChanges, wanted: pa.Schema
    ) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Yield the kinds of changes of one snapshot with the numbers of rows, and the rows."""
        parts = list(changed_parts(store, changes))
        if len({part.side for part in parts}) < 2:
            for part in parts:
                for count, rows in self._read(store, part, wanted):
                    yield ("insert" if part.side == "after" else "delete"), count, rows
            return
        # All columns decide whether a row was carried over, in types that keep every value apart.
        schema = self.history[-1]
        every = pa.schema([arrow_field(column) for column in schema.columns])
        numbered = pa.schema([field.with_name(f"c{at}") for at, field in enumerate(every)])
        with RowDifference(numbered, range(len(every)), MEMORY_BYTES) as difference:
            for side in SIDES:
                for part in parts:
                    for _, rows in self._read(store, part, every) if part.side == side else ():
                        difference.add(side, pa.Table.from_batches([rows]).rename_columns(numbered.names))
            for kind, found in self._kinds(difference):
                for rows in found.rename_columns(every.names).to_batches():
                    yield kind, rows.num_rows, conformed(rows, wanted, schema, schema)

    def _kinds(self, difference: RowDifference) -> Iterator[tuple[str, pa.Table]]:
        """Yield the rows that only one side has, by kind of change."""
        if self.keys:
            names = [column.name.lower() for column in self.history[-1].columns]
            key = [names.index(name.lower()) for name in self.keys]
            yield from paired_rows(list(difference.result()), len(names), key)
            return
        for before, after in difference.result():
            yield "delete", before
            yield "insert", after

    def _read(self, store: Store, part: ChangedPart, target: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of a part with their numbers, since rows without columns have none."""
        source = source_of(part.block)
        if part.positions is not None:
            source = msgspec.structs.replace(source, deletes=())  # they are deleted afterwards
        schemas = {schema.schema_id: schema for schema in self.history}
        for positions, rows in positioned_rows(store, source, schemas, self.history[-1], target, part.positions):
            yield len(positions), rows


def source_of(block: PrunedBlock) -> Source:
    """Return what is needed to read a block that names its schema."""
    assert block.schema_id is not None  # noqa: S101  # see with_schema_ids
    return Source(
        location=block.location,
        row_count=block.row_count,
        file_size=block.file_size,
        content_id=None,
        schema_id=block.schema_id,
        constants=block.constants or {},
        deletes=block.deletes or (),
    )


def with_schema_ids(changes: SnapshotChanges, schema_id: int) -> SnapshotChanges:
    """Return changes whose blocks all name their schema; ``schema_id``: of the last snapshot of the request."""

    def named(blocks: Iterable[PrunedBlock]) -> tuple[PrunedBlock, ...]:
        return tuple(
            block if block.schema_id is not None else msgspec.structs.replace(block, schema_id=schema_id)
            for block in blocks
        )

    return msgspec.structs.replace(changes, added=named(changes.added), removed=named(changes.removed))


def _with_change(
    rows: pa.RecordBatch, count: int, kind: str, changes: SnapshotChanges, target: pa.Schema
) -> pa.RecordBatch:
    values = {
        "_change_type": kind,
        "_commit_version": changes.number,
        "_commit_timestamp": changes.timestamp_ms * 1000,
    }
    columns = [
        pa.repeat(pa.scalar(values[field.name], field.type), count) if field.name in values else rows.column(field.name)
        for field in target
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _size_bytes(changes: SnapshotChanges) -> int:
    return sum(block.file_size for block in (*changes.added, *changes.removed))


def _struct(fields: Sequence[dict[str, Any]]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)})


class ChangesSource(ListedSource):
    """``format("lamella_changes")``: the changed rows of the snapshots that the option lists."""

    FORMAT = "lamella_changes"
    LISTED = ListedChanges


def changes_scan(
    gateway: Gateway,
    table: LakeTable,
    snapshots: Sequence[SnapshotChanges],
    struct: str,
    *,
    keys: Sequence[str] = (),
    only_inserted: bool = False,
) -> Any:
    """Return Spark's own scan (a JVM object) of changed rows; ``struct``: the columns, as JSON, which may be those of
    :data:`CHANGE_FIELDS`. See :class:`ListedChanges`.

    Raises:
        LamellaError: this version of Spark plans it in an unknown way.
    """
    listed = ListedChanges(
        snapshots=tuple(snapshots),
        history=table.history,
        keys=tuple(keys),
        only_inserted=only_inserted,
        storage_options=table.settings.storage_options,
    )
    return listed_scan(gateway, ChangesSource, listed, struct)
