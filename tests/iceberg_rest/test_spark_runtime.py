"""Iceberg's own Spark runtime reads Lamella's tables as Spark reads the files, skipping what the service skips."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from conftest import path_from_script
from lamella.client.http import Lamella
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn
from support.folder_tables import COLUMNS, filled
from support.iceberg_tables import IcebergTable, values
from support.spark_environment import spark_environment

pytestmark = [pytest.mark.soak, pytest.mark.spark]

PROGRAM: Final = Path(__file__).with_name("spark_program.py")
IVY: Final = Path(__file__).resolve().parent.parent.parent / "build" / "ivy"
_RANDOM: Final = 40
_AGGREGATES: Final = "count(*), sum(id), min(id), max(id)"
_TRAPS: Final = (
    "true",
    "small <> 7",
    "NOT (small = 7)",
    "small = 7 OR small IS NULL",
    "id IN (" + ", ".join(map(str, range(20, 221))) + ")",
    "id NOT IN (" + ", ".join(map(str, range(7, 5_007))) + ")",
    "ratio < double('Infinity')",
    "ratio >= double('Infinity')",
    "ratio > 3",
    "single = float('-Infinity')",
    "isnan(ratio)",
    "NOT isnan(ratio) AND ratio > 2",
    "ratio = 0.0",
    "ratio = -0.0",
    "name LIKE 'prefix of sixteen k0011%'",
    "name NOT LIKE 'prefix%'",
    "name LIKE '%k00030%'",
    "name <= 'prefix of sixteen k00119'",
    "price = 18.50",
    "price BETWEEN 1.11 AND 20",
    "day > DATE '2024-01-20'",
    "at < TIMESTAMP_NTZ '2024-01-03 00:00:00'",
    "when < TIMESTAMP '2024-01-03 00:00:00Z'",
    "when >= '2024-01-05'",
    "yes",
    "NOT yes",
    "data >= X'000010'",
    "empty IS NULL",
    "empty IS NOT NULL",
    "id % 5 = 0",
    "upper(name) LIKE 'K%'",
    "id < 30 AND (day IS NULL OR price > 2)",
)


_OF_FOLDERS: Final = (
    *(
        f"SELECT * FROM {{}} WHERE {each} ORDER BY id"
        for each in (
            *("true", "n = 1", "n IS NULL", "n <> 1", "big > 0", "s = 'zz'", "s <> 'zz'", "d < DATE '2000-01-01'"),
            *("d IS NULL", "price < 0", "yes", "NOT yes", "x = 0.25", "at > TIMESTAMP '2000-01-01 00:00:00'"),
            *("n = 1 OR s = 'zz'", "NOT (n = 1 AND yes)", "d = DATE '2024-02-29' AND id < 20"),
        )
    ),
    *(f"SELECT min({each}), max({each}), count({each}) FROM {{}}" for each in ("id", *COLUMNS)),
    *(f"SELECT {each}, count(*) FROM {{}} GROUP BY 1 ORDER BY 1" for each in COLUMNS),
)


def random_filter(rng: Random, rows: pa.Table, depth: int = 2) -> str:
    """A condition in SQL."""
    if depth and rng.random() < 0.6:
        one, other = (random_filter(rng, rows, depth - 1) for _ in range(2))
        return rng.choice([f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"])
    name = rng.choice(["id", "small", "ratio", "single", "price", "day", "at", "when", "name"])
    cell = rng.choice(values(rows, name))
    kind = rng.choice(["=", "<>", "<", "<=", ">", ">=", "<=>", "IS NULL", "IN", "NOT IN"])
    if kind == "IS NULL":
        return f"{name} IS NULL"
    if kind in ("IN", "NOT IN"):
        return f"{name} {kind} ({literal(name, cell)}, {literal(name, rng.choice(values(rows, name)))})"
    return f"{name} {kind} {literal(name, cell)}"


def literal(name: str, cell: Any) -> str:
    """A value in SQL."""
    if isinstance(cell, float):
        kind = "float" if name == "single" else "double"
        return f"{kind}('{'NaN' if math.isnan(cell) else cell}')".replace("inf", "Infinity")
    kinds = {"day": "DATE", "at": "TIMESTAMP_NTZ", "when": "TIMESTAMP"}
    if name in kinds:
        return f"{kinds[name]} '{cell}'"
    return f"'{cell}'" if name == "name" else str(cell)


class QueryList:
    """Questions for one Spark, which takes long to start, and where their answers are."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def add(self, *queries: str) -> list[int]:
        """Ask these, too."""
        self.queries += queries
        return list(range(len(self.queries) - len(queries), len(self.queries)))


@pytest.fixture(scope="module")
def answers(
    java_home: Path, rest_url: str, lake: Lamella, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Any]]:
    """What Spark answered, by kind of question."""
    assert java_home
    python = path_from_script("environment.py", "iceberg-spark")
    folder = tmp_path_factory.mktemp("spark")
    made = IcebergTable(lake, folder, seed=3)
    name = f"ice.ice.{made.name}"
    made.table.tag("half", [each.snapshot_id for each in made.table.snapshots()][1])
    evolved = _evolved(lake, folder)
    queries, rng = QueryList(), Random(5)
    filters = [*_TRAPS, *(random_filter(rng, made.rows) for _ in range(_RANDOM))]
    at = {
        "filters": queries.add(*(f"SELECT {_AGGREGATES} FROM {name} WHERE {each}" for each in filters)),
        "truth": queries.add(*(f"SELECT {_AGGREGATES} FROM files WHERE {each}" for each in filters)),
        "counts": queries.add(*(f"SELECT count(*) FROM {name} WHERE {each}" for each in filters)),
        "extremes": queries.add(
            *(
                f"SELECT min({c}), max({c}), count({c}) FROM {t}"
                for c in made.rows.column_names
                for t in (name, "files")
            )
        ),
        "past": queries.add(
            f"SELECT {_AGGREGATES} FROM {name} VERSION AS OF 2",
            f"SELECT {_AGGREGATES} FROM {name} VERSION AS OF 'half'",
            f"SELECT {_AGGREGATES} FROM half",
            f"SELECT snapshot_id FROM {name}.snapshots ORDER BY 1",
        ),
        "evolved": queries.add(
            "SELECT id, name, extra FROM ice.ice.changed ORDER BY id",
            "SELECT id FROM ice.ice.changed WHERE name = 'y'",
            "SELECT count(*) FROM ice.ice.changed WHERE extra IS NULL",
            f"SELECT id, b, c FROM ice.ice.changed VERSION AS OF {evolved} ORDER BY id",
            f"SELECT id FROM ice.ice.changed VERSION AS OF {evolved} WHERE b = 'x'",
        ),
        "branches": queries.add(
            *(
                query.format(table)
                for table in _branched(lake)
                for query in (
                    "SELECT id FROM {} VERSION AS OF 'audit' ORDER BY id",
                    "SELECT id FROM {}.branch_audit WHERE id > 1 ORDER BY id",
                    "SELECT id FROM {} WHERE id > 1 ORDER BY id",
                    "SELECT name, type FROM {}.refs ORDER BY name",
                )
            )
        ),
        "names": queries.add("SHOW TABLES IN ice.ice", "SELECT * FROM ice.ice.nope", "SELECT * FROM ice.nope.t"),
        "writes": queries.add(f"INSERT INTO {name} SELECT * FROM files", f"DELETE FROM {name} WHERE id = 1"),
    }
    of_folders = []
    for truth, deletes in (("truth", False), ("left", True)):
        folders = _folders(lake, folder, truth, deletes=deletes)
        of_folders += queries.add(*(query.format(of) for query in _OF_FOLDERS for of in (folders, truth)))
    half = [str(file) for file in made.files[:3]]
    found = _run(
        python,
        folder,
        {
            "uri": f"{rest_url}/iceberg",
            "ivy": str(IVY),
            "files": {
                "files": [str(file) for file in made.files],
                "half": half,
                **{name: [str(folder / f"{name}.parquet")] for name in ("truth", "left")},
            },
            "queries": queries.queries,
        },
    )
    at["folders"] = of_folders
    answers = {kind: [found[position] for position in positions] for kind, positions in at.items()}
    return answers | {"conditions": filters}


def _folders(lake: Lamella, folder: Path, truth: str, *, deletes: bool) -> str:
    """Make a table whose columns are folders, and a file with its rows; returns its name."""
    root = folder / f"{truth}_hive"
    root.mkdir()
    table = filled(lake, root)
    table.add({"n": "1"}, {"s": "a b", "d": "2024-02-29"}, {})
    if deletes:
        table.delete({0: [0], 3: [1], 4: [0], 13: [1], 14: [0]})
        table.delete({5: [1]})
    pq.write_table(table.table.scan().to_arrow(), folder / f"{truth}.parquet")
    return f"ice.{table.name}"


def _evolved(lake: Lamella, folder: Path) -> int:
    """Make a table whose columns changed; returns the id of the snapshot before that."""
    paths = [folder / f"changed{number}.parquet" for number in range(2)]
    pq.write_table(pa.table({"id": [1, 2], "b": ["x", "y"], "c": [1.5, None]}), paths[0])
    lake.create_table("ice.changed", schema_from=f"file://{paths[0]}")
    table = lake.table("ice.changed")
    table.register([f"file://{paths[0]}"])
    table.evolve([RenameColumn(column="b", name="name"), DropColumn(column="c"), AddColumn(name="extra", type="int64")])
    pq.write_table(pa.table({"id": [3], "name": ["z"], "extra": [9]}), paths[1])
    table.register([f"file://{paths[1]}"])
    return 2


def _branched(lake: Lamella) -> list[str]:
    """Make a table of Lamella's own, and one of Iceberg clients, each with a branch; returns their names in Spark."""
    own = lake.table("ice.branched")
    own.append({"id": [1, 2]}, create=True)
    own.create_branch("audit")
    own.branch("audit").append({"id": [3]})
    own.append({"id": [4]})
    catalog = load_catalog("lake", type="rest", uri=f"{lake.url}/iceberg")

    def row(*ids: int) -> pa.Table:
        return pa.table({"id": pa.array(ids, pa.int64())})

    hosted = catalog.create_table("ice.branched_by_client", schema=row(1).schema)
    hosted.append(row(1, 2))
    hosted.manage_snapshots().create_branch(hosted.refs()["main"].snapshot_id, "audit").commit()
    hosted.append(row(3), branch="audit")
    hosted.append(row(4))
    return ["ice.ice.branched", "ice.ice.branched_by_client"]


def _run(python: Path, folder: Path, given: dict[str, Any]) -> list[Any]:
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
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[Any] = json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
    return found


def test_filters_select_the_rows_of_the_files(answers: dict[str, list[Any]]) -> None:
    """Traps and random conditions: as Spark itself, which reads all of every file."""
    for filter, found, truth in zip(answers["conditions"], answers["filters"], answers["truth"], strict=True):
        assert isinstance(truth, list), (filter, truth)
        assert found == truth, filter


def test_counts_are_those_of_the_rows(answers: dict[str, list[Any]]) -> None:
    """Also where Spark has nothing to read for them."""
    for filter, found, truth in zip(answers["conditions"], answers["counts"], answers["truth"], strict=True):
        assert found == [[truth[0][0]]], filter


def test_minima_and_maxima_are_exact(answers: dict[str, list[Any]]) -> None:
    """Spark takes them from statistics where it may; NaN and zeros of either sign are where they are in the rows."""
    pairs = answers["extremes"]
    for found, truth in zip(pairs[::2], pairs[1::2], strict=True):
        assert found == truth


def test_the_past_is_read(answers: dict[str, list[Any]]) -> None:
    """By id and by tag, with the metadata table of snapshots."""
    by_id, by_tag, truth, snapshots = answers["past"]
    assert by_id == by_tag == truth
    assert snapshots == [["1"], ["2"], ["3"]]


def test_branches_are_read(answers: dict[str, list[Any]]) -> None:
    """Of Lamella's own tables, and of those of Iceberg clients, by their names as versions and as tables."""
    found = answers["branches"]
    wanted = [[["1"], ["2"], ["3"]], [["2"], ["3"]], [["2"], ["4"]], [["audit", "BRANCH"], ["main", "BRANCH"]]]
    assert found == [*wanted, *wanted]


def test_columns_are_read_by_what_they_were_called(answers: dict[str, list[Any]]) -> None:
    """Renamed, dropped and added ones, now and in the past."""
    now, named, without, then, filtered = answers["evolved"]
    assert now == [["1", "x", None], ["2", "y", None], ["3", "z", "9"]]
    assert (named, without) == ([["2"]], [["2"]])
    assert then == [["1", "x", "1.5"], ["2", "y", None]]
    assert filtered == [["1"]]


def test_names_that_are_not_there_and_writes_to_lamellas_own_tables_are_refused(answers: dict[str, list[Any]]) -> None:
    """By errors that say so; the table is as it was."""
    tables, *missing = answers["names"]
    assert ["ice", "changed", "False"] in tables
    assert all("TABLE_OR_VIEW_NOT_FOUND" in each["error"] for each in missing)
    assert all("error" in each for each in answers["writes"])


def test_values_of_folders_are_read_and_deleted_rows_are_not(answers: dict[str, list[Any]]) -> None:
    """As identity partitions and deletion vectors: rows, filters, extremes and groups are those of one file with all
    rows."""
    found = answers["folders"]
    for query, ours, truth in zip(_OF_FOLDERS * 2, found[::2], found[1::2], strict=True):
        assert isinstance(truth, list), (query, truth)
        assert ours == truth, query
