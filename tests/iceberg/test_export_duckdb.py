"""DuckDB's Iceberg extension reads an export as DuckDB reads the files, all of them and without skipping."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import path_from_script
from lamella.client.http import Lamella
from lamella.client.iceberg.export import export_iceberg
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn
from lamella.snapshot.storage import FsspecStore
from support.iceberg_tables import IcebergTable, values

PROGRAM: Final = Path(__file__).with_name("duckdb_program.py")
_FILTERS: Final = (
    "true",
    "NOT yes",
    "empty IS NULL",
    "small <> 7",
    "small IS NULL OR small = 7",
    "isnan(ratio)",
    "ratio > 3",
    "ratio >= 'Infinity'::DOUBLE",
    "ratio < 'Infinity'::DOUBLE",
    "ratio = -0.0",
    "single = 0.0",
    "name LIKE 'prefix of sixteen k0011%'",
    "name NOT LIKE 'prefix%'",
    "name <= 'prefix of sixteen k00119'",
    f"id IN ({', '.join(map(str, range(20, 221)))})",
    "id NOT IN (1, 2, 3)",
    "price = 18.50",
    "day > DATE '2024-01-20'",
    "\"at\" < TIMESTAMP '2024-01-03 00:00:00'",
)
_LITERALS: Final = {
    **{"id": "{}", "small": "{}", "ratio": "'{}'::DOUBLE", "single": "'{}'::FLOAT", "price": "{}", "day": "DATE '{}'"},
    **{"at": "TIMESTAMP '{}'", "when": "TIMESTAMPTZ '{}'", "name": "'{}'"},
}
_SUMS: Final = "count(*), sum(id), min(id), max(id), count(name), count(ratio)"


def random_filters(rng: Random, table: IcebergTable, count: int) -> list[str]:
    """Comparisons with values that the columns have."""
    found = []
    for _ in range(count):
        name = rng.choice(list(_LITERALS))
        value = _LITERALS[name].format(rng.choice(values(table.rows, name)))
        found.append(f'"{name}" {rng.choice(["=", "<>", "<", "<=", ">", ">="])} {value}')
    return found


def answers(setup: list[str], queries: list[str]) -> list[Any]:
    """What DuckDB answers."""
    done = subprocess.run(
        [path_from_script("environment.py", "iceberg-duckdb"), PROGRAM],
        input=json.dumps({"setup": setup, "queries": queries}),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found: list[Any] = json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
    return found


@pytest.fixture
def lake(export_url: str) -> Lamella:
    """The service's client, with a namespace ``ice``."""
    lake = Lamella(export_url)
    if "ice" not in [each.name for each in lake.namespaces()]:
        lake.create_namespace("ice")
    return lake


def test_filters_select_the_rows_of_the_files(lake: Lamella, tmp_path: Path) -> None:
    """Nulls, NaN, zeros, infinities, long text and lists."""
    with lake:
        made = IcebergTable(lake, tmp_path, seed=11)
        folder = export_iceberg(lake, f"ice.{made.name}", FsspecStore()).location.removeprefix("file://")
    files = ", ".join(f"'{file}'" for file in made.files)
    filters = [*_FILTERS, *random_filters(Random(2), made, 40)]
    found = answers(
        [f"CREATE TABLE files AS FROM read_parquet([{files}])"],
        [
            f"SELECT {_SUMS} FROM {source} WHERE {each}"
            for each in filters
            for source in (f"iceberg_scan('{folder}')", "files")
        ],
    )
    for filter, exported, truth in zip(filters, found[::2], found[1::2], strict=True):
        assert exported == truth, filter


def test_columns_and_snapshots_of_before_are_read(lake: Lamella, tmp_path: Path) -> None:
    """Renamed, dropped and added columns by the mapping of names; an earlier snapshot by its number."""
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    pq.write_table(pa.table({"id": [1, 2], "b": ["x", "y"], "c": [1.5, None]}), paths[0])
    pq.write_table(pa.table({"id": [3], "name": ["z"], "extra": [9]}), paths[1])
    with lake:
        name = f"ice.changed_{tmp_path.name}"
        lake.create_table(name, schema_from=f"file://{paths[0]}")
        table = lake.table(name)
        table.register([f"file://{paths[0]}"])
        rename, drop = RenameColumn(column="b", name="name"), DropColumn(column="c")
        table.evolve([rename, drop, AddColumn(name="extra", type="int64")])
        earlier = export_iceberg(lake, name, FsspecStore()).number
        table.register([f"file://{paths[1]}"])
        folder = export_iceberg(lake, name, FsspecStore()).location.removeprefix("file://")
    scan = f"iceberg_scan('{folder}')"
    now, filtered, then = answers(
        [],
        [
            f"SELECT id, name, extra FROM {scan} ORDER BY id",
            f"SELECT id FROM {scan} WHERE name = 'y' OR extra = 9 ORDER BY id",
            f"SELECT id FROM iceberg_scan('{folder}', snapshot_from_id = {earlier}) ORDER BY id",
        ],
    )
    assert now == [["1", "x", "None"], ["2", "y", "None"], ["3", "z", "9"]]
    assert (filtered, then) == ([["2"], ["3"]], [["1"], ["2"]])
