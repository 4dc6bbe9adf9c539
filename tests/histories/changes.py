"""Random changes of a table, each with what it means for the table's rows.

Every row has a number of its own, ``v``; an update gives it another one. So rows that are lost, that come back, or that
are there twice can be told from those that should be there.
"""

# ruff: noqa: ARG002 - each change is given what some of them need

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, ClassVar, Final, Literal

import msgspec
import pyarrow as pa

from lamella.client import Lamella
from lamella.client.http import Table
from lamella.client.jobs import rewrite
from lamella.client.jobs.context import JobContext, Sizes
from lamella.client.jobs.rewrite import Bounds
from lamella.client.rewrite.commit import TableState, commit_result
from lamella.client.rewrite.engine import SerialEngine, scratch_space
from lamella.client.rewrite.source import Source
from lamella.client.rewrite.stages import Bin, RemoveRows
from lamella.client.write.rows import write_rows
from lamella.snapshot.delete_policy import DeleteMode, DeletePolicy, delete_policy_of
from lamella.snapshot.deletes import decode_vector
from lamella.snapshot.errors import BlockReplaced, CommitConflict
from lamella.snapshot.manifest import FEATURES
from lamella.snapshot.schema import Column
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.wire import NoNewMatches
from support.service_api import parquet_bytes


class Row(msgspec.Struct, frozen=True, order=True):
    """One row. ``x``: as text, so that NaN is equal to itself."""

    id: int
    v: int
    g: str | None
    x: str | None


Rows = frozenset[Row]

COLUMNS: Final = (
    Column(name="id", type="int64", nullable=False),
    Column(name="v", type="int64", nullable=False),
    Column(name="g", type="string"),
    Column(name="x", type="float64"),
)
_SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.int64(), nullable=False),
        ("g", pa.string()),
        ("x", pa.float64()),
    ]
)
_IDS: Final = 40
#: What an update adds to ``v``; fewer rows than that are ever made.
_UPDATED: Final = 1_000_000
_TEXTS: Final = (None, "", "a", "b", "ä", "z" * 70)
_FLOATS: Final = (None, "nan", "0.0", "-0.0", "1.5", "-2.25", "inf")
#: Filters, and the same conditions in Python: a comparison with null is not true, and NaN is greater than any number.
FILTERS: Final[dict[str, Callable[[Row], bool]]] = {
    "id < 5": lambda row: row.id < 5,
    "id >= 30": lambda row: row.id >= 30,
    "id IN (1, 8, 15, 22, 29, 36)": lambda row: row.id % 7 == 1,
    "id BETWEEN 10 AND 14 OR g = 'a'": lambda row: 10 <= row.id <= 14 or row.g == "a",
    "g IS NULL": lambda row: row.g is None,
    "NOT (g = 'a')": lambda row: row.g is not None and row.g != "a",
    "x > 1": lambda row: row.x is not None and (row.x in ("nan", "inf") or float(row.x) > 1),
    "x = 0 AND id < 20": lambda row: row.x in ("0.0", "-0.0") and row.id < 20,
    "v < 1000000 AND id > 25": lambda row: row.v < 1_000_000 and row.id > 25,
    "g = 'nothing has this'": lambda _row: False,
}


def rows_of(table: pa.Table | pa.RecordBatch) -> list[Row]:
    """The rows of an Arrow table with the table's columns."""
    columns = [table.column(name).to_pylist() for name in ("id", "v", "g", "x")]
    return [Row(i, v, g, None if x is None else repr(x)) for i, v, g, x in zip(*columns, strict=True)]


def as_table(rows: Iterable[Row]) -> pa.Table:
    """Rows in Arrow."""
    values = [(row.id, row.v, row.g, None if row.x is None else float(row.x)) for row in rows]
    columns = list(zip(*values, strict=True)) or [()] * 4
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)], _SCHEMA)


def without(rows: Rows, where: str, seen: Rows) -> Rows:
    """The rows but those of ``seen`` that match a filter."""
    matches = FILTERS[where]
    return frozenset(row for row in rows if not (row in seen and matches(row)))


def updated(row: Row) -> Row:
    """The row with another number and another text."""
    return msgspec.structs.replace(row, v=row.v + _UPDATED, g=_TEXTS[(row.id + 1) % len(_TEXTS)])


class Change(ABC):
    """One change. ``commits``: whether it may make one snapshot or any number of them."""

    commits: ClassVar[Literal["once", "often"]] = "once"
    #: Whether it may happen again after it was cut off, with the effect of having happened once.
    repeatable: bool = False

    @abstractmethod
    def run(self, lake: Lamella, table: Table) -> None:
        """Do it."""

    @abstractmethod
    def after(self, rows: Rows, seen: Sequence[Rows]) -> list[Rows]:
        """What the rows may be after it, if they were ``rows`` before it; ``seen``: what they were since it began."""

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        if "rows" in shown:
            shown["rows"] = [(row.id, row.v) for row in shown["rows"]]
        return f"{type(self).__name__}({shown})"


class _Writing(Change, ABC):
    """A change with rows, in blocks of random sizes."""

    def __init__(self, rng: Random, rows: list[Row]) -> None:
        self.rows = rows
        self.options: dict[str, Any] = {
            "target_block_rows": rng.choice([3, 8, 1_000]),
            "memory_bytes": rng.choice([1, 1 << 20]),
            "workers": rng.choice([1, 1, 2]),
        }


class Append(_Writing):
    """Adds rows, once under a key."""

    def __init__(self, rng: Random, rows: list[Row], key: str | None) -> None:
        super().__init__(rng, rows)
        self.key = key
        self.repeatable = key is not None

    def run(self, lake: Lamella, table: Table) -> None:
        """``append``."""
        table.append(as_table(self.rows), idempotency_key=self.key, **self.options)

    def after(self, rows: Rows, seen: Sequence[Rows]) -> list[Rows]:
        """More rows."""
        return [rows | set(self.rows)]


class Overwrite(_Writing):
    """Replaces rows that match a filter; those that others add meanwhile may stay. Repeatable if its own rows match."""

    def __init__(self, rng: Random, rows: list[Row], where: str | None) -> None:
        super().__init__(rng, rows)
        self.where = where
        self.repeatable = where is None or all(map(FILTERS[where], rows))

    def run(self, lake: Lamella, table: Table) -> None:
        """``overwrite``."""
        table.overwrite(as_table(self.rows), self.where, **self.options)

    def after(self, rows: Rows, seen: Sequence[Rows]) -> list[Rows]:
        """As seen at some moment since it began."""
        if self.where is None:
            return [(rows - each) | set(self.rows) for each in seen]
        return [without(rows, self.where, each) | set(self.rows) for each in seen]


class Delete(Change):
    """Deletes rows that match a filter; those that others add meanwhile may stay."""

    repeatable = True

    def __init__(self, rng: Random, where: str) -> None:
        self.where = where
        self.mode: DeleteMode | None = rng.choice([None, None, "merge-on-read", "copy-on-write"])

    def run(self, lake: Lamella, table: Table) -> None:
        """``delete``."""
        table.delete(self.where, mode=self.mode, workers=1)

    def after(self, rows: Rows, seen: Sequence[Rows]) -> list[Rows]:
        """As seen at some moment since it began."""
        return [without(rows, self.where, each) for each in seen]


class Upsert(_Writing):
    """Replaces the rows that have one of the keys, and inserts the others."""

    repeatable = True

    def __init__(self, rng: Random, rows: list[Row]) -> None:
        super().__init__(rng, list({row.id: row for row in rows}.values()))

    def run(self, lake: Lamella, table: Table) -> None:
        """``upsert``."""
        table.upsert(as_table(self.rows), on=["id"], **self.options)

    def after(self, rows: Rows, seen: Sequence[Rows]) -> list[Rows]:
        """Always as of the moment of the commit."""
        keys = {row.id for row in self.rows}
        return [frozenset(row for row in rows if row.id not in keys) | set(self.rows)]


class Update(Change):
    """What ``UPDATE`` and ``MERGE`` come down to: rows that match a filter get new values or go, others come; by the
    commit that they make, with vectors or rewritten blocks.

    ``rows``: inserted, unless a row with that ``id`` matches. ``goes``: the matching rows that are deleted.
    """

    def __init__(self, rng: Random, where: str, rows: list[Row], goes: str) -> None:
        self.where, self.rows, self.goes = where, list({row.id: row for row in rows}.values()), goes
        self.policy = rng.choice([DeletePolicy(mode="merge-on-read"), DeletePolicy(mode="copy-on-write"), None])

    def run(self, lake: Lamella, table: Table) -> None:
        """Read, and commit what was read."""
        for attempt in range(20):
            try:
                self._once(lake, table)
            except (CommitConflict, BlockReplaced):
                if attempt == 19:
                    raise
            else:
                return

    def _once(self, lake: Lamella, table: Table) -> None:
        state = TableState.read(lake, str(table))
        snapshot_id = state.snapshot.snapshot_id
        target = state.target()
        locations = table.prune(self.where, snapshot_id=snapshot_id, reader_features=FEATURES).locations
        blocks = table.blocks(locations, snapshot_id=snapshot_id, reader_features=FEATURES).blocks
        matching = rows_of(table.scan(self.where, snapshot_id=snapshot_id, store=target.store()).to_arrow())
        with scratch_space(target, is_near=True) as space:
            policy = self.policy or delete_policy_of(state.snapshot.properties)
            stage = RemoveRows(target=target, scratch=space.scratch, filter=self.where, policy=policy)
            found = stage(Bin(sources=tuple(map(Source.of, blocks))))
            if found.failed is not None:
                raise BlockReplaced(found.failed)
            new = as_table(self._changed(matching))
            written = write_rows(new.to_batches(), target, space, workers=1)
            written += [each.written for each in found.blocks]
            pairs = list(zip(blocks, found.blocks, strict=True))
            if not new.num_rows and not matching:
                return
            commit_result(
                lake,
                state,
                target,
                written,
                operation="update",
                removed=[b.location for b, each in pairs if each.disposition in ("goes", "rewritten")],
                deletes={
                    b.location: decode_vector(each.vector, b.row_count, location=b.location)
                    for b, each in pairs
                    if each.vector is not None
                },
                row_change="overwrite",
                no_new_matches=NoNewMatches(filter=self.where),
            )

    def _changed(self, matching: Iterable[Row]) -> list[Row]:
        stay = [row for row in matching if not FILTERS[self.goes](row)]
        ids = {row.id for row in matching}
        return [*map(updated, stay), *(row for row in self.rows if row.id not in ids)]

    def after(self, rows: Rows, seen: Sequence[Rows]) -> list[Rows]:
        """Always as of the moment of the commit."""
        matching = [row for row in rows if FILTERS[self.where](row)]
        return [frozenset(rows - set(matching)) | set(self._changed(matching))]


class Register(Change):
    """Adds a file that another program wrote."""

    def __init__(self, rows: list[Row], path: str) -> None:
        self.rows, self.path = rows, path

    def run(self, lake: Lamella, table: Table) -> None:
        """``register``."""
        table.register([self.path], strict=True)

    def write(self, store: FsspecStore) -> None:
        """Write the file."""
        store.put(self.path, parquet_bytes(as_table(self.rows)))

    def after(self, rows: Rows, seen: Sequence[Rows]) -> list[Rows]:
        """More rows."""
        return [rows | set(self.rows)]


class Rollback(Change):
    """Goes back to an older snapshot."""

    def __init__(self, snapshot_id: str, rows: Rows) -> None:
        self.snapshot_id = snapshot_id
        self._rows = rows

    def run(self, lake: Lamella, table: Table) -> None:
        """``rollback``."""
        table.rollback(self.snapshot_id)

    def after(self, rows: Rows, seen: Sequence[Rows]) -> list[Rows]:
        """The rows of then."""
        return [self._rows]


class Rewrite(Change):
    """Compaction, reclustering or purging: the rows stay."""

    commits = "often"
    repeatable = True

    def __init__(self, rng: Random, job: Literal["compact", "recluster", "purge"]) -> None:
        self.job, self.block_rows = job, rng.choice([4, 16, 1_000])

    def run(self, lake: Lamella, table: Table) -> None:
        """The job."""
        sizes = Sizes(block_rows=self.block_rows)
        context = JobContext(lake=lake, table=str(table), engine=SerialEngine(), sizes=sizes)
        bounds = Bounds(min_deleted_share=0.0) if self.job == "purge" else Bounds()
        getattr(rewrite, self.job)(context, bounds)

    def after(self, rows: Rows, seen: Sequence[Rows]) -> list[Rows]:
        """The same."""
        return [rows]


class Regroup(Change):
    """Puts blocks into other segments: the rows stay."""

    commits = "often"
    repeatable = True

    def run(self, lake: Lamella, table: Table) -> None:
        """By ``id``."""
        table.regroup(["id"])

    def after(self, rows: Rows, seen: Sequence[Rows]) -> list[Rows]:
        """The same."""
        return [rows]


class Numbers:
    """New rows, each with a number that no other has."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._next = 0

    def rows(self, count: int) -> list[Row]:
        """So many new rows."""
        return [self._row() for _ in range(count)]

    def _row(self) -> Row:
        self._next += 1
        assert self._next < _UPDATED
        return Row(self._rng.randrange(_IDS), self._next, self._rng.choice(_TEXTS), self._rng.choice(_FLOATS))
