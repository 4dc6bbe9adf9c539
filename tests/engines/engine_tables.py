"""Random tables that an engine reads twice: through its extension point, and all rows at once without any pruning."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol
from unittest.mock import patch

import msgspec
import pyarrow as pa

from lamella.client.scan import Fragment, Scan
from lamella.snapshot.storage import FsspecStore
from pages.reads_counted import ReadsCounted
from property.test_constants_and_deletes import World
from scan.files import written
from scan.planning import WarehouseTable
from scan.test_foreign_filters import Sampled
from scan.test_rows_found import lines

_COMPARISONS: Final = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)


class Engine(Protocol):
    """How an engine is asked; ``reads_elsewhere``: in other processes, so that the files of its plans are counted."""

    reads_elsewhere: bool

    def condition(self, sampled: Sampled) -> Any:
        """A random condition in the engine's own form."""

    def vectors(self) -> list[Any]:
        """Conditions on the column ``x`` of :func:`floats`, on which engines differ."""

    def whole(self, rows: pa.Table, condition: Any, columns: list[str]) -> pa.Table:
        """The rows that the engine finds in memory."""

    def pushed(self, scan: Scan, condition: Any, columns: list[str]) -> pa.Table:
        """The rows that it finds through its extension point."""


def floats(folder: Path, *, verify: bool) -> WarehouseTable:
    """Files with NaN of both signs, alone and beside numbers, with each zero, and with nulls. ``verify``: what is known
    of them is exact; footers say nothing of NaN."""
    negative = math.copysign(math.nan, -1.0)
    values = [
        [negative, 100.0],
        [math.nan, 1.0],
        [math.nan, math.nan],
        [negative, None],
        [-0.0, -0.0],
        [0.0, None],
        [None, None],
        [7.0, math.inf],
    ]
    tables = [pa.table({"x": pa.array(each, pa.float64()), "n": [at] * 2}) for at, each in enumerate(values)]
    return written(folder, *tables, verify=verify)


def float_vectors(column: Callable[[str], Any], is_in: Callable[[Any, list[Any]], Any]) -> list[Any]:
    """Conditions of a library with operators; ``is_in``: how it writes membership in a list."""
    x = column("x")
    found = [compare(x, value) for compare in _COMPARISONS for value in (5.0, 0.0, -0.0, math.nan)]
    lists: list[list[Any]] = [[0.0, 7.0], [-0.0, 1.0], [math.nan, 7.0], [7.0, None]]
    found += [is_in(x, listed) for listed in lists]
    return [*found, *(~each for each in found), (x < 5.0) & (column("n") != 0), (x < 5.0) | (column("n") == 4)]


def compare_vectors(engine: Engine, folder: Path) -> None:
    """Ask both ways about floats."""
    for verify in (False, True):
        table = floats(folder, verify=verify)
        rows = table.scan().to_arrow()
        for condition in engine.vectors():
            got = engine.pushed(table.scan(), condition, ["x", "n"])
            wanted = engine.whole(rows, condition, ["x", "n"])
            assert lines(got) == lines(wanted), (condition, verify)


class Compared(msgspec.Struct, frozen=True):
    """Queries that both ways answered, and the files that they opened, of those that the tables have."""

    queries: int = 0
    files_opened: int = 0
    files: int = 0

    def __add__(self, other: Compared) -> Compared:
        return Compared(self.queries + other.queries, self.files_opened + other.files_opened, self.files + other.files)


def compare_table(engine: Engine, seed: int, folder: Path, queries: int) -> Compared:
    """Ask both ways about one random table: columns that some files lack, constants, deleted rows, small row groups."""
    rng = Random(seed)
    world = World(seed, folder)
    table = WarehouseTable(world.warehouse, world.pointer)
    rows = table.scan().to_arrow()
    names = rows.schema.names
    found = Compared()
    for number in range(queries):
        sampled = Sampled(rng, rows)
        columns = rng.sample(names, rng.randint(1, len(names)))
        case = f"seed {seed}, query {number}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Polars warns of comparisons with null
            try:
                condition = engine.condition(sampled)
                wanted = engine.whole(rows, condition, columns)
            except Exception:  # noqa: S112  # what the engine does not compute needs no comparison
                continue
            except BaseException as error:  # Polars panics
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                continue
            store = ReadsCounted(FsspecStore())
            with planned_files() as planned:
                got = engine.pushed(table.scan(store=store), condition, columns)
        assert lines(_plain(got)) == lines(_plain(wanted)), f"{case}: {condition} of {columns}"
        opened = planned[-1] if engine.reads_elsewhere else len(store.files_read())
        found += Compared(1, opened, len(world.blocks))
    world.delete_files()
    return found


@contextmanager
def planned_files() -> Iterator[list[int]]:
    """How many files each plan in fragments has, made inside."""
    made: list[int] = []
    original = Scan.fragments

    def counted(self: Scan) -> list[Fragment]:
        found = original(self)
        made.append(len(found))
        return found

    with patch.object(Scan, "fragments", counted):
        yield made


def _plain(table: pa.Table) -> pa.Table:
    """The table with dates and times as numbers: Python does not have all of them."""
    return table.cast(pa.schema([field.with_type(_number(field.type)) for field in table.schema]))


def _number(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_number(field.type)) for field in kind])
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def compare(engine: Engine, folder: Path, tables: int, *, first: int = 0, queries: int = 5) -> Compared:
    """Compare over many tables; raises AssertionError when no file was left out."""
    found = Compared()
    for seed in range(first, first + tables):
        found += compare_table(engine, seed, folder, queries)
    print(f"{tables} tables: {found}")
    assert found.queries > tables
    assert found.files_opened < found.files
    return found
