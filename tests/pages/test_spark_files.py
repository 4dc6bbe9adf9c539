"""Files as Spark writes them by default: page indexes of version 1 pages, text cut at 64 bytes, no exact flags."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lamella.snapshot.parquet import ingest, read_footer, schema_of
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest
from pages.page_tables import answered_rows, proven_rows

Row = dict[str, Any]

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session of this run's tests, or a small one."""
    assert java_home
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark")))
        .getOrCreate()
    )


def _between(name: str, low: Any, high: Any, row: Row) -> bool:
    return row[name] is not None and bool(low <= row[name] < high)


def _null_above(low: int, row: Row) -> bool:
    return row["d"] is None and bool(row["k"] > low)


def test_pages_of_sparks_files_hold_their_rows(session: SparkSession, tmp_path: Path) -> None:
    """Whatever the filter, Spark's own rows decide; a lookup of one key is one page."""
    frame = session.range(0, 20_000, 1, 1).selectExpr(
        "id AS k",
        "concat(repeat('long-', 11), 'xx', lpad(id, 8, '0')) AS t",
        "IF(id % 7 = 0, NULL, CAST(id AS DOUBLE) / 8) AS x",
        "IF(id BETWEEN 4000 AND 9000, NULL, CAST(id AS DECIMAL(20, 2))) AS d",
        "named_struct('a', id DIV 100, 'b', array(id)) AS s",
    )
    frame.write.option("parquet.page.row.count.limit", 500).option("parquet.block.size", 1 << 20).option(
        "parquet.page.size.row.check.min", 100
    ).parquet(str(tmp_path / "files"))
    (path,) = (tmp_path / "files").glob("*.parquet")
    rows = pq.read_table(path).to_pylist()
    store = FsspecStore()
    schema = schema_of(read_footer(store, f"file://{path}"))
    blocks, _ = ingest(store, [f"file://{path}"], schema)
    warehouse = Warehouse(store, f"file://{tmp_path}/lake")
    pointer = warehouse.create("t", schema, now_ms=1)
    pointer = warehouse.commit(pointer, added=warehouse.prepare("t", schema, blocks), now_ms=2).pointer
    rng = Random(5)
    for at in range(40):
        if at == 20:
            assert warehouse.build_pages(pointer).left_out == {}
        low = rng.randrange(20_000)
        high = low + rng.choice([0, 3, 700])
        tests: dict[str, Callable[[Row], bool]] = {
            f"k BETWEEN {low} AND {high}": partial(_between, "k", low, high + 1),
            f"t = '{rows[low]['t']}'": partial(_between, "k", low, low + 1),
            f"x >= {low / 8} AND x < {high / 8}": partial(_between, "x", low / 8, high / 8),
            f"d IS NULL AND k > {low}": partial(_null_above, low),
            f"d = {low}.00": partial(_between, "d", Decimal(low), Decimal(low + 1)),
            f"s.a = {low // 100}": partial(_between, "k", low // 100 * 100, low // 100 * 100 + 100),
        }
        for text, matches in tests.items():
            request = PruneRequest(filter=text, level="page", columns=("k", "t", "x", "d", "s"))
            found = warehouse.prune(pointer, request).blocks
            assert found is not None
            wanted = {number for number, row in enumerate(rows) if matches(row)}
            pages = found[0].pages if found else None
            assert pages is not None or not wanted
            if pages is None:
                continue
            answered = answered_rows(pages, len(rows))
            assert wanted <= answered, text
            assert proven_rows(pages) <= wanted, text
            if text.startswith(("t =", "k BETWEEN")) and low == high:
                assert len(answered) <= 1_000, text
