"""Random histories of tables that delta-rs and pyiceberg write: after each step the rows are those that they read."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from external.test_iceberg import Make, make
from lamella.client import Lamella
from lamella.client.http import Table

assert make  # a fixture

_STEPS: Final = 10
_ZONED: Final = pa.timestamp("us", "UTC")
#: Columns by name: their type, and values that are awkward in paths, logs and statistics.
_VALUES: Final[dict[str, tuple[pa.DataType, tuple[Any, ...]]]] = {
    "i": (pa.int32(), (0, -1, 2**31 - 1, -(2**31))),
    "b": (pa.int64(), (0, 2**53 + 1, -(2**63), 2**63 - 1)),
    "s": (pa.string(), ("x", "a b/c=d%e", "ä😀", "z" * 80)),
    "d": (pa.date32(), (dt.date(2024, 2, 29), dt.date(1969, 12, 31), dt.date(1600, 1, 1))),
    "t": (_ZONED, (dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC))),
    "p": (pa.decimal128(20, 3), (Decimal("1.250"), Decimal("-99999999999999999.999"), Decimal("0.000"))),
    "o": (pa.bool_(), (True, False)),
    "f": (pa.float64(), (0.5, -1.5, 1e300, float("inf"))),
}

_TYPES: Final[dict[str, IcebergType]] = {
    **{"i": IntegerType(), "b": LongType(), "s": StringType(), "d": DateType(), "t": TimestamptzType()},
    **{"p": DecimalType(20, 3), "o": BooleanType(), "f": DoubleType()},
}
_Row = dict[str, Any]


class History:
    """A source that random steps change. ``names``: its flat columns besides ``id``, by the type's key."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.names = {key: key for key in rng.sample(list(_VALUES), rng.randint(3, len(_VALUES)))}
        self._ids = iter(range(10_000))
        self._new = iter(range(10_000))
        self.log: list[str] = []

    def cell(self, key: str) -> Any:
        """A value, every fourth of them null."""
        return None if self.rng.random() < 0.25 else self.rng.choice(_VALUES[key][1])

    def batch(self) -> pa.Table:
        """A few rows of the columns that there are."""
        count = self.rng.randint(1, 6)
        columns = {"id": pa.array([next(self._ids) for _ in range(count)], pa.int64())}
        for key, name in self.names.items():
            columns[name] = pa.array([self.cell(key) for _ in range(count)], _VALUES[key][0])
        return pa.table(columns)

    def steps(self) -> tuple[Callable[[], None], ...]:
        """The changes that it knows."""
        raise NotImplementedError

    def rows(self) -> pa.Table:
        """All rows, as the library reads them."""
        raise NotImplementedError

    def step(self) -> None:
        """Change something."""
        chosen = self.rng.choice(self.steps())
        self.log.append(chosen.__name__)
        chosen()


class DeltaHistory(History):
    """A Delta table, perhaps partitioned."""

    def __init__(self, rng: Random, folder: Path) -> None:
        super().__init__(rng)
        self.folder = folder
        # delta-rs (1.6) reads back other values of partitions that are decimals or infinite.
        able = [name for key, name in self.names.items() if key not in ("f", "p")]
        self._partitions = rng.sample(able, min(len(able), rng.choice([0, 1, 1, 2])))
        write_deltalake(folder, self.batch(), partition_by=self._partitions or None)

    def steps(self) -> tuple[Callable[[], None], ...]:
        """Appending counts double."""
        return (
            *(self.append, self.append, self.delete, self.update, self.compact, self.overwrite),
            *(self.restore, self.checkpoint, self.add_column),
        )

    def rows(self) -> pa.Table:
        """As delta-rs reads them."""
        return DeltaTable(self.folder).to_pyarrow_table()

    def append(self) -> None:
        """Add rows."""
        write_deltalake(self.folder, self.batch(), mode="append", schema_mode="merge")

    def delete(self) -> None:
        """Delete rows by rewriting their files, or whole partitions."""
        name = self.rng.choice([*self._partitions, "id"])
        condition = f"{name} IS NULL" if name != "id" else f"id % 3 = {self.rng.randint(0, 2)}"
        DeltaTable(self.folder).delete(condition)

    def update(self) -> None:
        """Change values of a column that is no partition."""
        free = [name for name in self.names.values() if name not in self._partitions]
        if free:
            DeltaTable(self.folder).update(updates={self.rng.choice(free): "NULL"}, predicate="id % 4 = 1")

    def compact(self) -> None:
        """Rewrite small files as larger ones."""
        DeltaTable(self.folder).optimize.compact()

    def overwrite(self) -> None:
        """Replace everything."""
        write_deltalake(self.folder, self.batch(), mode="overwrite", schema_mode="merge")

    def restore(self) -> None:
        """Go back to an earlier version, which may have fewer columns."""
        table = DeltaTable(self.folder)
        if not table.version():
            return
        table.restore(self.rng.randint(0, table.version() - 1))
        known = set(DeltaTable(self.folder).schema().to_arrow().names)
        self.names = {key: name for key, name in self.names.items() if name in known}

    def checkpoint(self) -> None:
        """Summarize the log."""
        DeltaTable(self.folder).create_checkpoint()

    def add_column(self) -> None:
        """With the next append."""
        missing = [key for key in _VALUES if key not in self.names]
        if missing:
            key = self.rng.choice(missing)
            self.names[key] = key
            self.append()


class IcebergHistory(History):
    """An Iceberg table whose columns and partitions change."""

    def __init__(self, rng: Random, make: Make) -> None:
        super().__init__(rng)
        first = self.batch()
        fields = first.schema
        self.table: IcebergTable = make(fields)
        self.table.append(first)
        self._nested = False

    def steps(self) -> tuple[Callable[[], None], ...]:
        """Appending counts double."""
        return (
            *(self.append, self.append, self.delete, self.overwrite, self.rename, self.drop, self.add_column),
            *(self.partition, self.unpartition, self.move, self.nest, self.roll_back),
        )

    def rows(self) -> pa.Table:
        """As pyiceberg reads them."""
        return self.table.refresh().scan().to_arrow()

    def append(self) -> None:
        """Add rows; a nested column has values in some of them."""
        batch = self.batch()
        if self._nested:
            cells = [self.rng.choice([None, {"x": 5, "y": "in"}, {"x": None, "y": None}]) for _ in range(len(batch))]
            batch = batch.append_column("n", pa.array(cells, pa.struct({"x": pa.int64(), "y": pa.string()})))
        self.table.append(batch)

    def delete(self) -> None:
        """Delete rows by rewriting their files, or whole files."""
        key = self.rng.choice(list(self.names)) if self.names else None
        name = "id" if key is None else self.names[key]
        self.table.delete(self.rng.choice([f"{name} IS NULL", f"id >= {self.rng.randint(5, 40)}"]))

    def overwrite(self) -> None:
        """Replace some rows."""
        self.table.overwrite(self.batch(), f"id = {self.rng.randint(0, 20)}")

    def rename(self) -> None:
        """Give a column a new name, perhaps one that another had."""
        if self.names:
            key = self.rng.choice(list(self.names))
            name = f"r{next(self._new) % 3}"
            if name not in self.names.values():
                with self.table.update_schema() as update:
                    update.rename_column(self.names[key], name)
                self.names[key] = name

    def drop(self) -> None:
        """Drop a column that is no partition."""
        used = {self.table.schema().find_column_name(field.source_id) for field in self.table.spec().fields}
        free = [key for key, name in self.names.items() if name not in used]
        if free:
            with self.table.update_schema() as update:
                update.delete_column(self.names.pop(self.rng.choice(free)))

    def add_column(self) -> None:
        """Perhaps one with the name of a dropped one."""
        missing = [key for key in _VALUES if key not in self.names and key not in self.names.values()]
        if missing:
            key = self.rng.choice(missing)
            with self.table.update_schema() as update:
                update.add_column(key, _TYPES[key])
            self.names[key] = key

    def partition(self) -> None:
        """Partition by the values of a column from now on."""
        used = {self.table.schema().find_column_name(field.source_id) for field in self.table.spec().fields}
        free = [name for key, name in self.names.items() if key != "f" and name not in used]
        if free:
            with self.table.update_spec() as update:
                update.add_field(self.rng.choice(free), IdentityTransform(), f"part{next(self._new)}")

    def unpartition(self) -> None:
        """Do so no longer."""
        fields = self.table.spec().fields
        if fields:
            with self.table.update_spec() as update:
                update.remove_field(self.rng.choice(fields).name)

    def move(self) -> None:
        """Put a column first."""
        with self.table.update_schema() as update:
            update.move_first(self.rng.choice(["id", *self.names.values()]))

    def nest(self) -> None:
        """Add a column with fields."""
        if not self._nested:
            self._nested = True
            parts = (NestedField(1, "x", LongType(), required=False), NestedField(2, "y", StringType(), required=False))
            with self.table.update_schema() as update:
                update.add_column("n", StructType(*parts))

    def roll_back(self) -> None:
        """Make an earlier snapshot the current one, with today's columns."""
        current = self.table.current_snapshot()
        ancestors = [] if current is None else list(ancestors_of(current, self.table.metadata))[1:]
        if ancestors:
            self.table.manage_snapshots().rollback_to_snapshot(self.rng.choice(ancestors).snapshot_id).commit()


def as_rows(table: pa.Table) -> Counter[str]:
    """The rows without their order, by the columns' names."""
    return Counter(repr(sorted(row.items())) for row in table.to_pylist())


def check(table: Table, history: History) -> None:
    """The table has the source's columns and rows; a filter finds the rows that it selects."""
    wanted = history.rows()
    found = table.scan().to_arrow()
    assert sorted(found.schema.names) == sorted(wanted.schema.names), history.log
    assert as_rows(found) == as_rows(wanted), history.log
    rows: list[_Row] = wanted.to_pylist()
    for name in {"id", *history.names.values()}:
        nulls = table.scan(f"`{name}` IS NULL").to_arrow()
        assert as_rows(nulls) == Counter(repr(sorted(row.items())) for row in rows if row[name] is None), history.log
    for key in history.names.keys() & {"i", "b", "s"}:
        name = history.names[key]
        value = history.rng.choice(_VALUES[key][1])
        text = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
        equal = [row for row in rows if row[name] == value]
        scan = table.scan(f"`{name}` = {text}")
        assert as_rows(scan.to_arrow()) == Counter(repr(sorted(row.items())) for row in equal), (history.log, name)
        assert scan.count() == len(equal), (history.log, name)


def check_history(lake: Lamella, name: str, history: History, source: dict[str, str]) -> None:
    """Follow a source through random steps, and once more from the end only."""
    lake.create_external(name, source)
    table = lake.table(name)
    for _ in range(_STEPS):
        for _ in range(history.rng.randint(1, 2)):
            history.step()
        table.refresh()
        check(table, history)
    assert table.verify().is_clean, history.log
    lake.create_external(f"{name}second", source)
    second = lake.table(f"{name}second")
    second.refresh()
    check(second, history)
    for each in (name, f"{name}second"):
        lake.drop_table(each, purge=True)


def check_delta(lake: Lamella, name: str, folder: Path, seed: int) -> None:
    """The history of a Delta table."""
    history = DeltaHistory(Random(seed), folder / f"delta{seed}")
    check_history(lake, name, history, {"kind": "delta", "location": str(history.folder)})


def check_iceberg(lake: Lamella, name: str, make: Make, seed: int) -> None:
    """The history of an Iceberg table."""
    history = IcebergHistory(Random(seed), lambda schema: make(schema, f"s{seed}"))
    identifier = ".".join(history.table.name())
    check_history(lake, name, history, {"kind": "iceberg", "catalog": "prod", "table": identifier})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.few(1)
def test_a_random_delta_table_is_followed(lake: Lamella, name: str, tmp_path: Path, seed: int) -> None:
    """Appends, deletes, updates, compaction, restoring, checkpoints and new columns, with partitions."""
    check_delta(lake, name, tmp_path, seed)


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.few(1)
def test_a_random_iceberg_table_is_followed(lake: Lamella, name: str, make: Make, seed: int) -> None:
    """Appends, deletes, overwriting, rollback, and columns and partitions that change."""
    check_iceberg(lake, name, make, seed)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_many_random_tables_are_followed(lake: Lamella, name: str, make: Make, tmp_path: Path) -> None:
    """The same at length."""
    for seed in range(100, 200):
        print("seed", seed, flush=True)
        check_delta(lake, f"{name}d{seed}", tmp_path, seed)
        check_iceberg(lake, f"{name}i{seed}", make, seed)
