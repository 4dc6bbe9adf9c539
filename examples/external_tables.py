"""External tables: a Hive folder and a Delta table that other programs write, queried with their files left in place.

    python examples/external_tables.py [FOLDER]

Needs ``lamella[service,delta]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from lamella.client import Lamella


def write_sales(folder: Path, year: int, month: int, rows: int) -> None:
    """A file of a Hive folder: year and month are in the path only."""
    place = folder / f"year={year}" / f"month={month}"
    place.mkdir(parents=True)
    pq.write_table(pa.table({"id": range(rows), "price": [n % 90 + 0.5 for n in range(rows)]}), place / "0.parquet")


def main(folder: Path) -> None:
    """Make both tables, query them, and follow what their writers change."""
    for month in range(1, 13):
        write_sales(folder / "sales", 2025, month, 1_000)
    orders = str(folder / "orders")
    for day in range(5):
        ids = range(day * 100, day * 100 + 100)
        write_deltalake(orders, pa.table({"id": ids, "day": [day] * 100}), mode="append")

    with Lamella.embedded(folder / "lake") as lake:
        lake.create_namespace("shop")

        # A Hive folder: the names of its folders are columns, and a condition on them opens no file of the others.
        lake.create_external("shop.sales", {"kind": "directory", "location": str(folder / "sales")})
        sales = lake.table("shop.sales")
        print(f"sales: {sales.refresh().added} files added")
        print([column.name for column in sales.info().schema.columns])
        march = sales.scan("year = 2025 AND month = 3")
        print(f"{len(march.fragments())} of 12 files for March, {march.count():,} rows")

        # Its writer adds a month. A refresh opens the new file only.
        write_sales(folder / "sales", 2026, 1, 500)
        again = sales.refresh()
        print(
            f"sales: {again.added} added, {again.unchanged} unchanged; {sales.scan('year = 2026').count()} rows of 2026"
        )

        # A Delta table: each version is a snapshot; files that Delta removed are gone here, too.
        lake.create_external("shop.orders", {"kind": "delta", "location": orders})
        table = lake.table("shop.orders")
        print(f"orders: {table.refresh().added} files added, {table.scan('id >= 450').count()} rows from 450 on")
        write_deltalake(orders, pa.table({"id": [7], "day": [7]}), mode="overwrite")
        changed = table.refresh()
        print(f"orders: {changed.added} added, {changed.removed} removed, {table.info().row_count} row")

        # The earlier version is still in the history.
        before = list(table.snapshots())[1]
        print(f"before: {table.scan(snapshot_id=before.snapshot_id).count()} rows")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/examples/external_tables").absolute())
