"""Two real tables for the dashboard's tests: TPC-H's lineitem, half of it in order, and skewed events."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client import Lamella
from tpch_demo.data import generate

NAMESPACE = "shop"
LINEITEM = "shop.lineitem"
EVENTS = "shop.events"
_BLOCKS = 60
_COMMITS = 6
_SMALL = 40
_ROWS = 400


def fill(lake: Lamella, folder: Path, *, scale: float = 0.01) -> None:
    """Make both tables, with a history, a tag, an index that does not know all blocks, and filters that were asked."""
    lake.create_namespace(NAMESPACE)
    _lineitem(lake, folder, scale)
    _events(lake, folder)


def _lineitem(lake: Lamella, folder: Path, scale: float) -> None:
    generate(folder / "tpch", scale)
    whole = pq.read_table(folder / "tpch" / "lineitem.parquet")
    half = len(whole) // 2  # of which the blocks do not overlap
    dates = whole["l_shipdate"].slice(0, half).to_numpy()
    whole = _taken(whole, [*dates.argsort(kind="stable").tolist(), *range(half, len(whole))])
    rows = -(-len(whole) // _BLOCKS)
    files = [folder / "lineitem" / f"part-{number:03}.parquet" for number in range(_BLOCKS)]
    files[0].parent.mkdir()
    for number, file in enumerate(files):
        pq.write_table(whole.slice(number * rows, rows), file, row_group_size=rows // 2, write_page_index=True)
    lake.create_table(LINEITEM, schema_from=f"file://{files[0]}", cluster_key=["l_shipdate"])
    table = lake.table(LINEITEM)
    step = -(-len(files) // _COMMITS)
    for start in range(0, len(files), step):
        table.register([f"file://{file}" for file in files[start : start + step]])
        if start == 0:
            table.tag("first-load")
            table.create_index("by_part", "bloom", "l_partkey")
        if start + 2 * step == len(files):
            table.refresh_index("by_part")  # the blocks of the last commit are not known to it
    for year in range(1992, 1998):
        table.prune(f"l_shipdate >= DATE '{year}-03-01' AND l_shipdate < DATE '{year}-06-01'")
    table.prune("l_partkey = 1552")
    table.prune("l_quantity * 2 > 98")


def fill_tickets(lake: Lamella, folder: Path, *, blocks: int = 128, rows: int = 50) -> str:
    """Make a table of ids in no order whose different values nobody counted, and ask for one; its name."""
    name = f"{NAMESPACE}.tickets"
    draw = random.Random(3)
    ids = [f"{number * 2654435761 % 2**32:08x}" for number in range(blocks * rows)]
    draw.shuffle(ids)
    files = [folder / "tickets" / f"{number:03}.parquet" for number in range(blocks)]
    files[0].parent.mkdir()
    for number, file in enumerate(files):
        pq.write_table(pa.table({"id": ids[number * rows : (number + 1) * rows]}), file)
    lake.create_table(name, schema_from=f"file://{files[0]}")
    lake.table(name).register([f"file://{file}" for file in files])
    lake.table(name).prune(f"id = '{ids[0]}'")
    return name


def _taken(table: pa.Table, rows: list[int]) -> pa.Table:
    """Some rows of a table. Its texts are views, which Arrow's own ``take`` does not know."""
    plain = [field.with_type(pa.string()) if field.type == pa.string_view() else field for field in table.schema]
    return table.cast(pa.schema(plain)).take(rows)


def _events(lake: Lamella, folder: Path) -> None:
    """Most rows are of a few users; a block has what came within one time, of all users."""
    draw = random.Random(8)
    files = [folder / "events" / f"{number:03}.parquet" for number in range(_SMALL)]
    files[0].parent.mkdir()
    for number, file in enumerate(files):
        users = [min(int(draw.paretovariate(1.1)), 50_000) for _ in range(_ROWS)]
        table = pa.table(
            {
                "user_id": pa.array(users, pa.int64()),
                "at": pa.array([number * _ROWS + row for row in range(_ROWS)], pa.int64()),
                "kind": pa.array([draw.choice(("view", "buy", "leave")) for _ in range(_ROWS)]),
                "score": pa.array([draw.random() if draw.random() > 0.1 else None for _ in range(_ROWS)], pa.float64()),
            }
        )
        pq.write_table(table, file)
    lake.create_table(EVENTS, schema_from=f"file://{files[0]}", cluster_key=["user_id"])
    lake.table(EVENTS).register([f"file://{file}" for file in files])
