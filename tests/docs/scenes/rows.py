"""Small tables that pages ask and change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from docs.stage import Stage

COUNTRIES = ("SE", "DE", "FR", "US")
FIRST_DAY = date(2026, 1, 1)


def now() -> str:
    """This moment as pages write moments; later than all that was committed so far."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _days(count: int, days: int) -> pa.Array:
    return pa.array([FIRST_DAY + timedelta(days=n * days // count) for n in range(count)], pa.date32())


def events(count: int = 2_000) -> dict[str, Any]:
    """Events in the order of their time, over forty days."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    step = timedelta(days=40) / count
    times = [start + n * step for n in range(count)]
    return {
        "event_id": pa.array(range(count), pa.int64()),
        "event_time": pa.array(times, pa.timestamp("us", "UTC")),
        "at": pa.array(times, pa.timestamp("us", "UTC")),
        "day": _days(count, 40),
        "user_id": pa.array([n * 7_919 % 1_000 for n in range(count)], pa.int32()),
        "country": [COUNTRIES[n % 4] for n in range(count)],
        "region": [("eu", "us")[n % 4 == 3] for n in range(count)],
        "amount": pa.array([n * 37 % 500 / 2 for n in range(count)], pa.float64()),
        "path": [f"/a{'bc'[n % 2]}/{n}" for n in range(count)],
        "url": [f"https://shop.example/{n % 50}" for n in range(count)],
        "score": pa.array([n % 9 / 3 for n in range(count)], pa.float64()),
    }


def orders(count: int = 2_000) -> dict[str, Any]:
    """Orders in the order of their day, of buyers all over."""
    return {
        "id": pa.array(range(count), pa.int64()),
        "day": _days(count, 400),
        "customer": pa.array([n * 7_919 % 500 for n in range(count)], pa.int64()),
        "customer_id": pa.array([n * 7_919 % 500 for n in range(count)], pa.int64()),
        "product_id": pa.array([n * 104_729 % 300 for n in range(count)], pa.int64()),
        "country": [COUNTRIES[n % 4] for n in range(count)],
        "amount": pa.array([n * 37 % 500 for n in range(count)], pa.int64()),
        "price": pa.array([n * 37 % 5_000 / 20 for n in range(count)], pa.float64()),
        "note": [f"a {'gift' if n % 5 == 0 else 'note'} {n}" for n in range(count)],
        "buyer": [{"country": COUNTRIES[n % 4], "name": f"b{n % 90}"} for n in range(count)],
    }


def line_items(count: int = 2_000) -> dict[str, Any]:
    """Some columns of TPC-H's largest table."""
    first = date(1992, 1, 2)
    return {
        "l_orderkey": pa.array([n // 4 for n in range(count)], pa.int64()),
        "l_shipdate": pa.array([first + timedelta(days=n * 17 % 2_500) for n in range(count)], pa.date32()),
        "l_tax": pa.array([n % 9 / 100 for n in range(count)], pa.float64()),
        "l_comment": [f"comment {n}" for n in range(count)],
    }


def now_and_then(stage: Stage, *texts: str) -> None:
    """Times on a page that mean this moment."""
    stage.swaps.update(dict.fromkeys(texts, now()))
