"""UPDATE, DELETE and MERGE by SQL: each clause, what becomes of blocks, conflicts, and statements that fail."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, SparkRuntimeException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lamella.client.http import Lamella
from lamella.client.http.fake_transport import FakeTransport
from lamella.client.http.transport import HttpRequest, PooledTransport
from lamella.client.spark import attach, row_ids, row_level_write
from lamella.client.spark.row_ids import MAX_IDS, BlockNumbers, Runs, ids_of, positions_in, shift_for
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.schema import Column
from spark.lakes import CATALOG, Lakes, fresh, plan, setting
from support.deleted_rows import blocks_of

pytestmark = pytest.mark.spark


class Numbers:
    """A table of the columns ``id``, ``g`` (``id % 7``) and ``v``, sorted by ``id``."""

    def __init__(self, spark: SparkSession, lakes: Lakes, rows: int = 400, *, block_rows: int = 100) -> None:
        self._spark = spark
        self.lakes = lakes
        self.name = f"{fresh('rows')}.t"
        lakes.lake.create_namespace(self.name.split(".")[0])
        spark.sql(
            f"CREATE TABLE {self.sql} (id BIGINT, g INT, v STRING) CLUSTER BY (id)"
            f" TBLPROPERTIES ('target_block_rows' = '{block_rows}')"
        )
        if rows:
            spark.sql(f"INSERT INTO {self.sql} SELECT id, CAST(id % 7 AS INT), concat('v', id) FROM range({rows})")

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        return f"{CATALOG}.{self.name}"

    def run(self, statement: str) -> None:
        """Run a statement about ``{t}``."""
        self._spark.sql(statement.format(t=self.sql))

    def rows(self) -> dict[int | None, tuple[int | None, str | None]]:
        """The rows by id, of which there is one each."""
        found = self._spark.table(self.sql).collect()
        by_id = {row["id"]: (row["g"], row["v"]) for row in found}
        assert len(by_id) == len(found)
        return by_id

    def blocks(self) -> dict[str, int]:
        """Rows that are deleted in each block, by its location."""
        blocks = blocks_of(self.lakes.lake.table(self.name))
        return {
            location: sum(each.cardinality or 0 for each in block.deletes or ()) for location, block in blocks.items()
        }

    def snapshot_id(self) -> str:
        """The snapshot in force now."""
        return self.lakes.lake.table(self.name).info().snapshot_id


def numbered(count: int) -> dict[int | None, tuple[int | None, str | None]]:
    """The rows of :class:`Numbers`."""
    return {at: (at % 7, f"v{at}") for at in range(count)}


def test_an_update_deletes_single_rows_of_blocks_and_adds_them_anew(spark: SparkSession, lakes: Lakes) -> None:
    """Blocks stay where they are; one is added with the new rows."""
    table = Numbers(spark, lakes)
    before = table.blocks()
    table.run("UPDATE {t} SET v = concat(v, '!'), g = g + 1 WHERE id % 50 = 3")
    expected = numbered(400) | {at: (at % 7 + 1, f"v{at}!") for at in range(3, 400, 50)}
    assert table.rows() == expected
    after = table.blocks()
    assert [after[location] for location in before] == [2, 2, 2, 2]
    assert len(after) == len(before) + 1
    assert lakes.lake.table(table.name).verify().findings == ()


def test_a_block_of_which_many_rows_change_is_replaced(spark: SparkSession, lakes: Lakes) -> None:
    """Its other rows are written anew; blocks without a match stay as they are."""
    table = Numbers(spark, lakes)
    before = [*table.blocks()]
    table.run("UPDATE {t} SET v = 'x' WHERE id BETWEEN 100 AND 130")
    assert table.rows() == numbered(400) | {at: (at % 7, "x") for at in range(100, 131)}
    after = table.blocks()
    assert len(set(before) & after.keys()) == 3
    assert set(after.values()) == {0}


def test_properties_of_the_table_say_whether_files_stay(spark: SparkSession, lakes: Lakes) -> None:
    """With copy on write a block is replaced for one row; with merge on read it stays until its last row goes."""
    table = Numbers(spark, lakes, 100)
    table.run("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    (block,) = table.blocks()
    table.run("DELETE FROM {t} WHERE id % 10 <> 3")
    assert table.blocks() == {block: 90}
    table.run("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    table.run("UPDATE {t} SET v = 'x' WHERE id % 1000 = 33")
    assert [*table.blocks().values()] == [0]
    assert block not in table.blocks()
    assert table.rows() == {at: (at % 7, "x" if at == 33 else f"v{at}") for at in range(3, 100, 10)}


def test_every_clause_of_merge(spark: SparkSession, lakes: Lakes) -> None:
    """The first clause of its kind whose condition is true applies to a row."""
    table = Numbers(spark, lakes)
    table.run(
        "MERGE INTO {t} t USING (SELECT id * 10 AS id, concat('s', id) AS v FROM range(38, 45)) s ON t.id = s.id"
        " WHEN MATCHED AND t.g = 2 THEN DELETE"
        " WHEN MATCHED AND s.v = 's39' THEN UPDATE SET v = s.v, g = NULL"
        " WHEN MATCHED THEN UPDATE SET v = concat(t.v, s.v)"
        " WHEN NOT MATCHED AND s.id > 430 THEN INSERT (id, v) VALUES (s.id, s.v)"
        " WHEN NOT MATCHED AND s.id = 420 THEN INSERT (v, id, g) VALUES ('late', s.id, -1)"
        " WHEN NOT MATCHED BY SOURCE AND t.id < 3 THEN DELETE"
        " WHEN NOT MATCHED BY SOURCE AND t.id < 5 THEN UPDATE SET v = 'lost'"
    )
    expected = numbered(400)
    for at in (0, 1, 2, 380):
        del expected[at]
    expected |= {3: (3, "lost"), 4: (4, "lost"), 390: (None, "s39"), 440: (None, "s44"), 420: (-1, "late")}
    assert 380 % 7 == 2
    assert table.rows() == expected


def test_all_columns_by_name(spark: SparkSession, lakes: Lakes) -> None:
    """``UPDATE SET *`` and ``INSERT *`` match columns by name, whatever their order."""
    table = Numbers(spark, lakes, 20)
    spark.createDataFrame([("a", 3, 70), ("b", 99, 71)], "v string, ID int, g int").createOrReplaceTempView("by_name")
    table.run(
        "MERGE INTO {t} t USING by_name s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert table.rows() == numbered(20) | {3: (70, "a"), 99: (71, "b")}


def test_the_methods_of_frames(spark: SparkSession, lakes: Lakes) -> None:
    """``mergeInto`` does what ``MERGE`` does."""
    table = Numbers(spark, lakes, 20)
    source = spark.createDataFrame([(3, "a"), (4, "b"), (99, "c")], "id long, v string").alias("s")
    (
        source.mergeInto(table.sql, F.expr(f"{table.sql}.id = s.id"))
        .whenMatched(F.col("s.id") == 3)
        .delete()
        .whenMatched()
        .update({"v": F.col("s.v")})
        .whenNotMatched()
        .insert({"id": F.col("s.id"), "v": F.col("s.v")})
        .merge()
    )
    expected = numbered(20) | {4: (4, "b"), 99: (None, "c")}
    del expected[3]
    assert table.rows() == expected


@pytest.mark.parametrize(
    "source",
    [
        "(WITH c AS (SELECT * FROM {t} WHERE id < 3) SELECT id + 1 AS id, v FROM c)",
        "(SELECT max(id) AS id, 'm' AS v FROM {t} GROUP BY g)",
        "(SELECT id, v FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY g) n FROM {t}) WHERE n = 1)",
    ],
)
@pytest.mark.few(1)
def test_a_source_can_be_the_table_itself(spark: SparkSession, lakes: Lakes, source: str) -> None:
    """It is read as it was."""
    table = Numbers(spark, lakes, 40, block_rows=10)
    changes = {row["id"]: row["v"] for row in spark.sql(f"SELECT * FROM {source.format(t=table.sql)}").collect()}
    table.run(f"MERGE INTO {{t}} t USING {source} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = concat(s.v, '+')")
    assert table.rows() == numbered(40) | {at: (at % 7, f"{v}+") for at, v in changes.items()}


def test_subqueries_in_conditions_and_values(spark: SparkSession, lakes: Lakes) -> None:
    """Each is evaluated over the rows from before the statement."""
    table = Numbers(spark, lakes, 100, block_rows=25)
    table.run(
        "UPDATE {t} SET v = (SELECT max(v) FROM {t}) WHERE id IN (SELECT id + 1 FROM {t} WHERE g = 0) AND id < 20"
    )
    changed = {at: (at % 7, "v99") for at in range(1, 20, 7)}
    assert table.rows() == numbered(100) | changed
    table.run(
        "DELETE FROM {t} WHERE id = (SELECT max(id) FROM {t}) OR NOT EXISTS (SELECT 1 FROM {t} o WHERE o.id > 50)"
    )
    table.run("DELETE FROM {t} AS o WHERE EXISTS (SELECT 1 FROM {t} i WHERE i.id = o.id * 2 AND i.g = 3)")
    gone = {at for at in range(99) if at * 2 < 99 and at * 2 % 7 == 3}
    assert table.rows() == {at: row for at, row in (numbered(99) | changed).items() if at not in gone}


def test_fields_defaults_and_narrow_types(spark: SparkSession, lakes: Lakes) -> None:
    """A field of a struct is assigned by itself, defaults are known, values are cast as ``INSERT`` casts them."""
    name = f"{fresh('typed')}.t"
    lakes.lake.create_namespace(name.split(".")[0])
    spark.sql(
        f"CREATE TABLE {CATALOG}.{name} (id INT, st STRUCT<a: INT, b: STRING>, f SMALLINT DEFAULT 7,"
        " d DECIMAL(5, 2), ts TIMESTAMP, n TIMESTAMP_NTZ, day DATE, x DOUBLE, l ARRAY<INT>, m MAP<STRING, INT>)"
    )
    spark.sql(
        f"INSERT INTO {CATALOG}.{name} VALUES"
        " (1, named_struct('a', 1, 'b', 'x'), 1, 1.5, TIMESTAMP'1700-01-01 00:00:00Z',"
        " TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', DATE'1500-01-01', -0.0D, array(1, NULL), map('a', 1)),"
        " (2, named_struct('a', 2, 'b', NULL), 2, NULL, NULL, NULL, NULL, double('NaN'), NULL, NULL)"
    )
    spark.sql(f"UPDATE {CATALOG}.{name} SET st.a = st.a + 10, f = DEFAULT, d = id, x = x WHERE id > 0")
    spark.sql(
        f"MERGE INTO {CATALOG}.{name} t USING (SELECT 3 AS id) s ON t.id = s.id"
        " WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    found = spark.sql(
        "SELECT id, st, f, CAST(d AS STRING) d, CAST(ts AS LONG) ts, CAST(n AS STRING) n, CAST(day AS STRING) day,"
        f" x, l, m FROM {CATALOG}.{name} ORDER BY id"
    ).collect()
    shown = [(row["id"], row["st"] and tuple(row["st"]), row["f"], row["d"], repr(row["x"])) for row in found]
    assert shown == [(1, (11, "x"), 7, "1.00", "-0.0"), (2, (12, None), 7, "2.00", "nan"), (3, None, 7, None, "None")]
    first = found[0]
    assert (first["ts"], first["n"]) == (-8520336000, "9999-12-31 23:59:59.999999")
    assert (first["day"], first["l"], first["m"]) == ("1500-01-01", [1, None], {"a": 1})


@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        (
            "MERGE INTO {t} t USING (SELECT id % 2 AS id FROM range(3)) s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET v = 'x'",
            "MERGE_CARDINALITY_VIOLATION",
        ),
        ("UPDATE {t} SET g = 3000000000 WHERE id = 2", "CAST_OVERFLOW_IN_TABLE_INSERT"),
        ("UPDATE {t} SET g = g + 2147483647 WHERE id = 2", "ARITHMETIC_OVERFLOW"),
        ("UPDATE {t} SET g = v WHERE id <> 5", "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST"),
        ("UPDATE {t} SET v = CAST(1 / (id - 2) AS STRING) WHERE id <> 5", "DIVIDE_BY_ZERO"),
        ("UPDATE {t} SET nope = 1", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("DELETE FROM {t} WHERE rand() > 0.5", "INVALID_NON_DETERMINISTIC_EXPRESSIONS"),
        ("UPDATE {t} SET v = raise_error('no') WHERE id = 3", "USER_RAISED_EXCEPTION"),
    ],
)
@pytest.mark.few(3)
def test_a_statement_that_fails_changes_nothing(
    spark: SparkSession, lakes: Lakes, statement: str, condition: str
) -> None:
    """The error is Spark's, no snapshot is made, and nothing is left in scratch space."""
    table = Numbers(spark, lakes, 20)
    before = table.snapshot_id()
    scratch = {*Path(tempfile.gettempdir()).glob("lamella-*")}
    with pytest.raises(PySparkException) as failed:
        table.run(statement)
    assert failed.value.getCondition() == condition
    assert table.snapshot_id() == before
    assert {*Path(tempfile.gettempdir()).glob("lamella-*")} <= scratch


def test_a_required_column_takes_no_null(spark: SparkSession, lakes: Lakes) -> None:
    """The error is Spark's own."""
    name = f"{fresh('required')}.t"
    lakes.lake.create_namespace(name.split(".")[0])
    spark.sql(f"CREATE TABLE {CATALOG}.{name} (id INT, r STRING NOT NULL)")
    spark.sql(f"INSERT INTO {CATALOG}.{name} VALUES (1, 'a'), (2, 'b')")
    with pytest.raises(SparkRuntimeException, match=r"NOT_NULL_ASSERT_VIOLATION.*\n*.*r") as failed:
        spark.sql(f"UPDATE {CATALOG}.{name} SET r = NULL WHERE id = 1")
    assert failed.value.getCondition() == "NOT_NULL_ASSERT_VIOLATION"
    assert spark.table(f"{CATALOG}.{name}").count() == 2


def test_what_changes_nothing_makes_no_snapshot(spark: SparkSession, lakes: Lakes) -> None:
    """A statement that matches no row, or is repeated, leaves the table as it is."""
    table = Numbers(spark, lakes, 40)
    before = table.snapshot_id()
    table.run("UPDATE {t} SET v = 'x' WHERE id % 1000 = 999")
    table.run("DELETE FROM {t} WHERE id IN (SELECT 1 - id AS i FROM range(2, 4))")
    table.run(
        "MERGE INTO {t} t USING (SELECT * FROM range(0)) s ON t.id = s.id WHEN MATCHED THEN DELETE"
        " WHEN NOT MATCHED BY SOURCE AND t.id < 0 THEN DELETE"
    )
    assert table.snapshot_id() == before
    merge = (
        "MERGE INTO {t} t USING (SELECT id * 30 AS id FROM range(3)) s ON t.id = s.id"
        " WHEN MATCHED AND t.v <> 'x' THEN UPDATE SET v = 'x' WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 'x')"
    )
    table.run(merge)
    after = table.rows()
    table.run(merge)
    assert table.rows() == after == numbered(40) | {0: (0, "x"), 30: (2, "x"), 60: (None, "x")}


def test_all_rows_change(spark: SparkSession, lakes: Lakes) -> None:
    """Without a condition every block is replaced; with one that removes all rows, the table is empty."""
    table = Numbers(spark, lakes, 250)
    table.run("UPDATE {t} SET g = -g")
    assert table.rows() == {at: (-(g or 0), v) for at, (g, v) in numbered(250).items()}
    table.run("MERGE INTO {t} t USING (SELECT * FROM range(0)) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE")
    assert table.rows() == {}
    assert table.blocks() == {}
    table.run("UPDATE {t} SET g = 1")
    table.run(
        "MERGE INTO {t} t USING (SELECT * FROM range(2)) s ON t.id = s.id WHEN MATCHED THEN DELETE"
        " WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    assert table.rows() == {0: (None, None), 1: (None, None)}


# Sources that may have other rows each time.


def test_a_source_that_is_not_repeatable_is_read_once(spark: SparkSession, lakes: Lakes) -> None:
    """No row is lost or added twice, whichever rows the source has."""
    table = Numbers(spark, lakes, 200, block_rows=50)
    table.run(
        "MERGE INTO {t} t USING (SELECT id FROM range(0, 400, 1, 4) DISTRIBUTE BY hash(id) LIMIT 350) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET v = 'hit' WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 'new')"
    )
    rows = table.rows()
    assert rows.keys() >= numbered(200).keys()
    assert {v for at, (_, v) in rows.items() if at is not None and at >= 200} == {"new"}
    assert all(v in ("hit", f"v{at}") for at, (_, v) in rows.items() if at is not None and at < 200)
    table.run("DELETE FROM {t} WHERE id IN (SELECT id FROM {t} WHERE id < 100 LIMIT 10)")
    assert len(table.rows()) == len(rows) - 10
    before = table.snapshot_id()
    with pytest.raises(PySparkException, match="may find other rows each time"):
        table.run("UPDATE {t} SET v = 'x' WHERE id IN (SELECT id FROM {t} LIMIT 10)")
    assert table.snapshot_id() == before


def test_ranks_with_ties_are_repeatable_by_their_partitions_only(spark: SparkSession, lakes: Lakes) -> None:
    """Of rows with equal order either may come first, so only columns of the partition say which rows match."""
    table = Numbers(spark, lakes, 100, block_rows=25)
    spark.createDataFrame([(7, 1, "a"), (7, 1, "b"), (8, 1, "c")], "id long, o int, v string").createOrReplaceTempView(
        "ties"
    )
    latest = (
        "(SELECT id AS k, v FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY o) n FROM ties) WHERE n = 1)"
    )
    table.run(f"MERGE INTO {{t}} t USING {latest} s ON t.id = s.k WHEN MATCHED THEN UPDATE SET v = s.v")
    found = table.rows()
    assert found[7][1] in ("a", "b")
    assert found[8][1] == "c"
    assert sorted(table.blocks().values()) == [0, 0, 0, 0, 2]
    table.run(f"MERGE INTO {{t}} t USING {latest} s ON t.id = s.k AND s.v < 'z' WHEN MATCHED THEN UPDATE SET v = 'on'")
    assert set(table.blocks().values()) == {0}  # all blocks were read, and replaced
    assert table.rows() == numbered(100) | {7: (0, "on"), 8: (1, "on")}
    for function, are_replaced in (("max(v)", False), ("max_by(v, o)", True)):
        before = table.blocks().keys()
        source = f"(SELECT id, {function} AS v FROM ties GROUP BY id)"
        on = "t.id = s.id AND s.v < 'z'"
        table.run(f"MERGE INTO {{t}} t USING {source} s ON {on} WHEN MATCHED THEN UPDATE SET v = s.v")
        assert before.isdisjoint(table.blocks()) == are_replaced
        assert table.rows()[8] == (1, "c")


# Conflicts. A second client commits between the scan of a statement and its commit.


@pytest.fixture
def interrupted(spark: SparkSession, lake_url: str) -> Iterator[Callable[[Callable[[], object]], str]]:
    """Attaches a catalog of which the first commit is preceded by something else; returns its name."""
    services: list[PooledTransport] = []

    def attached(meanwhile: Callable[[], object]) -> str:
        service = PooledTransport(lake_url, timeout_s=30)
        services.append(service)
        waiting = [meanwhile]

        def send(request: HttpRequest) -> Any:
            if request.path.endswith("/commits") and waiting:
                waiting.pop()()
            return service.send(request)

        name = fresh("interrupted")
        attach(spark, name, Lamella(lake_url, transport=FakeTransport(send)))
        return name

    yield attached
    for service in services:
        service.close()


MEANWHILE = {
    "a row that matches is added": "INSERT INTO {t} VALUES (1003, 3, 'new')",
    "the same row is changed": "UPDATE {t} SET v = 'theirs' WHERE id = 3",
    "the same row is deleted": "DELETE FROM {t} WHERE id = 3",
    "the block is replaced": "UPDATE {t} SET v = 'theirs' WHERE id < 50",
}


@pytest.mark.parametrize("what", [*MEANWHILE])
@pytest.mark.few(2)
def test_what_others_changed_meanwhile_is_a_conflict(
    spark: SparkSession, lakes: Lakes, interrupted: Callable[[Callable[[], object]], str], what: str
) -> None:
    """Nothing is done, and the error says that the statement can be run again; then it sees the others' rows."""
    table = Numbers(spark, lakes, 200)
    other = spark.newSession()
    attach(other, CATALOG, lakes.lake)
    catalog = interrupted(lambda: other.sql(MEANWHILE[what].format(t=table.sql)))
    statement = f"UPDATE {catalog}.{table.name} SET v = concat(v, '!') WHERE id % 1000 = 3"
    with pytest.raises(SparkRuntimeException, match=r"lamella\.\w+.*nothing was done\. Run the statement again"):
        spark.sql(statement)
    theirs = table.rows()
    assert theirs != numbered(200)
    spark.sql(statement)
    assert table.rows() == {
        at: (g, f"{v}!") if at is not None and at % 1000 == 3 else (g, v) for at, (g, v) in theirs.items()
    }


def test_changes_of_other_rows_are_no_conflict(
    spark: SparkSession, lakes: Lakes, interrupted: Callable[[Callable[[], object]], str]
) -> None:
    """Two statements delete different rows of one block; rows that cannot match are added."""
    table = Numbers(spark, lakes, 200)
    other = spark.newSession()
    attach(other, CATALOG, lakes.lake)

    def meanwhile() -> None:
        other.sql(f"DELETE FROM {table.sql} WHERE id % 1000 = 5")
        other.sql(f"INSERT INTO {table.sql} VALUES (1003, 3, 'new')")

    catalog = interrupted(meanwhile)
    spark.sql(f"UPDATE {catalog}.{table.name} SET v = 'mine' WHERE id < 100 AND id % 50 = 3")
    expected = numbered(200) | {3: (3, "mine"), 53: (4, "mine"), 1003: (3, "new")}
    del expected[5]
    assert table.rows() == expected


def test_what_a_statement_read_of_other_tables_is_a_conflict(
    spark: SparkSession, lakes: Lakes, interrupted: Callable[[Callable[[], object]], str]
) -> None:
    """Rows that it needs of another table change; rows of that table that it does not need may."""
    table, source = Numbers(spark, lakes, 100), Numbers(spark, lakes, 100)
    statement = (
        "MERGE INTO {c}.{t} t USING (SELECT * FROM {c}.{s} WHERE id < 50) s ON t.id = s.id AND s.g = 3"
        " WHEN MATCHED THEN UPDATE SET v = 'x'"
    )
    for added, is_conflict in ((-4, True), (1000, False)):
        catalog = interrupted(
            lambda added=added: _insert(lakes, source, added)  # type: ignore[misc]  # a default binds the value
        )
        text = statement.format(c=catalog, t=table.name, s=source.name)
        if is_conflict:
            with pytest.raises(SparkRuntimeException, match=r"lamella\.read_conflict.*Run the statement again"):
                spark.sql(text)
            assert table.rows() == numbered(100)
        else:
            spark.sql(text)
            assert table.rows()[10] == (3, "x")


def test_a_merge_that_only_inserts_adds_no_row_twice(
    spark: SparkSession, lakes: Lakes, interrupted: Callable[[Callable[[], object]], str]
) -> None:
    """A key that another writer adds meanwhile is a conflict; plain appends of others are none for a plain append."""
    table = Numbers(spark, lakes, 20)
    catalog = interrupted(lambda: _insert(lakes, table, 777))
    statement = (
        f"MERGE INTO {catalog}.{table.name} t USING (SELECT 777L AS id) s ON t.id = s.id"
        " WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 'late')"
    )
    with pytest.raises(SparkRuntimeException, match=r"lamella\.read_conflict.*Run the statement again"):
        spark.sql(statement)
    spark.sql(statement)
    assert table.rows() == numbered(20) | {777: (3, "early")}
    catalog = interrupted(lambda: _insert(lakes, table, 778))
    spark.sql(f"INSERT INTO {catalog}.{table.name} SELECT 779L, g, v FROM {catalog}.{table.name} WHERE id = 3")
    assert table.rows()[779] == (3, "v3")


def _insert(lakes: Lakes, table: Numbers, number: int) -> None:
    """Add a row with that id, by Spark's own session."""
    session = table._spark.newSession()
    attach(session, CATALOG, lakes.lake)
    session.sql(f"INSERT INTO {table.sql} VALUES ({number}, 3, 'early')")


# Tables of other kinds.


def test_values_that_are_not_in_the_files_and_earlier_names(spark: SparkSession, lakes: Lakes) -> None:
    """Constants of blocks, columns under other names, columns that files lack, and rows that are deleted already."""
    table = lakes.empty(pa.schema([("a", pa.int64()), ("b", pa.string()), ("p", pa.string())]))
    for part in ("x", "y"):
        rows = pa.table({"a": list(range(50)), "b": [f"{part}{at}" for at in range(50)]})
        table.add(rows, names=[f"p={part}/f.parquet"])
    spark.sql(f"ALTER TABLE {table.sql} RENAME COLUMN b TO c")
    spark.sql(f"ALTER TABLE {table.sql} ADD COLUMN e INT DEFAULT 5")
    spark.sql(f"DELETE FROM {table.sql} WHERE a = 7 AND p = 'x' OR a = 8")
    spark.sql(f"UPDATE {table.sql} SET c = concat(c, p), e = e + 1 WHERE a % 25 = 9 AND p = 'y'")
    spark.sql(
        f"MERGE INTO {table.sql} t USING (SELECT 7 AS a, p FROM VALUES ('x'), ('y') v(p)) s ON t.a = s.a AND t.p = s.p"
        " WHEN MATCHED THEN UPDATE SET p = 'z' WHEN NOT MATCHED THEN INSERT (a, p) VALUES (s.a, s.p)"
    )
    numbers = [at for at in range(50) if at not in (7, 8)]
    expected: set[tuple[Any, ...]] = {(at, f"{part}{at}", part, 5) for part in "xy" for at in numbers}
    for at in (9, 34):
        expected = expected - {(at, f"y{at}", "y", 5)} | {(at, f"y{at}y", "y", 6)}
    expected |= {(7, None, "x", 5), (7, "y7", "z", 5)}
    assert {(row["a"], row["c"], row["p"], row["e"]) for row in spark.table(table.sql).collect()} == expected
    assert lakes.lake.table(table.name).verify().findings == ()


def test_types_that_spark_shows_as_others(spark: SparkSession, lakes: Lakes) -> None:
    """Unsigned numbers keep their type; a value that does not fit one is refused."""
    name = f"{fresh('unsigned')}.t"
    lakes.lake.create_namespace(name.split(".")[0])
    types = {"a": "uint8", "b": "uint32", "c": "uint64", "d": "enum", "e": "timestamp_ntz(ms)"}
    lakes.lake.create_table(name, schema=[Column(name=column, type=kind) for column, kind in types.items()])
    spark.sql(
        f"INSERT INTO {CATALOG}.{name} VALUES"
        " (1, 4294967295, 18446744073709551615, 'x', TIMESTAMP_NTZ'2024-01-01 00:00:00')"
    )
    spark.sql(f"UPDATE {CATALOG}.{name} SET a = a + 254, c = c - 1, d = 'y'")
    assert [
        tuple(row)[:4] for row in spark.sql(f"SELECT a, b, CAST(c AS STRING), d FROM {CATALOG}.{name}").collect()
    ] == [(255, 4294967295, "18446744073709551614", "y")]
    with pytest.raises(SparkRuntimeException, match=r"lamella\.schema_mismatch"):
        spark.sql(f"UPDATE {CATALOG}.{name} SET a = 256")
    assert lakes.lake.table(name).verify().findings == ()


@pytest.mark.parametrize("cluster", ["", "CLUSTER BY (id)", "CLUSTER BY (id, g)"])
@pytest.mark.few(1)
def test_many_rows_are_written_by_tasks(
    spark: SparkSession, lakes: Lakes, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    """They become blocks of the table's size and order, like those of any other write."""
    monkeypatch.setattr(row_level_write, "_DRIVER_BYTES", 1)
    name = f"{fresh('large')}.t"
    lakes.lake.create_namespace(name.split(".")[0])
    kind = ", 'lamella.cluster_kind' = 'zorder'" if "g" in cluster else ""
    spark.sql(
        f"CREATE TABLE {CATALOG}.{name} (id BIGINT, g INT) {cluster} TBLPROPERTIES ('target_block_rows' = '500'{kind})"
    )
    spark.sql(f"INSERT INTO {CATALOG}.{name} SELECT id, CAST(id % 7 AS INT) FROM range(2000)")
    spark.sql(
        f"MERGE INTO {CATALOG}.{name} t USING (SELECT id + 1000 AS id FROM range(2000)) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET g = -1 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    counts = "count(*), count(DISTINCT id), sum(id), count_if(g = -1), count_if(g IS NULL)"
    found = spark.sql(f"SELECT {counts} FROM {CATALOG}.{name}")
    assert tuple(found.collect()[0]) == (3000, 3000, 3000 * 2999 // 2, 1000, 1000)
    assert max(block.row_count for block in blocks_of(lakes.lake.table(name)).values()) <= 750
    assert lakes.lake.table(name).verify().findings == ()


def test_names_and_types_that_are_unusual(spark: SparkSession, lakes: Lakes) -> None:
    """Dots, blanks and quotes in names, times of day, bytes, nested lists."""
    with setting(spark, spark__sql__timeType__enabled="true"):
        name = f"{fresh('unusual')}.t"
        lakes.lake.create_namespace(name.split(".")[0])
        spark.sql(
            f"CREATE TABLE {CATALOG}.{name} (`a.b` INT, `x y` STRING, `ü``q` BINARY, tm TIME(6),"
            " l ARRAY<STRUCT<`p.q`: INT, r: ARRAY<STRING>>>, _lamella_row_id INT)"
        )
        spark.sql(
            f"INSERT INTO {CATALOG}.{name} SELECT CAST(id AS INT), concat('s', id), X'0102', TIME'12:30:00.123456',"
            " array(named_struct('p.q', 1, 'r', array('u', NULL)), NULL), 9 FROM range(30)"
        )
        spark.sql(
            f"UPDATE {CATALOG}.{name} SET `x y` = concat(`x y`, '!'), _lamella_row_id = `a.b` WHERE `a.b` % 10 = 4"
        )
        spark.sql(f"DELETE FROM {CATALOG}.{name} WHERE l[0].`p.q` + `a.b` = 8")
        rows = spark.table(f"{CATALOG}.{name}").collect()
        assert {(row[0], row[1], row[5]) for row in rows} == {
            (at, f"s{at}!" if at % 10 == 4 else f"s{at}", at if at % 10 == 4 else 9) for at in range(30) if at != 7
        }
        assert {(bytes(row[2]), str(row[3]), row[4][0][0], tuple(row[4][0][1]), row[4][1]) for row in rows} == {
            (b"\x01\x02", "12:30:00.123456", 1, ("u", None), None)
        }


def test_rows_are_staged_where_the_session_says(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Nothing is left there, whether a statement ends well or not."""
    table = Numbers(spark, lakes, 100)
    session = spark.newSession()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    attach(session, CATALOG, lakes.lake, scratch=f"file://{scratch}")
    session.sql(f"UPDATE {table.sql} SET v = 'x' WHERE id % 30 = 1")
    with pytest.raises(PySparkException):
        session.sql(f"UPDATE {table.sql} SET g = g + 2147483647 WHERE id > 5")
    assert [*scratch.iterdir()] == []
    assert [row["v"] for row in session.table(table.sql).where("id % 30 = 1").collect()] == ["x"] * 4


def test_plans_say_what_is_read_and_changed(spark: SparkSession, lakes: Lakes) -> None:
    """``EXPLAIN`` runs nothing; descriptions of a table have no hidden columns."""
    table = Numbers(spark, lakes)
    before = table.snapshot_id()
    text = spark.sql(f"EXPLAIN FORMATTED UPDATE {table.sql} SET v = 'x' WHERE id < 150 AND id % 2 = 1").collect()[0][0]
    assert "blocks=2/4" in text
    assert table.snapshot_id() == before
    assert "_lamella" not in str(spark.sql(f"DESCRIBE EXTENDED {table.sql}").collect())
    assert spark.table(table.sql).columns == ["id", "g", "v"]
    assert "blocks=" in plan(spark.table(table.sql))


def test_settings_of_the_session_do_not_change_values(spark: SparkSession, lakes: Lakes) -> None:
    """Files of Spark in between have exact times, whatever form the session writes Parquet in."""
    table = Numbers(spark, lakes, 10)
    spark.sql(f"ALTER TABLE {table.sql} ADD COLUMN ts TIMESTAMP")
    with setting(
        spark,
        spark__sql__parquet__outputTimestampType="TIMESTAMP_MILLIS",
        spark__sql__parquet__datetimeRebaseModeInWrite="LEGACY",
        spark__sql__files__maxRecordsPerFile="2",
    ):
        table.run("UPDATE {t} SET ts = TIMESTAMP'1500-01-01 00:00:00.123456Z'")
    assert {row[0] for row in spark.sql(f"SELECT unix_micros(ts) FROM {table.sql}").collect()} == {-14831769599876544}


def test_statements_of_two_sessions_at_once(spark: SparkSession, lakes: Lakes) -> None:
    """Each of many concurrent updates happens once, or says that it did not."""
    from concurrent.futures import ThreadPoolExecutor

    table = Numbers(spark, lakes, 100)

    def count(number: int) -> int:
        session = spark.newSession()
        attach(session, CATALOG, lakes.lake)
        done = 0
        for _ in range(3):
            try:
                session.sql(f"UPDATE {table.sql} SET g = g + 1 WHERE id = {number % 2 * 50}")
                done += 1
            except SparkRuntimeException as error:
                if "Run the statement again" not in str(error):
                    raise
        return done

    with ThreadPoolExecutor(2) as pool:
        counts = [*pool.map(count, range(2))]
    rows = table.rows()
    assert (rows[0][0], rows[50][0]) == (counts[0], 50 % 7 + counts[1])
    assert len(rows) == 100


# Row ids.


@pytest.mark.parametrize("rows", [1, 1000, MAX_IDS, 3 * MAX_IDS, 5000 * MAX_IDS])
def test_an_id_stands_for_its_row_and_few_others(rows: int) -> None:
    """Decoding gives each encoded row, and no row that is not in its run."""
    shift = shift_for(rows)
    assert (rows >> shift) <= MAX_IDS
    rng = np.random.default_rng(rows)
    count = min(rows, 100_000)
    positions = np.unique(rng.integers(0, count, 50))
    ids = np.concatenate([ids_of(number, positions, shift) for number in (0, 5)])
    assert ids.min() >= 0
    found = Runs.of(ids)
    assert found.keys() == {0, 5}
    for runs in found.values():
        decoded = positions_in(runs, count)
        assert set(positions) <= set(decoded)
        assert set(decoded >> shift) == set(positions >> shift)
        assert decoded.max() < count


def test_rows_beside_those_that_match_are_written_anew(
    spark: SparkSession, lakes: Lakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When ids stand for several rows, all of these leave their block, and stay in the table."""
    monkeypatch.setattr(row_ids, "MAX_IDS", 32)
    table = Numbers(spark, lakes, 400)
    before = table.blocks()
    table.run("DELETE FROM {t} WHERE id % 200 = 150")
    table.run("UPDATE {t} SET v = 'x' WHERE id % 200 = 199 AND id % 2 = 1")
    expected = numbered(400) | {199: (3, "x"), 399: (0, "x")}
    del expected[150], expected[350]
    assert table.rows() == expected
    deleted = [table.blocks()[location] for location in before]
    assert deleted[0] == deleted[2] == 0
    assert deleted[1] > 2
    assert deleted[3] > 2


def test_ids_of_scans_with_different_runs_differ() -> None:
    """An id says how many rows it stands for."""
    ids = np.concatenate([ids_of(3, np.array([9]), 0), ids_of(3, np.array([9]), 2)])
    assert positions_in(Runs.of(ids)[3], 11).tolist() == [8, 9, 10]
    with pytest.raises(LamellaError, match="row 9 of a block of 5 rows"):
        positions_in(Runs.of(ids[:1])[3], 5)


def test_numbers_of_blocks_stay_the_same() -> None:
    """Whatever is asked for first."""
    numbers = BlockNumbers()
    assert numbers.of(["a", "b"]) == [0, 1]
    assert numbers.of(["c", "b"]) == [2, 1]
    assert numbers.location(2) == "c"
