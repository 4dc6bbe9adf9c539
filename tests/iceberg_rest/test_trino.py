"""Trino reads exported tables through the warehouse `exports` as it reads tables that hold all their rows."""

# ruff: noqa: S608  # names of the tests' own tables in SQL
from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lamella.client.http import Lamella
from lamella.client.http.client import Table
from lamella.client.iceberg.export import export_iceberg
from lamella.snapshot.schema.evolution import AddColumn, DropColumn, RenameColumn
from lamella.snapshot.storage import FsspecStore
from support.folder_tables import COLUMNS, filled
from support.iceberg_tables import IcebergTable, values
from support.trino import Trino, trino

pytestmark = [pytest.mark.soak, pytest.mark.process]

_RANDOM: Final = 60
_TRAPS: Final = (
    "small <> 7",
    "NOT (small = 7)",
    "small = 7 OR small IS NULL",
    "id IN (20, 30, 70)",
    "ratio < infinity()",
    "ratio >= infinity()",
    "ratio > 3",
    "is_nan(ratio)",
    "NOT is_nan(ratio) AND ratio > 2",
    "ratio = 0.0",
    "ratio = -0.0",
    "name LIKE 'prefix of sixteen k0011%'",
    "name NOT LIKE 'prefix%'",
    "name <= 'prefix of sixteen k00119'",
    "price BETWEEN 1.11 AND 20",
    "day > DATE '2024-01-20'",
    "at < TIMESTAMP '2024-01-03 00:00:00'",
    "\"when\" < TIMESTAMP '2024-01-03 00:00:00 UTC'",
    "yes",
    "NOT yes",
    "data >= X'000010'",
    "empty IS NULL",
    "empty IS NOT NULL",
    "id % 5 = 0",
)
_OF_FOLDERS: Final = (
    *("n = 1", "n IS NULL", "n <> 1", "big > 0", "s = 'zz'", "s <> 'zz'", "d < DATE '2000-01-01'", "d IS NULL"),
    *("price < 0", "yes", "NOT yes", "x = 0.25", "at > TIMESTAMP '2000-01-01 00:00:00'", "n = 1 OR s = 'zz'"),
    *("NOT (n = 1 AND yes)", "d = DATE '2024-02-29' AND id < 20"),
)


@pytest.fixture(scope="module")
def engine(rest_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trino]:
    """A Trino with the service's tables as `lake`, and their exports as `exports`."""
    common = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": f"{rest_url}/iceberg",
        "fs.native-local.enabled": "true",
        "local.location": "/",
    }
    exports = common | {"iceberg.rest-catalog.warehouse": "exports", "iceberg.security": "read_only"}
    writable = common | {"iceberg.rest-catalog.warehouse": "exports"}
    with trino(tmp_path_factory.mktemp("trino"), lake=common, exports=exports, writable=writable) as started:
        yield started


def shown(value: Any) -> Any:
    """A value as Trino's protocol has it."""
    match value:
        case bool() | int() | str() | None:
            return value
        case float():
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), value)
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            zone = " UTC" if value.tzinfo else ""
            return f"{value:%Y-%m-%d %H:%M:%S.%f}{zone}"
        case dt.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return [shown(each) for each in value.values()]
        case list():
            # A map is a list of pairs; Trino's is an object.
            pairs = bool(value) and all(isinstance(each, tuple) for each in value)
            return {str(k): shown(v) for k, v in value} if pairs else [shown(each) for each in value]
        case _:
            raise TypeError(type(value))


def all_rows(table: Table, columns: list[str]) -> list[list[Any]]:
    """All rows as Lamella's scan reads them, by id."""
    rows = table.scan(columns=columns).to_arrow().sort_by("id").to_pylist()
    return [[shown(row[name]) for name in columns] for row in rows]


def export(lake: Lamella, name: str) -> None:
    """Write the metadata that Trino reads."""
    export_iceberg(lake, name, FsspecStore())


def quoted(columns: list[str]) -> str:
    """Their names in SQL."""
    return ", ".join(f'"{name}"' for name in columns)


def compare(engine: Trino, name: str, conditions: list[str]) -> None:
    """Trino finds in the export what it finds in a table of its own memory that holds all rows."""
    engine.rows(f"CREATE TABLE memory.default.{name} AS SELECT * FROM exports.ice.{name}")
    for condition in conditions:
        query = "SELECT count(*), sum(id), min(id), max(id) FROM {} WHERE " + condition
        found, truth = (engine.rows(query.format(of)) for of in (f"exports.ice.{name}", f"memory.default.{name}"))
        assert found == truth, condition


def random_condition(rng: Random, rows: pa.Table, depth: int = 2) -> str:
    """A condition in Trino's SQL."""
    if depth and rng.random() < 0.6:
        one, other = (random_condition(rng, rows, depth - 1) for _ in range(2))
        return rng.choice([f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"])
    name = rng.choice(["id", "small", "ratio", "price", "day", "at", "when", "name"])
    kind = rng.choice(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NULL", "IN", "NOT IN"])
    if kind == "IS NULL":
        return f'"{name}" IS NULL'
    one, other = (literal(rng.choice(values(rows, name))) for _ in range(2))
    return f'"{name}" {kind} ({one}, {other})' if "IN" in kind.split() else f'"{name}" {kind} {one}'


def literal(value: Any) -> str:
    """A constant in Trino's SQL."""
    match value:
        case float() if not math.isfinite(value):
            return {"nan": "nan()", "inf": "infinity()"}.get(str(value), "-infinity()")
        case float():
            return f"DOUBLE '{value!r}'"
        case dt.datetime():
            return f"TIMESTAMP '{shown(value)}'"
        case dt.date():
            return f"DATE '{value}'"
        case str():
            return f"'{value}'"
        case _:
            return str(value)


def test_rows_of_all_types_and_filters(engine: Trino, lake: Lamella, tmp_path: Path) -> None:
    """All values, and conditions on them; the past by id and by tag."""
    made = IcebergTable(lake, tmp_path, seed=3)
    made.table.tag("half", [each.snapshot_id for each in made.table.snapshots()][1])
    export(lake, f"ice.{made.name}")
    names = made.rows.column_names
    rows = engine.rows(f"SELECT {quoted(names)} FROM exports.ice.{made.name} ORDER BY id")
    # Trino shows the shortest text of a float.
    singles, at = [row[names.index("single")] for row in rows], names.index("single")
    truth = all_rows(made.table, names)
    assert [row[:at] + row[at + 1 :] for row in rows] == [row[:at] + row[at + 1 :] for row in truth]
    exact = pa.array([None if each is None else float(each) for each in singles], pa.float32())
    assert repr(exact.to_pylist()) == repr(made.rows.sort_by("id")["single"].to_pylist())
    rng = Random(5)
    compare(engine, made.name, [*_TRAPS, *(random_condition(rng, made.rows) for _ in range(_RANDOM))])


def test_nested_and_changed_columns(engine: Trino, lake: Lamella, tmp_path: Path) -> None:
    """Structs, lists and maps; columns that were renamed, dropped and added since files were written."""
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    nested = pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())})
    first = {
        "id": [1, 2],
        "b": ["x", "y"],
        "c": [1.5, None],
        "s": pa.array([{"a": 1, "b": ["p", None]}, None], nested),
        "m": pa.array([[("k", 1)], [("n", None)]], pa.map_(pa.string(), pa.int64())),
    }
    pq.write_table(pa.table(first), paths[0])
    lake.create_table("ice.trino_nested", schema_from=f"file://{paths[0]}")
    table = lake.table("ice.trino_nested")
    table.register([f"file://{paths[0]}"])
    table.evolve([RenameColumn(column="b", name="name"), DropColumn(column="c"), AddColumn(name="extra", type="int64")])
    second = {"id": [3], "name": ["z"], "extra": [9], "s": first["s"][:1], "m": first["m"][:1]}
    pq.write_table(pa.table(second), paths[1])
    table.register([f"file://{paths[1]}"])
    export(lake, "ice.trino_nested")
    names = ["id", "name", "extra", "s", "m"]
    found = engine.rows(f"SELECT {quoted(names)} FROM exports.ice.trino_nested ORDER BY id")
    assert found == all_rows(table, names)
    some = engine.rows("SELECT id FROM exports.ice.trino_nested WHERE name = 'y' OR extra = 9 ORDER BY id")
    assert some == [[2], [3]]
    assert engine.rows("SELECT count(*) FROM exports.ice.trino_nested WHERE s.a = 1") == [[2]]


def test_values_of_folders(engine: Trino, lake: Lamella, tmp_path: Path) -> None:
    """As identity partitions: rows, and conditions that skip files by them."""
    root = tmp_path / "trino_hive"
    root.mkdir()
    table = filled(lake, root)
    table.add({"n": "1"}, {"s": "a b", "d": "2024-02-29"}, {})
    table.export()
    names = ["id", *COLUMNS]
    found = engine.rows(f"SELECT {quoted(names)} FROM exports.{table.name} ORDER BY id")
    assert found == all_rows(table.table, names)
    compare(engine, table.name.removeprefix("ice."), list(_OF_FOLDERS))


def test_deleted_rows(engine: Trino, lake: Lamella, tmp_path: Path) -> None:
    """Trino 476 does not read deletion vectors, and says so; without them, it reads the table again."""
    root = tmp_path / "trino_deleted"
    root.mkdir()
    table = filled(lake, root)
    table.delete({0: [0], 3: [1], 4: [0]})
    table.export()
    query = f"SELECT id FROM exports.{table.name} ORDER BY id"
    with pytest.raises(RuntimeError, match="Unexpected PUFFIN file format"):
        engine.rows(query)
    table.compact()
    table.export()
    assert engine.rows(query) == all_rows(table.table, ["id"])


def test_what_trino_cannot_do_says_why(engine: Trino, lake: Lamella, tmp_path: Path) -> None:
    """A table without an export, the service's own plans, and writes."""
    made = IcebergTable(lake, tmp_path, seed=4)
    with pytest.raises(RuntimeError, match="Failed to load table"):
        engine.rows(f"SELECT * FROM exports.ice.{made.name}")
    with pytest.raises(RuntimeError, match=r"[Mm]etadata|manifest"):
        engine.rows(f"SELECT * FROM lake.ice.{made.name}")
    export(lake, f"ice.{made.name}")
    for statement in ("DELETE FROM {}", "INSERT INTO {} SELECT * FROM {}", "DROP TABLE {}"):
        for catalog, why in (("exports", "Access Denied"), ("writable", "does not support endpoint")):
            with pytest.raises(RuntimeError, match=why):
                engine.rows(statement.replace("{}", f"{catalog}.ice.{made.name}"))
    assert engine.rows(f"SELECT count(*) FROM exports.ice.{made.name}") == [[made.rows.num_rows]]
