"""Random histories of partitioned tables of a Hive Metastore: after each step, rows and pruning against Spark."""

# ruff: noqa: S608 - the SQL of these tests has no input from outside

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogs.hive_server import HiveSpark, Metastore
from catalogs.test_hive import imported, same_rows
from lamella.client import Lamella
from support.sources import rows_of

pytestmark = pytest.mark.spark

#: Values of a partition column in SQL, by type.
VALUES = {
    "STRING": ["'a'", "'A'", "'a/b'", "'50%'", "'%41'", "'x=y'", "'é'", "'1'", "' b'"],
    "DATE": ["DATE '2024-01-31'", "DATE '1970-01-01'", "DATE '2024-02-01'"],
    "INT": ["-1", "0", "12"],
    "DECIMAL(8, 2)": ["1.50", "-0.01", "100"],
    "TIMESTAMP": ["TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01 12:34:56.789'"],
}


class History:
    """A table, and what happens to it. ``steps``: what was done, for a failure's report."""

    def __init__(self, seed: int, name: str, folder: Path, spark: HiveSpark) -> None:
        self.random = random.Random(seed)
        self.table = f"{name}.t"
        self.folder = folder / "Table"
        self.elsewhere = folder / "else where"
        self.spark = spark
        self.keys = self.random.sample(sorted(VALUES), self.random.choice((1, 1, 2)))
        self.columns = 1
        self.count = 0
        self.partitions: list[tuple[str, ...]] = []
        self.dropped: list[tuple[str, ...]] = []
        self.steps: list[str] = []
        names = ", ".join(f"P{at} {kind}" for at, kind in enumerate(self.keys))
        self._run(
            f"CREATE DATABASE {name}",
            f"CREATE EXTERNAL TABLE {self.table} (Id BIGINT, c0 STRING) PARTITIONED BY ({names}) STORED AS PARQUET "
            f"LOCATION '{self.folder.as_uri()}'",
        )

    def _run(self, *statements: str) -> None:
        self.steps += statements
        self.spark.run(*statements)

    def _values(self) -> tuple[str, ...]:
        return tuple(self.random.choice(VALUES[kind]) for kind in self.keys)

    def _spec(self, values: tuple[str, ...]) -> str:
        return "(" + ", ".join(f"P{at} = {value}" for at, value in enumerate(values)) + ")"

    def _fresh(self) -> tuple[str, ...] | None:
        values = self._values()
        return None if values in self.partitions else values

    def insert(self) -> None:
        """Some rows into some partitions, null among them."""
        rows = []
        for _ in range(self.random.randint(1, 3)):
            values = tuple("NULL" if self.random.random() < 0.2 else value for value in self._values())
            self.count += 1
            more = ", ".join(f"'{self.count}-{at}'" for at in range(self.columns))
            rows.append(f"({self.count}, {more}, {', '.join(values)})")
            if "NULL" not in values and values not in self.partitions:
                self.partitions.append(values)
        self._run(f"INSERT INTO {self.table} VALUES {', '.join(rows)}")

    def add_elsewhere(self) -> None:
        """A partition with a folder whose name says something else."""
        values = self._fresh()
        if values is not None:
            folder = self.elsewhere / f"P0={len(self.steps)}"
            self.partitions.append(values)
            self._run(
                f"ALTER TABLE {self.table} ADD IF NOT EXISTS PARTITION {self._spec(values)} "
                f"LOCATION '{folder.as_uri()}'"
            )

    def drop(self) -> None:
        """A partition, whose folder remains."""
        if self.partitions:
            values = self.partitions.pop(self.random.randrange(len(self.partitions)))
            self._run(f"ALTER TABLE {self.table} DROP IF EXISTS PARTITION {self._spec(values)}")

    def rename(self) -> None:
        """A partition gets other values; its files stay where they are."""
        values = self._fresh()
        if self.partitions and values is not None:
            old = self.partitions.pop(self.random.randrange(len(self.partitions)))
            self.partitions.append(values)
            self._run(f"ALTER TABLE {self.table} PARTITION {self._spec(old)} RENAME TO PARTITION {self._spec(values)}")

    def add_column(self) -> None:
        """One that earlier files do not have."""
        self._run(f"ALTER TABLE {self.table} ADD COLUMNS (C{self.columns} STRING)")
        self.columns += 1

    def stray(self) -> None:
        """A file in a folder that is not a partition, or hidden in one that is."""
        files = [*self.folder.rglob("*.parquet")]
        if files:
            file = self.random.choice(files)
            target = self.random.choice(
                (self.folder / f"P0=stray{len(self.steps)}", file.parent / "_x", file.parent / "x")
            )
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target / "0.parquet")
            self.steps.append(f"stray file {target}")

    def rewrite(self) -> None:
        """A file is replaced by a copy of another one, in place."""
        files = sorted(self.folder.rglob("*.parquet"))
        if len(files) > 1:
            one, other = self.random.sample(files, 2)
            shutil.copy(one, other)
            (other.parent / f".{other.name}.crc").unlink(missing_ok=True)
            self.steps.append(f"{one} to {other}")

    def filters(self) -> Iterator[str]:
        """Filters on partition columns, alone and with others."""
        for at, kind in enumerate(self.keys):
            for value in VALUES[kind]:
                yield f"P{at} = {value}"
            yield f"P{at} > {self.random.choice(VALUES[kind])} OR Id < 3"
            yield f"P{at} IS NULL"
            yield f"P{at} IS NOT NULL AND c0 >= '2'"


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(24))
def test_a_random_history_is_followed(
    lake: Lamella, metastore: Metastore, hive_spark: HiveSpark, name: str, tmp_path: Path, seed: int
) -> None:
    """Each import makes the table what Spark reads; filters on partitions keep exactly the rows of a full scan."""
    history = History(seed, name, tmp_path, hive_spark)
    history.insert()
    for _ in range(6):
        result = imported(lake, metastore, name, allow_empty=True)["t"]
        assert result.action in ("created", "refreshed", "unchanged"), (result, history.steps)
        same_rows(lake, hive_spark, history.table)
        assert imported(lake, metastore, name, allow_empty=True)["t"].action == "unchanged", history.steps
        check_filters(lake, hive_spark, history)
        for _ in range(history.random.randint(1, 3)):
            steps = (history.insert, history.add_elsewhere, history.drop, history.rename, history.stray)
            history.random.choice((*steps, history.insert, history.add_column, history.rewrite))()


def check_filters(lake: Lamella, spark: HiveSpark, history: History) -> None:
    """Assert that filtered scans have the rows that Spark finds with the same filters."""
    own = lake.table(history.table)
    filters = history.random.sample([*history.filters()], 4)
    wanted = spark.matches(history.table, filters)
    for text, ids in zip(filters, wanted, strict=True):
        found = own.scan(text, columns=["Id"]).to_arrow()
        assert sorted(row["Id"] for row in rows_of(found)) == ids, (text, history.steps)
        assert own.scan(text).count() == len(ids)
