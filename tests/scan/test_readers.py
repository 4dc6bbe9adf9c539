"""Scans as pandas, Polars, DuckDB, Dask and parts: each has the rows of a full scan, decided before it gets them."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import dask
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings

from lamella.client.scan import Scan
from lamella.client.scan.rows import Rows
from lamella.snapshot.errors import BlockReplaced, FilterNotEvaluable
from lamella.snapshot.expression import text_of
from lamella.snapshot.wire import OrderBy
from pages.page_tables import forget_files, page_table
from scan.files import written
from scan.planning import WarehouseTable
from scan.test_rows_found import SEEDS, expected, lines
from scan.test_schemas import evolved
from support import generate
from support.oracle import Oracle


def by_pandas(rows: Rows) -> pa.Table:
    """With Arrow's types, which hold every value."""
    return pa.Table.from_pandas(rows.to_pandas(types_mapper=pd.ArrowDtype), preserve_index=False)


def by_duckdb(rows: Rows) -> pa.Table:
    """By a connection that is closed behind it."""
    with duckdb.connect() as connection:
        return rows.to_duckdb(connection).to_arrow_table()


def by_dask(scan: Scan) -> pa.Table:
    """Computed in this thread."""
    with dask.config.set(scheduler="sync"):
        return pa.Table.from_pandas(scan.to_dask().compute(), preserve_index=False)


def by_fragments(scan: Scan) -> pa.Table:
    """Each part as another process would have it."""
    parts = [pickle.loads(pickle.dumps(part)).to_arrow() for part in scan.fragments()]  # noqa: S301  # our own
    return pa.concat_tables([scan.schema.empty_table(), *parts])


READERS: dict[str, Callable[[Scan], pa.Table]] = {
    "reader": lambda scan: scan.to_reader().read_all(),
    "stream": lambda scan: pa.table(scan),
    "pandas": by_pandas,
    "polars": lambda scan: scan.to_polars().to_arrow(),
    "duckdb": by_duckdb,
}
#: They keep no limit.
PARTS: dict[str, Callable[[Scan], pa.Table]] = {"dask": by_dask, "fragments": by_fragments}


def read(name: str, scan: Scan) -> pa.Table:
    """What a reader makes of a scan, in the scan's types again."""
    return (READERS | PARTS)[name](scan).cast(scan.schema)


def readable(name: str, schema: pa.Schema) -> bool:
    """DuckDB has no numbers of 16 bits."""
    return name != "duckdb" or "halffloat" not in str(schema)


def check_readers(seed: int, folder: Path, filters: int) -> int:
    """Read one random table with random filters, columns and limits; returns how many were compared."""
    rng = Random(seed)
    table = page_table(rng, folder)
    planner = WarehouseTable(table.warehouse, table.pointer)
    oracle = Oracle(table.schema)
    names = [column.name for column in table.schema.columns]
    compared = 0
    for _ in range(filters):
        predicate = generate.predicate(rng, table.schema, table.seen)
        matching = [row for rows in table.rows.values() for row in rows if oracle.decide(predicate, row) is True]
        chosen = rng.sample(names, rng.randint(1, len(names)))
        wanted = lines(expected(table, matching).select(chosen))
        limit = rng.randint(0, len(matching) + 1)
        whole = planner.scan(predicate, columns=tuple(chosen))
        some = planner.scan(predicate, columns=tuple(chosen), limit=limit)
        try:
            schema = whole.schema
        except FilterNotEvaluable:
            continue
        for name in (*READERS, *PARTS):
            if not readable(name, schema):
                continue
            compared += 1
            case = f"seed {seed}, {name}: {text_of(predicate)}"
            assert lines(read(name, whole)) == wanted, case
            if name in READERS:
                found = lines(read(name, some))
                assert len(found) == min(limit, len(matching)), case
                assert set(found) <= set(wanted), case
    forget_files(table)
    return compared


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_every_reader_has_the_rows_of_a_full_scan(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Over random tables, filters, columns and limits, against a decision row by row."""
    check_readers(seed, tmp_path_factory.getbasetemp(), filters=3)


@pytest.mark.soak
def test_readers_agree_over_thousands_of_reads(tmp_path: Path) -> None:
    """The same at length."""
    compared = sum(check_readers(seed, tmp_path, filters=6) for seed in range(1 << 40, (1 << 40) + 300))
    print(f"{compared} reads, each equal to a decision row by row")


@pytest.fixture
def planner(tmp_path: Path) -> WarehouseTable:
    """Four files of a thousand rows, with nulls and NaN."""
    return written(tmp_path, *(some_rows(first) for first in range(0, 4_000, 1_000)))


def some_rows(first: int) -> pa.Table:
    """A thousand rows, counted from ``first``."""
    ids = range(first, first + 1_000)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": [float("nan") if at % 7 == 0 else None if at % 5 == 0 else at / 3 for at in ids],
            "flag": [None if at % 3 == 0 else at % 2 == 0 for at in ids],
            "tags": [[f"t{at % 9}", None] for at in ids],
        }
    )


@pytest.mark.parametrize("name", [*READERS, *PARTS])
@pytest.mark.parametrize("condition", ["id < 0", "id > 500 AND id IN (-1, 77)"])
def test_nothing_found_keeps_the_columns(planner: WarehouseTable, name: str, condition: str) -> None:
    """With no block left, and with blocks that turn out to hold no such row."""
    scan = planner.scan(condition, columns=("x", "tags"))
    found = (READERS | PARTS)[name](scan)
    assert found.num_rows == 0
    assert found.cast(scan.schema).schema == scan.schema
    assert scan.schema.names == ["x", "tags"]


@pytest.mark.parametrize("name", [*READERS, *PARTS])
def test_older_blocks_have_the_columns_of_now(tmp_path: Path, name: str) -> None:
    """Renamed, widened, added with and without a default, in one table; and the names of an older snapshot."""
    table, before = evolved(tmp_path)
    scan = table.scan("b IS NULL OR b <> 'two'")
    assert lines(read(name, scan)) == lines(scan.to_arrow())
    assert len(lines(scan.to_arrow())) == 4
    old = table.scan(snapshot_id=before.snapshot_id)
    assert read(name, old).schema.names == ["id", "a", "gone", "s"]
    assert lines(read(name, old)) == lines(old.to_arrow())


def test_an_order_is_preserved_by_every_reader(planner: WarehouseTable) -> None:
    """The first rows of an order come in it."""
    scan = planner.scan("x < 100", order_by=(OrderBy(column="id", descending=True),), limit=5)
    wanted = scan.to_arrow().column("id").to_pylist()
    assert wanted == sorted(wanted, reverse=True)
    for name in READERS:
        assert read(name, scan).column("id").to_pylist() == wanted, name


def rows_of(relation: duckdb.DuckDBPyRelation | None) -> list[Any]:
    """What a SELECT gives."""
    assert relation is not None
    return relation.fetchall()


@pytest.mark.slow
def test_duckdb_reads_a_relation_as_often_as_it_is_queried(planner: WarehouseTable) -> None:
    """Lazily, by either connection; its own filters follow its own rules, in which NaN is greatest too."""
    scan = planner.scan("id >= 3000")
    orders = scan.to_duckdb()
    assert rows_of(duckdb.sql("SELECT count(*), min(id) FROM orders")) == [(1_000, 3_000)]
    assert orders.filter("x > 1332").aggregate("count(*)").fetchall() == [
        (planner.scan("id >= 3000 AND x > 1332").count(),)
    ]
    with duckdb.connect() as connection:
        own = scan.to_duckdb(connection)
        own.create("kept")
        assert rows_of(connection.sql("SELECT count(*) FROM kept JOIN own USING (id)")) == [(1_000,)]


@pytest.mark.slow
def test_a_relation_gives_the_reading_up_when_it_has_enough(planner: WarehouseTable) -> None:
    """No thread of the scan outlives a query that takes three rows, nor a stream that is dropped."""
    before = set(threading.enumerate())  # tests before this one may have left some of their own
    with duckdb.connect() as connection:
        assert len(planner.scan(workers=1).to_duckdb(connection).limit(3).fetchall()) == 3
    assert planner.scan(workers=1).to_reader().read_next_batch().num_rows == 1_000
    gc.collect()  # what was dropped may hang in a cycle
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("lamella-"):  # others are not ours, and those of DuckDB and Arrow cannot be joined
            thread.join(30)
            assert not thread.is_alive(), thread.name


def test_a_file_that_was_replaced_fails_every_reader(planner: WarehouseTable, tmp_path: Path) -> None:
    """As the scan's own error; through Arrow's C interface its text is in an error of the reader's own."""
    others = {"duckdb": duckdb.Error, "stream": pa.ArrowException}
    scans = [planner.scan() for _ in (*READERS, *PARTS)]
    parts = scans[0].fragments()
    (tmp_path / "2.parquet").write_bytes((tmp_path / "1.parquet").read_bytes() + b"PAR1")
    for name, scan in zip((*READERS, *PARTS), scans, strict=True):
        with pytest.raises(others.get(name, BlockReplaced), match=r"2\.parquet is not the file"):
            read(name, scan)
    assert [part.to_arrow().num_rows for part in parts if "2.parquet" not in part.location] == [1_000] * 3


def test_pandas_takes_the_options_of_pyarrow(planner: WarehouseTable) -> None:
    """Without any, nulls turn integers and booleans into what pandas has for them."""
    scan = planner.scan("id < 10", columns=("id", "flag"))
    assert [str(kind) for kind in scan.to_pandas().dtypes] == ["int64", "object"]
    assert [str(kind) for kind in scan.to_pandas(types_mapper=pd.ArrowDtype).dtypes] == [
        "int64[pyarrow]",
        "bool[pyarrow]",
    ]


def test_polars_takes_a_scan_as_it_stands(planner: WarehouseTable) -> None:
    """By ``to_polars``, and by Arrow's interface."""
    scan = planner.scan("id BETWEEN 990 AND 1010")
    assert scan.to_polars().equals(pl.DataFrame(scan))
    assert scan.to_polars().lazy().filter(pl.col("id") > 1_000).select(pl.len()).collect().item() == 10


@pytest.mark.parametrize(
    ("library", "method"),
    [("pandas", "to_pandas"), ("polars", "to_polars"), ("duckdb", "to_duckdb"), ("dask", "to_dask")],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    planner: WarehouseTable, monkeypatch: pytest.MonkeyPatch, library: str, method: str
) -> None:
    """What to install stands in the error."""
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'lamella\[{library}\]'"):
        getattr(planner.scan(), method)()


def test_the_types_of_parts_do_not_depend_on_nulls(planner: WarehouseTable) -> None:
    """A partition of Dask without a null has the types of one with them."""
    frame: Any = planner.scan().to_dask()
    kinds = {str(dict(part.compute(scheduler="sync").dtypes)) for part in frame.partitions}
    assert kinds == {str(dict(frame.dtypes))}
    assert frame.npartitions == 4
