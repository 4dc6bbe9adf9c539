"""CHAR(n) and VARCHAR(n) in Spark: stored, compared and refused as in tables of Spark's own."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.client.spark import Attached, append_batches, merge, update, write
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.schema.evolution import WidenColumn
from spark.lakes import CATALOG, Faults, Lakes, blocks_read, fresh, no_pushdown, setting
from spark.test_constraints import stream
from spark.test_sql_writes import attach_with, is_commit, once

pytestmark = pytest.mark.spark

#: What errors of text that is too long say: Spark's own condition, and ours.
_REFUSED = ("EXCEED_LIMIT_LENGTH", "is char(3), and 'long' has 4", "is varchar(2), and 'long' has 4")
COLUMNS = "id INT, c CHAR(3), v VARCHAR(2), s STRUCT<x: CHAR(2), y: VARCHAR(3)>, l ARRAY<VARCHAR(2)>"
#: Statements that write a row `{bad}` into a table with rows id = 1 and 2.
STATEMENTS = (
    "INSERT INTO {t} BY NAME SELECT {bad}",
    "INSERT INTO {t} (id, c, v) SELECT * FROM (SELECT {bad})",
    "INSERT OVERWRITE {t} BY NAME SELECT {bad}",
    "INSERT INTO {t} BY NAME REPLACE WHERE id = 1 SELECT {bad}",
    "INSERT WITH SCHEMA EVOLUTION INTO {t} BY NAME SELECT {bad}, 1 AS z",
    "MERGE INTO {t} t USING (SELECT {bad}) b ON t.id = 1 WHEN MATCHED THEN UPDATE SET c = b.c, v = b.v",
    "MERGE INTO {t} t USING (SELECT {bad}) b ON false WHEN NOT MATCHED THEN INSERT (id, c, v) VALUES (b.id, b.c, b.v)",
    "MERGE INTO {t} t USING (SELECT {bad}) b ON t.id = b.id + 100"
    " WHEN NOT MATCHED BY SOURCE THEN UPDATE SET c = concat('lo', 'ng'), v = 'long'",
    "MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT {bad}, 1 AS z) b ON t.id = 1 WHEN MATCHED THEN UPDATE SET *",
)
#: Rows with a text that is too long: in a CHAR column, and in a VARCHAR column.
BAD = ("3 AS id, 'long' AS c, 'b' AS v", "3 AS id, 'a' AS c, 'long' AS v")


@pytest.fixture
def space(lakes: Lakes) -> str:
    """A new namespace."""
    name = fresh("text")
    lakes.lake.create_namespace(name)
    return name


def new_table(spark: SparkSession, space: str, columns: str = COLUMNS) -> str:
    """A table of two rows; its name below the catalog."""
    name = f"{space}.{fresh('t')}"
    spark.sql(f"CREATE TABLE {CATALOG}.{name} ({columns})")
    spark.sql(f"INSERT INTO {CATALOG}.{name} (id, c, v) VALUES (1, 'a', 'b  '), (2, 'abc   ', NULL)")
    return name


def refuses(lakes: Lakes, name: str, does: Callable[[], object]) -> None:
    """Assert that something fails because a text is too long, and changes nothing."""
    before = lakes.lake.table(name).info()
    with pytest.raises((PySparkException, LamellaError)) as failed:
        does()
    assert any(each in str(failed.value) for each in _REFUSED), str(failed.value)
    assert lakes.lake.table(name).info() == before


@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_every_statement_refuses_text_that_is_too_long(
    spark: SparkSession, lakes: Lakes, space: str, first: int
) -> None:
    """With Spark's own condition, and nothing is committed; also values in structs and arrays. ``first``: of every
    other statement."""
    name = new_table(spark, space)
    table = f"{CATALOG}.{name}"
    for number, statement in enumerate(STATEMENTS[first::2]):
        refuses(lakes, name, partial(spark.sql, statement.format(t=table, bad=BAD[number % 2])))
    for column, value in (("c", "'long'"), ("s", "named_struct('x', 'a', 'y', 'long')"), ("l", "array('a', 'long')")):
        refuses(lakes, name, partial(spark.sql, f"UPDATE {table} SET {column} = {value} WHERE id = 1"))
    with setting(spark, spark__sql__legacy__charVarcharAsString="true"):  # Spark does not look
        for bad in BAD:
            refuses(lakes, name, partial(spark.sql, f"INSERT INTO {table} BY NAME SELECT {bad}"))


@pytest.mark.soak
def test_every_writer_of_frames_refuses_text_that_is_too_long(
    spark: SparkSession, lakes: Lakes, space: str, tmp_path: Path
) -> None:
    """DataFrame writers, streams, and the functions of this package."""
    name = new_table(spark, space, "id INT, c CHAR(3), v VARCHAR(2)")
    table = f"{CATALOG}.{name}"
    frame = spark.sql(f"SELECT {BAD[0]}")
    other = spark.sql(f"SELECT {BAD[1]}")
    for does in (
        lambda: frame.writeTo(table).append(),
        lambda: other.writeTo(table).option("mergeSchema", "true").append(),
        lambda: frame.writeTo(table).overwrite(F.lit(True)),
        partial(frame.write.insertInto, table),
        partial(other.write.insertInto, table, overwrite=True),
        lambda: frame.write.mode("append").saveAsTable(table),
        partial(write, frame, name, client=lakes.lake),
        partial(write, other, name, client=lakes.lake, mode="overwrite"),
        partial(update, spark, name, {"c": "'long'"}, "id = 1", client=lakes.lake),
        partial(update, spark, name, {"v": "'long'"}, "id = 1", client=lakes.lake),
        lambda: merge(frame, name, "false", client=lakes.lake).when_not_matched_insert().execute(),
        lambda: merge(other, name, "t.id = 1", client=lakes.lake).when_matched_update().execute(),
        lambda: append_batches(name, sink="s", client=lakes.lake)(frame, 0),
    ):
        refuses(lakes, name, does)
    source = tmp_path / "rows"
    frame.write.parquet(str(source))
    refuses(lakes, name, partial(stream, spark, frame, source, table, tmp_path / "checkpoint"))


def test_all_writers_store_the_same_text(spark: SparkSession, lakes: Lakes, space: str, tmp_path: Path) -> None:
    """CHAR is padded, and blanks at the end that are too many are cut off, whoever writes."""
    name = new_table(spark, space, "id INT, c CHAR(3), v VARCHAR(2)")
    table = f"{CATALOG}.{name}"
    frame = spark.sql("SELECT 3 AS id, 'x' AS c, 'y    ' AS v")
    write(frame, name, client=lakes.lake)
    append_batches(name, sink="s", client=lakes.lake)(frame, 0)
    frame.writeTo(table).append()
    frame.write.parquet(str(tmp_path / "rows"))
    stream(spark, frame, tmp_path / "rows", table, tmp_path / "checkpoint")
    lakes.lake.table(name).append([{"id": 3, "c": "x ", "v": "y   "}])
    spark.sql(f"INSERT INTO {table} VALUES (4, 'n', 'n')")
    update(spark, name, {"c": "'x'", "v": "'y     '", "id": "3"}, "id = 4", client=lakes.lake)
    spark.sql(f"CALL {CATALOG}.system.compact('{name}')")
    rows = lakes.lake.table(name).scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["c"], row["v"]) for row in rows) == [
        (1, "a  ", "b "),
        (2, "abc", None),
        *[(3, "x  ", "y ")] * 6,
    ]


def test_definitions_show_the_types(spark: SparkSession, space: str) -> None:
    """DESCRIBE, SHOW CREATE TABLE (which runs), LIKE, and CREATE TABLE AS SELECT of columns as they are."""
    columns = f"{COLUMNS}, m MAP<VARCHAR(2), CHAR(3)>, d CHAR(2) DEFAULT 'x' COMMENT 'a default', n VARCHAR(9) NOT NULL"
    table = f"{CATALOG}.{space}.t"
    spark.sql(f"CREATE TABLE {table} ({columns})")
    described = {
        "id": "int",
        "c": "char(3)",
        "v": "varchar(2)",
        "s": "struct<x:char(2),y:varchar(3)>",
        "l": "array<varchar(2)>",
        "m": "map<varchar(2),char(3)>",
        "d": "char(2)",
        "n": "varchar(9)",
    }

    def types(of: str) -> dict[str, str]:
        return {row[0]: row[1] for row in spark.sql(f"DESCRIBE {of}").collect()}

    assert types(table) == described
    spark.sql(str(spark.sql(f"SHOW CREATE TABLE {table}").collect()[0][0]).replace(table, f"{table}_again"))
    spark.sql(f"CREATE TABLE {table}_like LIKE {table}")
    for copy in ("again", "like"):
        assert types(f"{table}_{copy}") == described
        spark.sql(f"INSERT INTO {table}_{copy} (id, n) VALUES (1, 'n')")
        assert spark.sql(f"SELECT concat(d, '|') FROM {table}_{copy}").collect()[0][0] == "x |"
    spark.sql(f"CREATE TABLE {table}_ctas AS SELECT c, v AS w, upper(c) AS u, s FROM {table}")
    ctas = {"c": "char(3)", "w": "varchar(2)", "u": "string", "s": described["s"]}
    assert types(f"{table}_ctas") == ctas
    spark.sql(f"CREATE OR REPLACE TABLE {table}_ctas (c CHAR(1), w STRING)")
    assert types(f"{table}_ctas") == {"c": "char(1)", "w": "string"}
    spark.sql(f"CREATE OR REPLACE TABLE {table}_ctas AS SELECT d AS c, 'long' AS w FROM {table}_like")
    assert types(f"{table}_ctas") == {"c": "char(2)", "w": "string"}
    assert spark.sql(f"SELECT w FROM {table}_ctas WHERE c = 'x'").collect()[0][0] == "long"
    assert [field.dataType.simpleString() for field in spark.table(table).schema][:3] == ["int", "string", "string"]
    for what, says in (
        ("c CHAR(70000)", "at most 65535"),
        ("c CHAR(2) DEFAULT 'long'", "EXCEED_LIMIT_LENGTH|too long"),
        ("c VARCHAR(2) COLLATE UNICODE_CI", "cannot hold|COLLAT"),
    ):
        with pytest.raises(PySparkException, match=says):
            spark.sql(f"CREATE TABLE {table}_bad ({what})")
    assert not spark.catalog.tableExists(f"{table}_bad")


def test_types_are_altered_as_spark_allows(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """Text may only become longer; a rollback to a smaller length, or another definition, stops older writers."""
    name = new_table(spark, space)
    table = f"{CATALOG}.{name}"
    for change in ("v TYPE VARCHAR(1)", "v TYPE CHAR(2)", "c TYPE CHAR(4)", "c TYPE VARCHAR(2)", "id TYPE VARCHAR(9)"):
        with pytest.raises(PySparkException, match="NOT_SUPPORTED_CHANGE_COLUMN"):
            spark.sql(f"ALTER TABLE {table} ALTER COLUMN {change}")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN v TYPE VARCHAR(4)")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN c TYPE VARCHAR(5)")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (p CHAR(3) DEFAULT 'y', q VARCHAR(3))")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN p SET DEFAULT 'z'")
    lakes.lake.table(name).evolve([WidenColumn(column="s.y", type="varchar(7)")])
    spark.sql(f"INSERT INTO {table} (id, c, v, s) VALUES (3, 'abcd ', 'long', named_struct('x', 'x', 'y', 'seven'))")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN v TYPE STRING")
    with pytest.raises(PySparkException, match="NOT_SUPPORTED_CHANGE_COLUMN"):
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN v TYPE VARCHAR(100)")
    with pytest.raises(PySparkException, match=r"too long|EXCEED_LIMIT_LENGTH"):
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN p SET DEFAULT 'long'")
    rows = spark.sql(f"SELECT id, c, v, p, s.y FROM {table} WHERE p IN ('y', 'z') ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [
        (1, "a  ", "b ", "y  ", None),
        (2, "abc", None, "y  ", None),
        (3, "abcd ", "long", "z  ", "seven"),
    ]


def test_a_length_that_others_give_meanwhile_holds(
    spark: SparkSession, lakes: Lakes, faults: Faults, space: str
) -> None:
    """A statement wrote its rows for another definition of the table; it is refused."""
    name = new_table(spark, space, "id INT, c STRING, v STRING")
    redefine = partial(spark.sql, f"CREATE OR REPLACE TABLE {CATALOG}.{name} (id INT, c CHAR(1), v VARCHAR(1))")
    catalog = attach_with(spark, faults, once(is_commit, redefine))
    with pytest.raises(PySparkException, match=r"schema_conflict|again"):
        spark.sql(f"INSERT INTO {catalog}.{name} VALUES (5, 'long', 'long')")
    assert lakes.lake.table(name).info().row_count == 0


def test_rows_do_not_change_the_length_of_text(spark: SparkSession, lakes: Lakes, space: str) -> None:
    """Schema evolution adds columns; longer text is refused as ever."""
    name = new_table(spark, space, "id INT, c CHAR(3), v VARCHAR(2)")
    table = f"{CATALOG}.{name}"
    spark.sql(f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 3L AS id, 'x' AS c, 'y' AS v, 'z' AS z")
    spark.sql("SELECT 4 AS id, 'x' AS c, 1 AS n").writeTo(table).option("mergeSchema", "true").append()
    spark.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING (SELECT 4 AS id, 'm' AS c, 7 AS k) s ON t.c = s.c"
        " WHEN NOT MATCHED THEN INSERT *"
    )
    types = {column.name: column.type for column in lakes.lake.table(name).info().schema.columns}
    assert types == {
        **{"id": "int64", "c": "char(3)", "v": "varchar(2)"},
        **{"z": "string", "n": "int32", "k": "int32"},
    }
    assert spark.sql(f"SELECT count(*) FROM {table} WHERE c IN ('x', 'm')").collect()[0][0] == 3


#: Conditions on CHAR columns, of which values are compared with and without blanks.
CONDITIONS = (
    *("c = {x}", "{x} = c", "c <> {x}", "c < {x}", "c >= {x}", "c <=> {x}", "NOT (c = {x})", "c > {x} AND c <= {y}"),
    *("c IN ({x}, {y})", "c NOT IN ({x}, {y})", "c BETWEEN {x} AND {y}", "c = {x} OR id = {n}", "c LIKE '{p}%'"),
    *("c IS NULL", "c = concat({x}, '')", "rtrim(c) = {x}", "c = v", "c = d", "c < d", "length(c) = 3 AND id < {n}"),
    *("v = {x}", "v > {x}", "v IN ({x}, {y})", "s.x = {x}", "s.x < {x}", "d = {x}", "d IN ({x}, {y}, NULL)"),
    *("c = (SELECT max(c) FROM {t} WHERE id < {n})", "c IN (SELECT v FROM {t} WHERE id < {n})", "upper(c) = {x}"),
)
PIECES = ("a", "b", "a b", "ab", "", "b\\t", "\u00e4", "a!", "zz", "b  ", "a     ", "abc", "abcdef")


def filled(random: Random, condition: str, table: str) -> str:
    """A condition with random constants."""
    x, y, p = (random.choice(PIECES) for _ in range(3))
    return condition.format(x=f"'{x}'", y=f"'{y}'", p=p, n=random.randrange(40), t=table)


@pytest.fixture(scope="module")
def same(spark: SparkSession, lakes: Lakes) -> Iterator[tuple[str, str]]:
    """A table of ours with blocks of few values, and one of Spark's own with the same rows."""
    columns = "id INT, c CHAR(3), v VARCHAR(3), s STRUCT<x: CHAR(2)>, d CHAR(5)"
    space = fresh("text")
    lakes.lake.create_namespace(space)
    ours, theirs = f"{CATALOG}.{space}.same", f"default.{fresh('native')}"
    spark.sql(f"CREATE TABLE {ours} ({columns}) CLUSTER BY (c)")
    spark.sql(f"CREATE TABLE {theirs} ({columns}) USING parquet")
    random = Random(7)
    short = sorted(piece for piece in PIECES if len(piece.replace("\\t", "\t").rstrip(" ")) <= 3)
    number = 0
    everything = []
    for start in range(0, len(short), 3):
        rows = []
        for _ in range(6):
            c, v, d = (f"'{random.choice(short[start : start + 3])}'" for _ in range(3))
            rows.append(f"({number}, {c}, {v}, named_struct('x', left({c}, 2)), {random.choice((d, 'NULL'))})")
            number += 1
        spark.sql(f"INSERT INTO {ours} VALUES {', '.join(rows)}")
        everything += rows
    spark.sql(f"INSERT INTO {theirs} VALUES {', '.join(everything)}")
    spark.sql(f"INSERT INTO {ours} (id) VALUES (99)")
    spark.sql(f"INSERT INTO {theirs} (id) VALUES (99)")
    yield ours, theirs
    spark.sql(f"DROP TABLE {theirs}")


def skipped_blocks(spark: SparkSession, same: tuple[str, str], conditions: Sequence[str], left: str = "") -> int:
    """Compare the rows of each condition with those of a full scan of the other table; ``left``: the condition of those
    that ours has. Returns how many blocks were skipped."""
    ours, theirs = same
    random = Random(11)
    skipped = 0
    for condition in conditions:
        text = filled(random, condition, "{t}")
        frame = spark.sql(f"SELECT * FROM {ours} WHERE {text.format(t=ours)}")
        found = sorted(map(str, frame.collect()))
        read, total = blocks_read(frame)
        skipped += total - read
        with no_pushdown(spark):
            rows = f"SELECT * FROM {theirs} WHERE ({text.format(t=theirs)}){left}"
            assert found == sorted(map(str, spark.sql(rows).collect())), text
    return skipped


@pytest.mark.parametrize("padding", ["true", "false"])
@pytest.mark.few(1)
def test_filters_mean_what_they_mean_in_tables_of_spark(
    spark: SparkSession, same: tuple[str, str], padding: str
) -> None:
    """Every condition has the rows of a full scan, with and without padding of what is read; those that compare a CHAR
    column with a constant skip blocks."""
    with setting(spark, spark__sql__readSideCharPadding=padding):
        assert skipped_blocks(spark, same, CONDITIONS) > 20


def test_filters_of_tables_with_deleted_rows_mean_the_same(
    spark: SparkSession, lakes: Lakes, same: tuple[str, str]
) -> None:
    """They are read by a view, which knows the types of the columns too."""
    handle = lakes.lake.table(same[0].removeprefix(f"{CATALOG}."))
    before = handle.info().snapshot_id
    handle.delete("id % 5 = 2", mode="merge-on-read")
    conditions = [condition for condition in CONDITIONS[::2] if "{t}" not in condition]
    assert skipped_blocks(spark, same, conditions, " AND id % 5 <> 2")
    handle.rollback(before)


def test_a_comparison_with_a_char_column_prunes(spark: SparkSession, same: tuple[str, str]) -> None:
    """The constant is padded as the values are; a constant that is longer than the column reads all."""
    ours, _ = same
    for condition, prunes in (("c = 'zz'", True), ("c IN ('zz', 'a')", True), ("c = 'zz    '", False)):
        frame = spark.sql(f"SELECT id FROM {ours} WHERE {condition}")
        frame.collect()
        read, total = blocks_read(frame)
        assert (read < total - 1) is prunes, condition  # one has only nulls


def test_statements_find_rows_by_padded_text(spark: SparkSession, lakes: Lakes, attached: Attached, space: str) -> None:
    """DELETE, UPDATE and MERGE, views, changes, time travel and the hidden column of files."""
    name = new_table(spark, space)
    table = f"{CATALOG}.{name}"
    before = lakes.lake.table(name).info().snapshot_id
    spark.sql(f"UPDATE {table} SET c = 'u', s = named_struct('x', 'q', 'y', 'r  ') WHERE c = 'a'")
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT 'u' AS c UNION ALL SELECT 'n') s ON t.c = rpad(s.c, 3, ' ')"
        " WHEN MATCHED THEN UPDATE SET v = 'm' WHEN NOT MATCHED THEN INSERT (id, c) VALUES (9, s.c)"
    )
    spark.sql(f"DELETE FROM {table} WHERE c = 'abc'")
    spark.sql(f"CREATE VIEW {CATALOG}.{space}.w AS SELECT id, c FROM {table}")
    for source in (table, f"{CATALOG}.{space}.w"):
        assert [row[0] for row in spark.sql(f"SELECT id FROM {source} WHERE c = 'n'").collect()] == [9]
    assert spark.sql(f"DESCRIBE {CATALOG}.{space}.w").collect()[1][1] == "char(3)"
    rows = spark.sql(f"SELECT id, c, v, s.x, s.y FROM {table} ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, "u  ", "m", "q ", "r  "), (9, "n  ", None, None, None)]
    old = spark.sql(f"SELECT id FROM {table} VERSION AS OF '{before}' WHERE c = 'a'").collect()
    assert [row[0] for row in old] == [1]
    assert [row["id"] for row in attached.table(name).where("c = 'n'").collect()] == [9]
    changed = spark.sql(f"SELECT _change_type FROM {table} CHANGES FROM VERSION 1 WHERE c = 'n'").collect()
    assert [row[0] for row in changed] == ["insert"]
    lakes.lake.table(name).append([{"id": 10, "c": "k", "v": None, "s": None, "l": None}])
    spark.sql(f"CALL {CATALOG}.system.purge('{name}', min_deleted_share => 0.001)")
    files = spark.sql(f"SELECT _metadata.file_path FROM {table} WHERE c = 'k'").collect()
    assert len(files) == 1
