"""Values that files do not hold are identity partitions of an export: each reader supplies them and skips by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import eq, gt, lt
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import pytest
from pyiceberg import expressions
from pyiceberg.table import StaticTable

from iceberg.test_export_duckdb import answers
from lamella.client.http import Lamella
from lamella.client.iceberg.export import ExportResult
from lamella.snapshot.errors import NotExpressible
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn, WidenColumn
from support.folder_tables import COLUMNS, HIVE_NULL, FolderTable, filled

e: Any = expressions
_COMPARISONS: Final[dict[Any, Callable[[Any, Any], bool]]] = {e.EqualTo: eq, e.LessThan: lt, e.GreaterThan: gt}


def as_counter(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows without their order."""
    return Counter(repr(sorted(row.items())) for row in rows)


def read(done: ExportResult, filter: Any = None, snapshot: int | None = None) -> Counter[str]:
    """What pyiceberg reads."""
    table = StaticTable.from_metadata(done.metadata_location)
    scan = table.scan(snapshot_id=snapshot) if filter is None else table.scan(filter, snapshot_id=snapshot)
    return as_counter(scan.to_arrow().to_pylist())


@pytest.fixture
def lake(export_url: str) -> Iterator[Lamella]:
    """The service's client, with a namespace ``ice``."""
    with Lamella(export_url) as lake:
        if "ice" not in [each.name for each in lake.namespaces()]:
            lake.create_namespace("ice")
        yield lake


@pytest.mark.parametrize("column", COLUMNS)
def test_values_of_folders_are_read(lake: Lamella, tmp_path: Path, column: str) -> None:
    """Of each type, also null; filters find the same rows as in all rows, and open only files that have some."""
    table = FolderTable(lake, tmp_path, (column,))
    table.add(*({column: text} for text in COLUMNS[column][1]), {})
    done, rows = table.export(), table.rows()
    assert read(done) == as_counter(rows)
    values = {row[column] for row in rows}
    assert len(values) == len({*COLUMNS[column][1], HIVE_NULL})
    nulls = [row for row in rows if row[column] is None]
    assert read(done, e.IsNull(column)) == as_counter(nulls)
    opened = StaticTable.from_metadata(done.metadata_location)
    for value in values - {None}:
        literal = value.isoformat() if hasattr(value, "isoformat") else value
        for kind, holds in _COMPARISONS.items():
            if column == "yes" and kind is not e.EqualTo:
                continue
            expected = [row for row in rows if row[column] is not None and holds(row[column], value)]
            assert read(done, kind(column, literal)) == as_counter(expected), (kind, value)
        # The file without a folder has no statistics of the column that it lacks.
        assert len(list(opened.scan(e.EqualTo(column, literal)).plan_files())) <= 2


def test_files_of_one_segment_may_have_constants_in_different_columns(lake: Lamella, tmp_path: Path) -> None:
    """Each set of columns has a manifest; the next export writes those of new segments only."""
    table = FolderTable(lake, tmp_path, ("n", "s"))
    table.add({"n": "1", "s": "x"}, {"n": "2", "s": "x"}, {"n": "1"}, {"s": "y"}, {})
    first, rows = table.export(), table.rows()
    assert (read(first), first.manifests_written, first.manifests_reused) == (as_counter(rows), 4, 0)
    assert table.export().is_changed is False
    table.add({"n": "3", "s": "z"})
    second = table.export()
    assert (second.manifests_written, second.manifests_reused) == (1, 4)
    assert read(second) == as_counter(table.rows())
    assert read(second, snapshot=first.number) == as_counter(rows)
    assert read(second, e.EqualTo("n", 1)) == as_counter([row for row in table.rows() if row["n"] == 1])


def test_an_export_with_unused_manifests_is_finished(lake: Lamella, tmp_path: Path) -> None:
    """Those of one that stopped before its list are used as they are."""
    table = FolderTable(lake, tmp_path, ("n", "s"))
    table.add({"n": "1", "s": "x"}, {"n": "1"})
    done = table.export()
    folder = Path(done.location.removeprefix("file://")) / "metadata"
    for path in folder.iterdir():
        if path.suffix != ".avro" or path.name.startswith("snap-"):
            path.unlink()
    again = table.export()
    assert (again.manifests_written, again.manifests_reused) == (0, 2)
    assert read(again) == as_counter(table.rows())


def test_schema_changes_reach_the_partitions(lake: Lamella, tmp_path: Path) -> None:
    """Renamed, widened and added columns; a dropped one ends the snapshots that were exported with it."""
    table = FolderTable(lake, tmp_path, ("n", "s"))
    table.add({"n": "1", "s": "x"}, {"n": "2", "s": "y"})
    before, number = table.rows(), table.export().number
    rename, widen = RenameColumn(column="n", name="number"), WidenColumn(column="n", type="int64")
    table.table.evolve([widen, rename, AddColumn(name="more", type="string")])
    done = table.export()
    assert read(done) == as_counter(table.rows())
    assert read(done, e.EqualTo("number", 2)) == as_counter([row for row in table.rows() if row["number"] == 2])
    assert read(done, snapshot=number) == as_counter(before)
    table.table.evolve([DropColumn(column="s")])
    done = table.export()
    assert (read(done), done.forgotten) == (as_counter(table.rows()), 2)
    assert table.export().is_changed is False
    table.compact()
    done = table.export()
    assert read(done) == as_counter(table.rows())
    assert read(done, e.EqualTo("number", 1)) == as_counter([row for row in table.rows() if row["number"] == 1])


def test_infinity_is_read(lake: Lamella, tmp_path: Path) -> None:
    """A value as any other."""
    table = FolderTable(lake, tmp_path, ("x",))
    table.add({"x": "-Infinity"}, {"x": "Infinity"}, {"x": "1.0"})
    done = table.export()
    assert read(done) == as_counter(table.rows())
    assert read(done, e.LessThan("x", 1.0)) == as_counter([row for row in table.rows() if row["x"] < 1])


@pytest.mark.parametrize("text", ["NaN", "-0.0", "0.1", "1e300"])
def test_a_value_that_readers_compare_otherwise_is_refused(lake: Lamella, tmp_path: Path, text: str) -> None:
    """NaN is the greatest number in Spark, -0.0 equals 0.0, and pyiceberg reads doubles as floats. Compacted files are
    read."""
    table = FolderTable(lake, tmp_path, ("x",))
    table.add({"x": text}, {"x": text})
    with pytest.raises(NotExpressible, match="in another way than Spark"):
        table.export()
    table.compact()
    assert read(table.export()) == as_counter(table.rows())


def test_duckdb_reads_the_values(lake: Lamella, tmp_path: Path) -> None:
    """All rows, and those of filters on the columns, as of the same rows in one file."""
    table = filled(lake, tmp_path)
    folder = table.export().location.removeprefix("file://")
    pq.write_table(table.table.scan().to_arrow(), tmp_path / "truth.parquet")
    scan, truth = f"iceberg_scan('{folder}')", f"read_parquet('{tmp_path / 'truth.parquet'}')"
    filters = [
        "true",
        *("n = 1", "n IS NULL", "n <> 1", "big > 0", "s = 'zz'", "s <> 'zz'", "d < DATE '2000-01-01'", "d IS NULL"),
        *("price < 0", "yes", "NOT yes", "x = 0.25", "x < 0", "\"at\" > TIMESTAMPTZ '2000-01-01 00:00:00+00'"),
    ]
    shown = ", ".join(f'"{name}"::VARCHAR' for name in ("id", *COLUMNS))
    found = answers(
        [],
        [f"SELECT {shown} FROM {source} WHERE {each} ORDER BY ALL" for each in filters for source in (scan, truth)],  # noqa: S608
    )
    for each, exported, expected in zip(filters, found[::2], found[1::2], strict=True):
        assert exported == expected, each
