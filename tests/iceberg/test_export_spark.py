"""Iceberg's own Spark runtime plans an export by its manifests alone, and finds what Spark finds in the files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow.parquet as pq
import pytest

from conftest import path_from_script
from lamella.client.http import Lamella
from lamella.client.iceberg.export import ExportOptions, export_iceberg
from lamella.snapshot.storage import FsspecStore
from support.folder_tables import COLUMNS, filled
from support.iceberg_tables import IcebergTable, values
from support.spark_environment import spark_environment

pytestmark = [pytest.mark.soak, pytest.mark.spark]

PROGRAM: Final = Path(__file__).with_name("spark_export_program.py")
IVY: Final = Path(__file__).resolve().parent.parent.parent / "build" / "ivy"
_AGGREGATES: Final = "count(*), sum(id), min(id), max(id)"
#: Every column of the test's tables, as SQL writes its values.
_LITERALS: Final = {
    **{"id": "{}", "small": "{}", "ratio": "double('{}')", "single": "float('{}')", "price": "{}"},
    **{"day": "DATE '{}'", "at": "TIMESTAMP_NTZ '{}'", "when": "TIMESTAMP '{}'", "name": "'{}'"},
}
_MORE: Final = (
    "true",
    "NOT yes",
    "empty IS NULL",
    "small <> 7",
    "small IS NULL OR small = 7",
    "isnan(ratio)",
    "ratio > 3",
    "single = 0.0",
    "ratio = -0.0",
    "name LIKE 'prefix of sixteen k0011%'",
    "name NOT LIKE 'prefix%'",
    "id NOT IN (1, 2, 3)",
    "data >= X'000010'",
)


def random_filters(rng: Random, table: IcebergTable, count: int) -> list[str]:
    """Comparisons with values that the columns have."""
    found = []
    for _ in range(count):
        name = rng.choice(list(_LITERALS))
        value = _LITERALS[name].format(str(rng.choice(values(table.rows, name))).replace("inf", "Infinity"))
        found.append(f"{name} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {value}")
    return found


def answers(given: dict[str, Any], folder: Path) -> list[Any]:
    """What Spark answers."""
    python = path_from_script("environment.py", "iceberg-spark")
    done = subprocess.run(
        [python, PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=spark_environment(python),
        cwd=folder,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found: list[Any] = json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
    return found


def test_spark_reads_an_export(java_home: Path, export_url: str, tmp_path: Path) -> None:
    """Filters, counts, least and greatest values from statistics, a snapshot of before, and the table of files."""
    assert java_home
    with Lamella(export_url) as lake:
        if "ice" not in [each.name for each in lake.namespaces()]:
            lake.create_namespace("ice")
        made = IcebergTable(lake, tmp_path, seed=4)
        before, *_ = list(made.table.snapshots())[1:]
        name = f"ice.{made.name}"
        for snapshot_id in (before.snapshot_id, None):
            done = export_iceberg(lake, name, FsspecStore(), ExportOptions(snapshot=snapshot_id))
        folder = made.table.info().location
    filters = [*_MORE, *random_filters(Random(4), made, 30)]
    columns = made.rows.column_names
    queries = [f"SELECT {_AGGREGATES} FROM {{}} WHERE {each}" for each in filters]
    queries += [f"SELECT min({each}), max({each}), count({each}) FROM {{}}" for each in columns]
    statements = [query.format(of) for query in queries for of in ("export", "files")]
    statements += [
        f"SELECT count(*) FROM lake._iceberg VERSION AS OF {before.number}",
        "SELECT sum(record_count), count(*) FROM lake._iceberg.files",
        "EXPLAIN SELECT max(day), count(*) FROM export",
    ]
    given = {"ivy": str(IVY), "folder": folder, "files": list(map(str, made.files)), "queries": statements}
    found = answers(given, tmp_path)
    for query, export, truth in zip(queries, found[::2], found[1::2], strict=False):
        assert isinstance(truth, list), (query, truth)
        assert export == truth, query
    old, files, plan = found[-3:]
    assert old == [[str(before.row_count)]]
    assert files == [[str(done.rows), str(done.files)]]
    assert "LocalTableScan" in plan[0][0]


@pytest.mark.parametrize("deletes", [False, True])
def test_spark_reads_constants_and_vectors_of_an_export(
    java_home: Path, export_url: str, tmp_path: Path, deletes: bool
) -> None:
    """Values of folders are identity partitions: filters on them find the rows that they find in one file."""
    assert java_home
    with Lamella(export_url) as lake:
        if "ice" not in [each.name for each in lake.namespaces()]:
            lake.create_namespace("ice")
        table = filled(lake, tmp_path)
        table.add({"n": "1"}, {"s": "a b", "d": "2024-02-29"}, {})
        if deletes:
            table.delete({0: [0], 3: [1], 4: [0], 13: [1], 14: [0]})
            table.delete({5: [1]})
        table.export()
        folder, truth = table.table.info().location, tmp_path / "truth.parquet"
        pq.write_table(table.table.scan().to_arrow(), truth)
    filters = [
        *("true", "n = 1", "n IS NULL", "n <> 1", "big > 0", "s = 'zz'", "s <> 'zz'", "d < DATE '2000-01-01'"),
        *("d IS NULL", "price < 0", "yes", "NOT yes", "x = 0.25", "x < 0", "at > TIMESTAMP '2000-01-01 00:00:00'"),
        *("x = double('-Infinity')", "n = 1 OR s = 'zz'", "NOT (n = 1 AND yes)", "id < 10 AND n IS NOT NULL"),
    ]
    queries = [f"SELECT * FROM {{}} WHERE {each} ORDER BY id" for each in filters]
    queries += [f"SELECT min({each}), max({each}), count({each}) FROM {{}}" for each in ("id", *COLUMNS)]
    queries += [f"SELECT {each}, count(*) FROM {{}} GROUP BY 1 ORDER BY 1" for each in COLUMNS]
    statements = [query.format(of) for query in queries for of in ("export", "files")]
    found = answers({"ivy": str(IVY), "folder": folder, "files": [str(truth)], "queries": statements}, tmp_path)
    for query, export, expected in zip(queries, found[::2], found[1::2], strict=True):
        assert isinstance(expected, list), (query, expected)
        assert export == expected, query
