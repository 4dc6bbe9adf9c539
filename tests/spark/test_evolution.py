"""Spark SQL over tables whose schema changed: right rows from blocks of every schema, whoever wrote them."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lamella.client.http import Lamella
from lamella.client.spark import Attached, attach, read, write
from lamella.client.spark.datasource import LamellaDataSource
from lamella.client.spark.lake import Settings, load_table
from lamella.client.spark.reader import _path_frame
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.schema import Column
from lamella.snapshot.schema.evolution import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    WidenColumn,
)
from spark.lakes import Lakes, LakeTable, fresh, plan, setting

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

#: Adds rows to a table, as blocks of one kind of writer.
Add = Callable[[LakeTable, list[dict[str, Any]]], None]


def _foreign(table: LakeTable, rows: list[dict[str, Any]]) -> None:
    """Files of another writer: no field ids, names in capitals, no column that is null throughout."""
    columns = {name: [row.get(name) for row in rows] for name in rows[0]}
    there = {name.upper(): cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    table.add(pa.table(there))


def _own(spark: SparkSession) -> Add:
    def add(table: LakeTable, rows: list[dict[str, Any]]) -> None:
        schema = spark.table(table.sql).schema
        write(spark.createDataFrame(rows, schema), table.name, client=table.lake)

    return add


@pytest.fixture(params=["own", "foreign"])
def add(request: pytest.FixtureRequest, spark: SparkSession) -> Add:
    """Blocks by Lamella's writer, and by another one."""
    return _own(spark) if request.param == "own" else _foreign


def _table(lakes: Lakes, *columns: Column) -> LakeTable:
    namespace = fresh("evo")
    folder = lakes.folder / namespace
    folder.mkdir(parents=True)
    lakes.lake.create_namespace(namespace)
    lakes.lake.create_table(f"{namespace}.t", schema=columns)
    return LakeTable(lakes.lake, f"{namespace}.t", folder)


def _change(table: LakeTable, *changes: SchemaChange) -> None:
    table.lake.table(table.name).evolve(changes)


def _rows(spark: SparkSession, sql: str) -> list[dict[str, Any]]:
    found = [row.asDict(recursive=True) for row in spark.sql(sql).collect()]
    return sorted(found, key=lambda row: str(row.get("k")))


INT, TEXT = "int64", "string"


@pytest.mark.few(1)
def test_columns_that_were_added_are_null_or_their_default(spark: SparkSession, lakes: Lakes, add: Add) -> None:
    """Old blocks and new files without the column give the default of every type; filters on it agree."""
    table = _table(lakes, Column(name="k", type=INT))
    add(table, [{"k": 1}, {"k": 2}])
    defaults = {
        "b": ("boolean", "true", "true"),
        "i8": ("int8", "-3", "-3"),
        "i": ("int64", str(2**62), str(2**62)),
        "f": ("float32", "0.1", "CAST('0.1' AS FLOAT)"),
        "d": ("float64", "-1e300", "-1e300D"),
        "n": ("decimal(38,10)", "1.5", "1.5"),
        "day": ("date", "1500-01-01", "DATE '1500-01-01'"),
        "at": ("timestamp(us)", "2024-03-31T00:59:59.999999Z", "TIMESTAMP '2024-03-31 01:59:59.999999'"),
        "wall": ("timestamp_ntz(us)", "2024-03-31T02:30:00", "TIMESTAMP_NTZ '2024-03-31 02:30:00'"),
        "s": ("string", "it's \\ ä", "'it\\'s \\\\ ä'"),
        "none": ("string", None, "NULL"),
    }
    _change(table, *[AddColumn(name=n, type=t, default=given) for n, (t, given, _) in defaults.items()])
    _foreign(table, [{"k": 3}])
    for vectorised in ("true", "false"):
        with setting(spark, spark__sql__parquet__enableVectorizedReader=vectorised):
            for name, (_, _, sql) in defaults.items():
                found = _rows(spark, f"SELECT k FROM {table.sql} WHERE {name} <=> {sql}")
                assert found == [{"k": 1}, {"k": 2}, {"k": 3}], name
                assert _rows(spark, f"SELECT k FROM {table.sql} WHERE NOT ({name} <=> {sql})") == [], name
            assert len(_rows(spark, f"SELECT * FROM {table.sql}")[0]) == len(defaults) + 1


def test_a_default_that_the_vectorised_reader_cannot_hold_is_read_all_the_same(
    spark: SparkSession, lakes: Lakes
) -> None:
    """Spark's vectorised reader has no binary defaults; the rows come right, beside blocks that have the column."""
    table = _table(lakes, Column(name="k", type=INT))
    _foreign(table, [{"k": 1}])
    _change(table, AddColumn(name="raw", type="binary", default="00ff"))
    _foreign(table, [{"k": 2, "raw": b"x"}])
    assert _rows(spark, f"SELECT * FROM {table.sql}") == [{"k": 1, "raw": b"\x00\xff"}, {"k": 2, "raw": b"x"}]


def test_a_renamed_column_is_read_by_its_old_name_where_all_blocks_have_that(
    spark: SparkSession, lakes: Lakes, add: Add
) -> None:
    """One scan of Spark's own reader does it; filters still prune."""
    table = _table(lakes, Column(name="k", type=INT), Column(name="a", type=TEXT))
    add(table, [{"k": 1, "a": "x"}])
    add(table, [{"k": 2, "a": "y"}])
    _change(table, RenameColumn(column="a", name="b"), MoveColumn(column="b", first=True))
    assert _rows(spark, f"SELECT * FROM {table.sql}") == [{"b": "x", "k": 1}, {"b": "y", "k": 2}]
    frame = spark.sql(f"SELECT k, b FROM {table.sql} WHERE b = 'y'")
    assert [row.k for row in frame.collect()] == [2]
    assert "blocks=1/2 columns by their names in the files" in plan(frame)


@pytest.mark.few(1)
def test_blocks_with_different_names_for_a_column_are_read_together(
    spark: SparkSession, lakes: Lakes, add: Add
) -> None:
    """Before and after a rename, in one query: by field ids in Lamella's blocks, in Python in those of others."""
    table = _table(lakes, Column(name="k", type=INT), Column(name="a", type=INT), Column(name="z", type=TEXT))
    add(table, [{"k": 1, "a": 10, "z": "old"}, {"k": 2, "a": None, "z": "old"}])
    _change(table, RenameColumn(column="a", name="b"), AddColumn(name="a", type=TEXT, default="new a"))
    add(table, [{"k": 3, "b": 30, "z": "new", "a": "text"}])
    _change(table, DropColumn(column="z"), AddColumn(name="z", type=INT))
    add(table, [{"k": 4, "b": 2**40, "a": "", "z": 7}])
    wanted = [
        {"k": 1, "b": 10, "a": "new a", "z": None},
        {"k": 2, "b": None, "a": "new a", "z": None},
        {"k": 3, "b": 30, "a": "text", "z": None},
        {"k": 4, "b": 2**40, "a": "", "z": 7},
    ]
    frame = spark.sql(f"SELECT * FROM {table.sql}")
    assert sorted((row.asDict() for row in frame.collect()), key=lambda row: row["k"]) == wanted
    note = "READ IN PYTHON" if add is _foreign else "columns by field ids"
    assert note in plan(frame)
    for condition, keys in {
        "b > 5": [1, 3, 4],
        "b IS NULL": [2],
        "a = 'new a'": [1, 2],
        "a IS NULL": [],
        "a = ''": [4],
        "z IS NULL": [1, 2, 3],
        "b > 5000000000": [4],
        "b = 30 OR z = 7": [3, 4],
    }.items():
        frame = spark.sql(f"SELECT k FROM {table.sql} WHERE {condition}")
        assert sorted(row.k for row in frame.collect()) == keys, (condition, plan(frame))
    counted = _rows(spark, f"SELECT count(*) AS k, sum(b) AS b, count(z) AS z FROM {table.sql}")
    assert counted == [{"k": 4, "b": 40 + 2**40, "z": 1}]
    # only columns that are called the same everywhere: the usual way
    assert "columns by" not in plan(spark.sql(f"SELECT k FROM {table.sql}"))


def test_names_that_were_swapped_are_not_confused(spark: SparkSession, lakes: Lakes, add: Add) -> None:
    """Two columns exchange their names; each keeps its values, and the snapshot before is as it was."""
    table = _table(lakes, Column(name="k", type=INT), Column(name="a", type=INT), Column(name="b", type=INT))
    add(table, [{"k": 1, "a": 10, "b": 20}])
    before = table.snapshot_id()
    _change(
        table,
        RenameColumn(column="a", name="x"),
        RenameColumn(column="b", name="a"),
        RenameColumn(column="x", name="b"),
    )
    add(table, [{"k": 2, "a": 21, "b": 11}])
    assert _rows(spark, f"SELECT k, a, b FROM {table.sql}") == [{"k": 1, "a": 20, "b": 10}, {"k": 2, "a": 21, "b": 11}]
    assert _rows(spark, f"SELECT k FROM {table.sql} WHERE a = 20 AND b < 11") == [{"k": 1}]
    assert _rows(spark, f"SELECT * FROM {table.sql} VERSION AS OF '{before}'") == [{"k": 1, "a": 10, "b": 20}]


def test_fields_of_structs_and_lists_change_too(spark: SparkSession, lakes: Lakes) -> None:
    """Renamed, swapped, widened and added fields, in files of both times."""
    point = (Column(name="x", type=INT), Column(name="y", type=INT))
    line = Column(name="element", type="struct", fields=(Column(name="n", type=INT),))
    table = _table(
        lakes,
        Column(name="k", type=INT),
        Column(name="p", type="struct", fields=point),
        Column(name="l", type="list", fields=(line,)),
    )
    types = pa.schema(
        [
            ("k", pa.int64()),
            ("p", pa.struct([("x", pa.int64()), ("y", pa.int64())])),
            ("l", pa.list_(pa.struct([("n", pa.int64())]))),
        ]
    )
    old = [{"k": 1, "p": {"x": 1, "y": 2}, "l": [{"n": 5}, None]}, {"k": 2, "p": None, "l": None}]
    table.add(pa.Table.from_pylist(old, types))
    changes: list[SchemaChange] = [
        AddColumn(name="q", type=TEXT, parent="p", first=True),
        AddColumn(name="t", type=TEXT, parent="l.element"),
        RenameColumn(column="l.element.n", name="count"),
    ]
    _change(table, *changes)
    new = [{"k": 3, "p": {"q": "q", "x": 3, "y": 4}, "l": [{"count": 2**40, "t": "t"}]}]
    first = [
        {"k": 1, "p": {"q": None, "x": 1, "y": 2}, "l": [{"count": 5, "t": None}, None]},
        {"k": 2, "p": None, "l": None},
    ]
    assert _rows(spark, f"SELECT * FROM {table.sql}") == first
    # a struct is null where it was null, also when the only field that is read is younger than the file
    assert _rows(spark, f"SELECT k, p.q, p IS NULL AS gone FROM {table.sql}") == [
        {"k": 1, "q": None, "gone": False},
        {"k": 2, "q": None, "gone": True},
    ]
    types_new = pa.schema(
        [
            ("k", pa.int64()),
            ("p", pa.struct([("q", pa.string()), ("x", pa.int64()), ("y", pa.int64())])),
            ("l", pa.list_(pa.struct([("count", pa.int64()), ("t", pa.string())]))),
        ]
    )
    table.add(pa.Table.from_pylist(new, types_new))
    assert _rows(spark, f"SELECT * FROM {table.sql}") == [*first, *new]
    _change(
        table,
        RenameColumn(column="p.x", name="z"),
        RenameColumn(column="p.y", name="x"),
        RenameColumn(column="p.z", name="y"),
    )
    found = _rows(spark, f"SELECT k, p.x, p.y FROM {table.sql} WHERE p.x IS NOT NULL")
    assert found == [{"k": 1, "x": 2, "y": 1}, {"k": 3, "x": 4, "y": 3}]


def test_widened_columns_are_read_from_narrow_files(spark: SparkSession, lakes: Lakes, add: Add) -> None:
    """Every widening that Spark has types for, and filters beyond the old type's range."""
    kinds = {
        "i": ("int8", "int64"),
        "f": ("float32", "float64"),
        "n": ("decimal(5,2)", "decimal(20,4)"),
        "m": ("decimal(18,4)", "decimal(38,10)"),
    }
    table = _table(lakes, Column(name="k", type=INT), *[Column(name=n, type=t) for n, (t, _) in kinds.items()])
    as_sql = "1L AS k, CAST(5 AS TINYINT) AS i, CAST(0.5 AS FLOAT) AS f, 1.25 AS n, CAST(-0.0001 AS DECIMAL(18,4)) AS m"
    if add is _foreign:
        table.add(spark.sql(f"SELECT {as_sql}").toArrow())
    else:
        write(spark.sql(f"SELECT {as_sql}"), table.name, client=table.lake)
    _change(table, *[WidenColumn(column=n, type=t) for n, (_, t) in kinds.items()])
    for condition, hit in {
        "i < 3000000000 AND i = 5": True,
        "i > 3000000000": False,
        "f = 0.5D": True,
        "n = 1.25 AND n < 99999999.9999": True,
        "n = 1.2501": False,
        "m = -0.0001": True,
        "m < -0.0001": False,
    }.items():
        assert bool(_rows(spark, f"SELECT k FROM {table.sql} WHERE {condition}")) is hit, condition


@pytest.mark.few(1)
def test_columns_that_became_another_kind_are_read_from_old_files(spark: SparkSession, lakes: Lakes, add: Add) -> None:
    """Integers as doubles and decimals, dates as timestamps: the values that a cast gives, also beside new files."""
    kinds = {
        "a": ("int8", "float64", "TINYINT", "DOUBLE"),
        "b": ("int32", "float64", "INT", "DOUBLE"),
        "c": ("int16", "decimal(12,2)", "SMALLINT", "DECIMAL(12,2)"),
        "d": ("int64", "decimal(24,4)", "BIGINT", "DECIMAL(24,4)"),
        "e": ("date", "timestamp_ntz(us)", "DATE", "TIMESTAMP_NTZ"),
    }
    table = _table(lakes, Column(name="k", type=INT), *[Column(name=n, type=t[0]) for n, t in kinds.items()])

    def put(*texts: str) -> None:
        frame = spark.sql(f"SELECT {', '.join(texts)}")
        if add is _foreign:
            table.add(frame.toArrow())
        else:
            write(frame, table.name, client=table.lake)

    rows = {1: ("-7", "2147483647", "300", "-9223372036854775808", "'1600-02-29'"), 2: ("NULL",) * 5}
    for key, values in rows.items():
        put(f"{key}L AS k", *[f"CAST({v} AS {t[2]}) AS {n}" for v, (n, t) in zip(values, kinds.items(), strict=True)])
    _change(table, *[WidenColumn(column=n, type=t[1]) for n, t in kinds.items()])
    rows[3] = ("0.5", "double('NaN')", "-0.01", "1.2345", "'2024-02-29 10:00:00.5'")
    put("3L AS k", *[f"CAST({v} AS {t[3]}) AS {n}" for v, (n, t) in zip(rows[3], kinds.items(), strict=True)])
    names = ", ".join(["k", *kinds])
    truth = " UNION ALL ".join(
        f"SELECT {key}L AS k, "
        + ", ".join(
            f"CAST(CAST({v} AS {t[2]}) AS {t[3]}) {n}" if key < 3 else f"CAST({v} AS {t[3]}) {n}"
            for v, (n, t) in zip(values, kinds.items(), strict=True)
        )
        for key, values in rows.items()
    )
    filters = ["true", "a = -7", "a < 0.5D", "b = 2147483647", "b > 2147483646.5D", "isnan(b)", "c = 300", "c < 0"]
    filters += ["c BETWEEN 299.99 AND 300.01", "d = -9223372036854775808", "d > 1.2344", "d IS NULL", "e IS NOT NULL"]
    filters += ["e = TIMESTAMP_NTZ '1600-02-29 00:00:00'", "e > TIMESTAMP_NTZ '2024-02-29 00:00:00'", "a IN (-7, 0.5)"]
    for each in filters:
        found = spark.sql(f"SELECT {names} FROM {table.sql} WHERE {each} ORDER BY k").collect()
        expected = spark.sql(f"SELECT {names} FROM ({truth}) WHERE {each} ORDER BY k").collect()
        assert list(map(str, found)) == list(map(str, expected)), each


@pytest.mark.parametrize("sensitive", ["true", "false"])
def test_files_that_spell_names_in_another_case_are_read(spark: SparkSession, lakes: Lakes, sensitive: str) -> None:
    """Also in a session that tells names apart by case, which must not make their values null."""
    table = _table(lakes, Column(name="k", type=INT), Column(name="name", type=TEXT))
    table.add(pa.table({"K": pa.array([1], pa.int64()), "Name": ["x"]}))
    with setting(spark, spark__sql__caseSensitive=sensitive):
        assert _rows(spark, f"SELECT k, name FROM {table.sql}") == [{"k": 1, "name": "x"}]
        assert _rows(spark, f"SELECT k FROM {table.sql} WHERE name = 'x'") == [{"k": 1}]


@pytest.mark.few(1)
def test_joins_and_limits_work_on_mixed_blocks(spark: SparkSession, lakes: Lakes, add: Add) -> None:
    """Join keys narrow the blocks at run time; a limit and a self-join stay right."""
    table = _table(lakes, Column(name="k", type=INT), Column(name="a", type=INT))
    for at in range(3):
        add(table, [{"k": at * 10 + i, "a": i} for i in range(10)])
    _change(table, RenameColumn(column="a", name="b"))
    for at in range(3, 6):
        add(table, [{"k": at * 10 + i, "b": i} for i in range(10)])
    few = "(SELECT /*+ BROADCAST */ id AS x FROM range(60) WHERE id IN (5, 55))"
    joined = _rows(spark, f"SELECT k, b FROM {table.sql} JOIN {few} ON k = x")
    assert joined == [{"k": 5, "b": 5}, {"k": 55, "b": 5}]
    twice = _rows(spark, f"SELECT count(*) AS k FROM {table.sql} l JOIN {table.sql} r ON l.k = r.k AND l.b = r.b")
    assert twice == [{"k": 60}]
    assert len(_rows(spark, f"SELECT b FROM {table.sql} LIMIT 45")) == 45


def test_a_frame_without_a_column_that_has_a_default_can_be_written(
    spark: SparkSession, lakes: Lakes, lake: Lamella
) -> None:
    """The writer puts the default."""
    table = _table(lakes, Column(name="k", type=INT))
    _change(table, AddColumn(name="a", type=TEXT, default="d", nullable=False))
    write(spark.createDataFrame([{"k": 1}], "k bigint"), table.name, client=lake)
    assert _rows(spark, f"SELECT * FROM {table.sql}") == [{"k": 1, "a": "d"}]


def test_alter_table_changes_the_schema(spark: SparkSession, lakes: Lakes) -> None:
    """Spark's own statements add, rename, drop, widen and move columns, and fields of structs."""
    table = _table(lakes, Column(name="k", type="int32"), Column(name="a", type=TEXT))
    table.add(pa.table({"k": pa.array([1], pa.int32()), "a": ["x"]}))
    for statement in (
        "ADD COLUMNS (p STRUCT<x: INT, y: STRING> COMMENT 'point', d DECIMAL(5,2) AFTER k)",
        "ADD COLUMN n INT DEFAULT 3 + 4",
        "ADD COLUMN at TIMESTAMP DEFAULT TIMESTAMP '2024-01-01 00:00:00'",
        "ADD COLUMN raw BINARY DEFAULT X'0aff'",
        "ADD COLUMN p.z DOUBLE FIRST",
        "RENAME COLUMN a TO b",
        "RENAME COLUMN p.y TO w",
        "ALTER COLUMN k TYPE BIGINT",
        "ALTER COLUMN d TYPE DECIMAL(10,4)",
        "ALTER COLUMN b FIRST",
        "ALTER COLUMN b COMMENT 'text'",
        "DROP COLUMN p.x",
        "ADD COLUMN a INT",
    ):
        spark.sql(f"ALTER TABLE {table.sql} {statement}")
    schema = table.lake.table(table.name).schema()
    assert [(leaf.name, str(leaf.dtype), leaf.default) for leaf in schema.schema.leaves()] == [
        ("b", "string", None),
        ("k", "int64", None),
        ("d", "decimal(10,4)", None),
        ("p.z", "float64", None),
        ("p.w", "string", None),
        ("n", "int32", "7"),
        ("at", "timestamp(us)", "2023-12-31T23:00:00Z"),
        ("raw", "binary", "0aff"),
        ("a", "int32", None),
    ]
    assert schema.schema.columns[0].doc == "text"
    (row,) = _rows(spark, f"SELECT b, k, n, a, raw, at = TIMESTAMP '2024-01-01 00:00:00' AS same FROM {table.sql}")
    assert row == {"b": "x", "k": 1, "n": 7, "a": None, "raw": b"\x0a\xff", "same": True}


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("ALTER COLUMN k TYPE INT", "k"),
        ("ADD COLUMN m INT NOT NULL", "'m' needs a default"),
        ("DROP COLUMN nope", "nope"),
    ],
)
def test_alter_table_says_what_it_cannot_do(spark: SparkSession, lakes: Lakes, statement: str, says: str) -> None:
    """Nothing is changed, and the message names the column or the change."""
    table = _table(lakes, Column(name="k", type=INT), Column(name="a", type=TEXT))
    with pytest.raises(PySparkException, match=says):
        spark.sql(f"ALTER TABLE {table.sql} {statement}")
    assert table.lake.table(table.name).schema().schema.schema_id == 0


def test_frames_without_the_catalog_are_right_or_refused(
    spark: SparkSession, lakes: Lakes, lake: Lamella, attached: Attached
) -> None:
    """`read` finds every block's names; the way without a catalog says what to do instead."""
    table = _table(lakes, Column(name="k", type=INT), Column(name="a", type=INT))
    _foreign(table, [{"k": 1, "a": 10}])
    _change(table, RenameColumn(column="a", name="b"), AddColumn(name="c", type=TEXT, default="d"))
    _foreign(table, [{"k": 2, "b": 20, "c": "e"}])
    wanted = [{"k": 1, "b": 10, "c": "d"}, {"k": 2, "b": 20, "c": "e"}]

    def rows(frame: DataFrame) -> list[dict[str, Any]]:
        return sorted((row.asDict() for row in frame.collect()), key=lambda row: int(row["k"]))

    assert rows(read(spark, table.name, client=lake)) == wanted
    assert rows(read(spark, table.name, client=lake, where="b = 10")) == wanted[:1]
    assert rows(read(spark, table.name, client=lake, columns=["k"])) == [{"k": 1}, {"k": 2}]
    assert rows(attached.table(table.name)) == wanted
    views = attach(spark, fresh("views"), lake, mode="views")
    with pytest.raises(InvalidRequest, match="earlier names"):
        views.table(table.name)
    assert rows(views.table(table.name, columns=["k"])) == [{"k": 1}, {"k": 2}]
    with (
        setting(spark, spark__sql__caseSensitive="true"),
        pytest.raises(InvalidRequest, match="caseSensitive"),
    ):
        views.table(table.name, columns=["k"])
    spark.dataSource.register(LamellaDataSource)
    loaded = spark.read.format("lamella").option("url", lake.url).load(table.name)
    assert rows(loaded) == wanted
    handle = load_table(lake, table.name, Settings())
    assert rows(_path_frame(spark, handle, "b > 0")) == wanted  # what Spark Connect does
