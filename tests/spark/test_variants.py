"""Variants through Spark: written, read, changed and streamed without a loss, whole and shredded."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import VariantVal

from lamella.client.http import Lamella
from lamella.client.spark import attach, write
from lamella.snapshot.errors import BlocksRefused
from lamella.snapshot.schema.shredding import SHREDDING
from spark.lakes import CATALOG, Lakes, blocks_read, fresh, plan, setting

pytestmark = pytest.mark.spark

DOCUMENTS = [
    '{"a": {"b": 1, "s": "x"}, "t": [1, 2.5, null], "d": 1.50}',
    '{"a": {"b": "7"}, "é ü": true}',
    '{"a": 5, "d": 1e300}',
    '{"a": null}',
    "{}",
    "[1, [2], {}]",
    "17",
    '"text"',
    "null",
    None,
]


@pytest.fixture
def space(lakes: Lakes) -> str:
    """A namespace."""
    name = fresh("variants")
    lakes.lake.create_namespace(name)
    return f"{CATALOG}.{name}"


def documents(spark: SparkSession, texts: list[str | None] = DOCUMENTS) -> DataFrame:
    """Rows of a number and a variant."""
    rows = spark.createDataFrame(list(enumerate(texts)), "id INT, j STRING")
    return rows.select("id", F.expr("parse_json(j)").alias("v"))


def shown(frame: DataFrame, column: str = "v") -> dict[int, Any]:
    """The variants of rows as JSON, by their numbers."""
    return {row[0]: row[1] for row in frame.select("id", F.expr(f"to_json({column})")).collect()}


def test_a_variant_comes_back_as_it_was_written(spark: SparkSession, lake: Lamella, space: str) -> None:
    """By each way to write; a variant null is not the absence of a value, which is counted."""
    wanted = shown(documents(spark))
    name = f"{space}.plain"
    spark.sql(f"CREATE TABLE {name} (id INT, v VARIANT)")
    documents(spark).createOrReplaceTempView("variant_documents")
    spark.sql(f"INSERT INTO {name} SELECT id, v FROM variant_documents")
    assert shown(spark.table(name)) == wanted
    table = lake.table(name.removeprefix(f"{CATALOG}."))
    summary = table.snapshot(table.info().snapshot_id).summary
    assert summary.col_stats[2].null_count == 1
    documents(spark).writeTo(f"{space}.created").create()
    documents(spark).writeTo(f"{space}.created").append()
    assert spark.table(f"{space}.created").count() == 2 * len(DOCUMENTS)
    write(documents(spark), f"{space}.function".removeprefix(f"{CATALOG}."), client=lake)
    assert shown(spark.table(f"{space}.function")) == wanted
    assert spark.table(name).where("v IS NULL").count() == 1
    got = spark.sql(f"SELECT variant_get(v, '$.a.b', 'int') AS b, v:d::double AS d FROM {name} WHERE id = 0").collect()[
        0
    ]
    assert (got["b"], got["d"]) == (1, 1.5)


def test_variants_are_shredded_as_the_table_says(spark: SparkSession, lake: Lamella, space: str) -> None:
    """By a property, at creation or later; the same values come back, from files of either form."""
    name = f"{space}.shredded"
    fields = "v:a.b::int, v:d::decimal(9,2), v:['é ü']::boolean"
    spark.sql(f"CREATE TABLE {name} (id INT, v VARIANT)")
    documents(spark).writeTo(name).append()
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('lamella.variant.shredding' = \"{fields}\")")
    properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()}
    assert properties["lamella.variant.shredding"] == fields.replace("['é ü']", "['é ü']")
    documents(spark).selectExpr("id + 100 AS id", "v").writeTo(name).append()
    before = shown(documents(spark))
    assert shown(spark.table(name)) == {**before, **{number + 100: text for number, text in before.items()}}
    table = lake.table(name.removeprefix(f"{CATALOG}."))
    files = [pq.read_schema(each.removeprefix("file://")) for each in table.prune("id >= 0").locations]
    assert sorted(file.field("v").type.num_fields for file in files) == [2, 3]
    with setting(spark, spark__sql__variant__pushVariantIntoScan="false"):
        got = spark.sql(
            f"SELECT sum(variant_get(v, '$.d', 'decimal(9,2)')) AS d FROM {name} WHERE id % 100 = 0"
        ).collect()[0]
        assert str(got["d"]) == "3.00"


def test_statements_change_rows_with_variants(spark: SparkSession, space: str) -> None:
    """UPDATE, MERGE and DELETE keep the variants of other rows, in whole and in shredded blocks, and write new ones."""
    name = f"{space}.changed"
    spark.sql(f"CREATE TABLE {name} (id INT, v VARIANT)")
    documents(spark).writeTo(name).append()
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('lamella.variant.shredding' = 'v:a.b::int')")
    documents(spark).selectExpr("id + 100 AS id", "v").writeTo(name).append()
    wanted = shown(spark.table(name))
    spark.sql(f"""UPDATE {name} SET v = parse_json('{{"a": {{"b": 5}}}}') WHERE variant_get(v, '$.a.b', 'int') = 1""")
    wanted |= dict.fromkeys((0, 100), '{"a":{"b":5}}')
    assert shown(spark.table(name)) == wanted
    spark.sql(f"DELETE FROM {name} WHERE try_variant_get(v, '$.a.b', 'int') = 7")
    spark.sql(f"DELETE FROM {name} WHERE id IN (3, 103) OR v IS NULL")
    wanted = {number: text for number, text in wanted.items() if number % 100 not in (1, 3, 9)}
    assert shown(spark.table(name)) == wanted
    documents(spark, ['{"new": [1]}', "2"]).createOrReplaceTempView("variant_source")
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT id * 107 AS id, v FROM variant_source) s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    wanted |= {0: '{"new":[1]}', 107: "2"}
    assert shown(spark.table(name)) == wanted
    spark.sql(f"CALL {CATALOG}.system.compact('{name.removeprefix(CATALOG + '.')}')")
    assert shown(spark.table(name)) == wanted
    changes = spark.sql(f"SELECT id, v, _change_type FROM {name} CHANGES FROM VERSION 2 TO VERSION 4")
    assert changes.where("_change_type = 'insert'").count() >= len(DOCUMENTS)


def test_streams_carry_variants(spark: SparkSession, space: str, tmp_path: Path) -> None:
    """From table to table, by toTable."""
    source, target = f"{space}.source", f"{space}.target"
    documents(spark).writeTo(source).tableProperty("lamella.variant.shredding", "v:a.b::int, v:d::double").create()
    rows = spark.readStream.table(source)
    query = (
        rows.writeStream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).toTable(target)
    )
    query.awaitTermination()
    assert shown(spark.table(target)) == shown(spark.table(source)) == shown(documents(spark))


def test_files_of_spark_with_variants_are_registered(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """As Spark writes them, shredded by its own choice or not; and read as a table, in Spark and in Python."""
    folders = [tmp_path / name for name in ("inferred", "whole")]
    for folder, infer in zip(folders, ("true", "false"), strict=True):
        with setting(spark, spark__sql__variant__inferShreddingSchema=infer):
            documents(spark).coalesce(1).write.parquet(str(folder))
    files = [str(next(folder.glob("*.parquet"))) for folder in folders]
    lakes.lake.create_namespace(namespace := fresh("registered"))
    lakes.lake.create_table(f"{namespace}.t", schema_from=files[0])
    table = lakes.lake.table(f"{namespace}.t")
    assert table.register(files, strict=True).registered == 2
    wanted = list(map(str, shown(documents(spark)).values())) * 2
    name = f"{CATALOG}.{namespace}.t"
    got = [row[0] for row in spark.sql(f"SELECT to_json(v) FROM {name}").collect()]
    assert sorted(map(str, got)) == sorted(wanted)
    rows = table.scan().to_arrow()
    assert rows.column("v").null_count == 2
    assert table.snapshot(table.info().snapshot_id).summary.col_stats[2].null_count == 2
    read = [value and json.loads(VariantVal(**value).toJson()) for value in rows.column("v").to_pylist()]
    given = [text and json.loads(text) for text in DOCUMENTS * 2]
    assert sorted(json.dumps(each, sort_keys=True) for each in read) == sorted(
        json.dumps(each, sort_keys=True) for each in given
    )
    plain = tmp_path / "plain.parquet"
    pq.write_table(rows, plain)
    with pytest.raises(BlocksRefused, match="no column"):
        table.register([str(plain)], strict=True)


def files_of(executed: Any) -> int:
    """The number of files that the scan of a plan that has run has opened."""
    scan = executed.collectLeaves().head()
    return int(scan.metrics().apply("numFiles").value())


BLOCKS = 6
#: Conditions, and how many of the six blocks are read at most.
CONDITIONS = [
    ("variant_get(v, '$.a.n', 'int') = 250", 1),
    ("variant_get(v, '$[\"a\"][''n'']', 'bigint') BETWEEN 199 AND 201", 2),
    ("v:a.n::int > 490", 2),
    ("v:a.n::double >= 300.5", 3),
    ("CAST(v:a.n AS DECIMAL(12,2)) < 150.25", 2),
    ("try_variant_get(v, '$.a.n', 'smallint') = 5", 1),
    ("try_variant_get(v, '$.a.n', 'tinyint') = 5", BLOCKS),  # other values do not fit
    ("try_cast(v:a.n AS STRING) = '42'", BLOCKS),
    ("variant_get(v, '$.a.t', 'string') LIKE 'k3%'", 2),
    ("v:a.t::string IN ('k100', 'none')", 2),
    ("v:A.n::int = 250", BLOCKS),
    ("v:a.n[0]::int = 250", BLOCKS),
    ("try_variant_get(v, '$.mixed', 'int') = 7", BLOCKS),
    ("v:a.n::int IS NULL", BLOCKS),
    ("v:a.n::int = 250 OR id = 30", 2),
    ("NOT (v:a.n::int <> 250)", 1),
    ("v:missing::int = 1", 0),
    ("v IS NULL", 0),
]


def test_paths_of_shredded_fields_prune(spark: SparkSession, lake: Lamella, space: str) -> None:
    """However a path is written: the rows are those of a filter that Spark evaluates alone, and few blocks are read."""
    name = f"{space}.pruned"
    fields = "v:a.n::bigint, v:a.t::string, v:mixed::int, v:missing::int"
    spark.sql(f"CREATE TABLE {name} (id INT, v VARIANT) TBLPROPERTIES ('lamella.variant.shredding' = '{fields}')")
    for at in range(BLOCKS):
        numbers = range(at * 100, at * 100 + 100)
        texts = [
            json.dumps({"a": {"n": n if n % 7 else None, "t": f"k{n}"}, "mixed": n % 10 if n % 2 else "7"})
            for n in numbers
        ]
        rows = spark.createDataFrame(list(zip(numbers, texts, strict=True)), "id INT, j STRING")
        rows.selectExpr("id", "parse_json(j) AS v").coalesce(1).writeTo(name).append()
    every = spark.table(name).localCheckpoint()
    views = attach(spark, fresh("views"), lake, mode="views")  # in which Spark replaces paths by columns
    short = name.removeprefix(f"{CATALOG}.")
    for condition, maximum in CONDITIONS:
        wanted = sorted(row[0] for row in every.where(condition).select("id").collect())
        found = spark.table(name).where(condition).select("id")
        assert sorted(row[0] for row in found.collect()) == wanted, condition
        selected, total = blocks_read(found)
        assert total == BLOCKS
        assert selected <= maximum, (condition, plan(found))
        frame = views.table(short).where(condition).select("id")
        executed = frame._jdf.queryExecution().executedPlan()
        assert sorted(row[0] for row in frame.collect()) == wanted, condition
        assert files_of(executed) <= maximum, (condition, str(executed))


def random_document(rng: Random) -> Any:
    """A document of members that are mostly of one type, some of them not."""
    if rng.random() < 0.05:
        return rng.choice([None, 5, "x", [1], {}])
    number: Any = rng.randrange(60)
    if rng.random() < 0.06:
        number = rng.choice([None, "7", 1 << 40, 2.5, {"x": 1}, True])
    document = {
        "a": {"n": number, "t": f"k{rng.randrange(30):02}", "é": rng.random() < 0.5},
        "d": rng.randrange(500) / 4,
    }
    if rng.random() < 0.1:
        document["a"] = rng.choice([None, [number], {"n": number}])
    return document


def random_condition(rng: Random) -> str:
    """A filter on paths of such documents, in one of the forms that Spark has; it fails for no row."""
    kinds = {"a.n": ["bigint", "int", "double", "decimal(12,1)", "string"], "d": ["decimal(9,2)", "int", "double"]}
    kinds |= {"a.t": ["string"], "a['é']": ["boolean"]}
    path = rng.choice(list(kinds))
    kind = rng.choice(kinds[path])
    value = {"string": f"'k{rng.randrange(30):02}'", "boolean": "true"}.get(kind, str(rng.randrange(130)))
    form = rng.choice(["try_variant_get(v, '$.{p}', '{k}')", "try_cast(v:{p} AS {k})"])
    term = form.format(p=path.replace("'", '"') if form.startswith("try_variant") else path, k=kind)
    test = rng.choice([f"= {value}", f"< {value}", f">= {value}", f"<=> {value}", f"IN ({value}, NULL)", "IS NULL"])
    return f"NOT ({term} {test})" if rng.random() < 0.2 else f"{term} {test}"


@pytest.mark.parametrize("seed", [23, 24, 25])
@pytest.mark.few(1)
def test_random_paths_lose_no_row(spark: SparkSession, lakes: Lakes, tmp_path: Path, seed: int) -> None:
    """Whole, shredded and mixed blocks, of Lamella and of Spark, which infers its own fields: each filter finds the
    rows that Spark finds without pruning, and some blocks are left out."""
    rng = Random(seed)
    folder = tmp_path / "files"
    name = f"{CATALOG}.{fresh('random')}.t"
    lakes.lake.create_namespace(name.split(".")[1])
    spark.sql(f"CREATE TABLE {name} (id INT, v VARIANT)")
    table = lakes.lake.table(name.removeprefix(f"{CATALOG}."))
    for number in range(14):
        documents = [random_document(rng) for _ in range(6)]
        if number == 3:
            fields = "v:a.n::bigint, v:a.t::string, v:a['é']::boolean, v:d::decimal(9,2)"
            spark.sql(f'ALTER TABLE {name} SET TBLPROPERTIES ("{SHREDDING}" = "{fields}")')
        texts = [None if each is None else json.dumps(each) for each in documents]
        rows = spark.createDataFrame([(6 * number + at, text) for at, text in enumerate(texts)], "id INT, j STRING")
        frame = rows.selectExpr("id", "parse_json(j) AS v").coalesce(1)
        if number % 3:
            frame.writeTo(name).append()
        else:
            frame.write.parquet(str(folder / str(number)))
            table.register([str(next((folder / str(number)).glob("*.parquet")))], strict=True)
    every = spark.table(name).localCheckpoint()
    left_out = 0
    for _ in range(20):
        condition = random_condition(rng)
        wanted = sorted(row[0] for row in every.where(condition).select("id").collect())
        found = spark.table(name).where(condition).select("id")
        assert sorted(row[0] for row in found.collect()) == wanted, condition
        if "blocks=" in plan(found):  # else Spark knows that no row matches
            selected, total = blocks_read(found)
            left_out += total - selected
    assert left_out > 20
