"""Random tables with constants, deleted rows and renamed columns: every reader finds the rows that the oracle finds."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Context, Decimal
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lamella.client.http import Table
from lamella.snapshot.errors import FilterNotEvaluable
from lamella.snapshot.expression import Predicate
from lamella.snapshot.schema import DataType, Leaf, Schema
from lamella.snapshot.schema.evolution import RenameColumn, evolve
from scan.test_rows_found import bare, lines
from spark.lakes import CATALOG, Lakes, fresh, setting
from spark.test_superset import SETTINGS
from support import generate
from support.arrow_files import arrow_table
from support.oracle import Oracle
from support.random_blocks import RandomBlocks
from support.spark_sql import sql_of

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

#: Tables in one query: planning many scans costs less than running many queries.
_TOGETHER: Final = 20
_DIGITS: Final = Context(prec=60)


class SentTable:
    """A random table in the service, a filter, and the rows that match it."""

    def __init__(self, lakes: Lakes, namespace: str, seed: int, folder: Path) -> None:
        blocks = RandomBlocks(seed, folder, generate.SPARK_TYPES)
        rng = blocks.rng
        self.name = f"{namespace}.t{seed}"
        lakes.lake.create_table(self.name, schema=blocks.schema)
        self.table: Table = lakes.lake.table(self.name)
        # A block without rows leaves a table.
        added = [block for number, block in enumerate(blocks.blocks) if blocks.rows(number) or not block.deletes]
        half = rng.randint(0, len(added))
        for some in (added[:half], added[half:]):
            if some:
                self.table.commit(added=some)
        schema, rows = blocks.schema, blocks.every_row()
        plain = [column.name for column in schema.columns if not column.fields]
        if rng.random() < 0.3:
            old = rng.choice(plain)
            change = RenameColumn(column=old, name="renamed")
            self.table.evolve([change])
            schema = evolve(schema, [change])
            rows = [{"renamed" if name == old else name: cell for name, cell in row.items()} for row in rows]
        self.schema: Schema = schema
        seen = {leaf.name: [row[leaf.name] for row in rows] for leaf in schema.leaves()}
        self.predicate: Predicate = generate.predicate(rng, schema, seen)
        self.text = sql_of(self.predicate)
        oracle = Oracle(schema)
        self.rows = [row for row in rows if oracle.decide(self.predicate, row) is True]
        self.delete_files = blocks.delete_files

    def values(self) -> Counter[tuple[str, ...]]:
        """The matching rows, as :func:`decoded` returns them."""
        return Counter(tuple(repr(row[leaf.name]) for leaf in self.schema.leaves()) for row in self.rows)

    def check_python(self) -> bool:
        """Read in Python; returns False if the filter cannot be evaluated there."""
        leaves = self.schema.leaves()
        wanted = arrow_table(self.schema, {leaf.name: [row[leaf.name] for row in self.rows] for leaf in leaves})
        wanted = wanted.cast(pa.schema([field.with_type(bare(field.type)) for field in wanted.schema]))
        try:
            scan = self.table.scan(self.text)
            found = scan.to_arrow()
        except FilterNotEvaluable:
            return False
        assert lines(found) == lines(wanted), f"{self.name}: {self.text}"
        assert scan.count() == len(self.rows), f"{self.name}: {self.text}"
        parts = [batch for fragment in scan.fragments() for batch in fragment.to_batches()]
        assert sum(batch.num_rows for batch in parts) == len(self.rows), f"{self.name}: {self.text}"
        return True


def as_text(leaf: Leaf) -> str:
    """A column as text that has all of its value, in Spark's SQL."""
    column = ".".join(f"`{part}`" for part in leaf.path)
    dtype = leaf.dtype
    if dtype.name == "date":
        return f"CAST(unix_date({column}) AS STRING)"
    if dtype.name in ("timestamp", "timestamp_ntz"):
        return f"CAST(unix_micros(CAST({column} AS TIMESTAMP)) AS STRING)"
    return f"hex({column})" if dtype.order == "bytes" else f"CAST({column} AS STRING)"


def decoded(dtype: DataType, text: str | None) -> str:
    """What such a text means, as the oracle writes it."""
    if text is None:
        return "None"
    if dtype.name == "boolean":
        return str(int(text == "true"))
    if dtype.is_float:
        return repr(float(np.float32(text)) if dtype.bits == 32 else float(text))
    if dtype.name == "decimal":
        return str(int(_DIGITS.scaleb(Decimal(text), dtype.scale)))
    return repr(bytes.fromhex(text)) if dtype.order == "bytes" else text


def check_spark(spark: SparkSession, lakes: Lakes, tables: Sequence[SentTable], *, source: bool) -> None:
    """Read tables in one query, from the catalog or from the Python data source (``source``)."""
    parts = []
    for number, table in enumerate(tables):
        name = f"{CATALOG}.{table.name}"
        if source:
            name = f"source{number}"
            options = {"url": lakes.lake.url, "table": table.name}
            spark.read.format("lamella").options(**options).load().createOrReplaceTempView(name)
        columns = ", ".join(map(as_text, table.schema.leaves()))
        # "WHERE (c)" alone would be an alias of the table with a name for its column, if ANSI mode is off.
        parts.append(f"SELECT {number} AS number, array({columns}) AS row FROM {name} WHERE true AND {table.text}")
    found: list[Counter[tuple[str, ...]]] = [Counter() for _ in tables]
    for number, row in spark.sql(" UNION ALL ".join(parts)).collect():
        kinds = [leaf.dtype for leaf in tables[number].schema.leaves()]
        found[number][tuple(decoded(kind, cell) for kind, cell in zip(kinds, row, strict=True))] += 1
    for table, rows in zip(tables, found, strict=True):
        assert rows == table.values(), f"{table.name}, {source=}: {table.text}"


def check_tables(spark: SparkSession, lakes: Lakes, seeds: range, folder: Path) -> str:
    """Check that all readers agree on random tables; returns how many each of them read."""
    namespace = fresh("agree")
    lakes.lake.create_namespace(namespace)
    in_python = sources = 0
    with setting(spark, **SETTINGS, spark__sql__ansi__enabled="false"):
        for first in range(seeds.start, seeds.stop, _TOGETHER):
            some = range(first, min(first + _TOGETHER, seeds.stop))
            tables = [SentTable(lakes, namespace, seed, folder) for seed in some]
            in_python += sum(table.check_python() for table in tables)
            check_spark(spark, lakes, tables, source=False)
            check_spark(spark, lakes, tables[:2], source=True)
            sources += len(tables[:2])
            for table in tables:
                table.delete_files()
                lakes.lake.drop_table(table.name, purge=True)
    return f"{len(seeds)} tables: Spark's catalog read all, the scan in Python {in_python}, the data source {sources}"


def test_readers_agree_on_random_tables(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """Spark's catalog and data source, and the scan in Python with its counts and fragments."""
    check_tables(spark, lakes, range(8), tmp_path)


@pytest.mark.soak
def test_readers_agree_on_ten_thousand_random_tables(spark: SparkSession, lakes: Lakes, tmp_path: Path) -> None:
    """The same at length."""
    print(check_tables(spark, lakes, range(1_000, 11_000), tmp_path))
