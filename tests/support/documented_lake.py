"""The lake that the examples of docstrings run in."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import Any, Final

import polars
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from lamella.client import AsyncLamella, Lamella, call, col
from lamella.client.http import RetryPolicy, SnapshotLease
from lamella.client.join import join_keys
from lamella.snapshot.wire import FinishJob, JobLine, ViewDefinition
from support.tenants import VIEW_COLUMNS

#: What the examples need and a service does not have by itself.
SETTINGS: Final = {"feedback": True}
_COUNTRIES: Final = ("DE", "FR", "US")


def orders(first: int, last: int, first_day: dt.date) -> pa.Table:
    """The orders with these numbers, one a day; the price is ten times the number, and each third is a gift."""
    ids = range(first, last + 1)
    return pa.table(
        {
            "id": list(ids),
            "day": [first_day + dt.timedelta(days=each - first) for each in ids],
            "country": [_COUNTRIES[each % 3] for each in ids],
            "customer": [f"c{each % 5}" for each in ids],
            "price": [10.0 * each for each in ids],
            "amount": [each % 4 + 1 for each in ids],
            "note": pa.array(["gift" if each % 3 == 0 else None for each in ids], pa.string()),
        }
    )


def make_lake(folder: Path) -> str:
    """Make the lake in a folder; returns the id of a job that has ended.

    ``shop.orders`` has three blocks of four orders in the snapshot with the tag "may", and one of three in the next. It
    has an index, a cluster key, a branch, a policy and a schedule. ``incoming`` has Parquet files that no table has.
    """
    incoming = folder / "incoming"
    incoming.mkdir(parents=True)
    pq.write_table(orders(16, 17, dt.date(2024, 7, 1)), incoming / "july.parquet")
    pq.write_table(orders(18, 19, dt.date(2024, 8, 1)), incoming / "august.parquet")
    with Lamella.embedded(folder / "lake", settings=SETTINGS) as lake:
        table, may = lake.table("shop.orders"), orders(1, 12, dt.date(2024, 5, 1))
        properties = {"lamella.feedback.enabled": "true"}
        table.append(may, create=True, cluster_by=["day"], target_block_rows=4, properties=properties)
        table.create_index("by_customer", "bloom", "customer")
        table.refresh_index("by_customer")
        table.tag("may")
        table.append(orders(13, 15, dt.date(2024, 6, 1)))
        table.create_branch("audit")
        table.set_policy({"compact": {"small_blocks": 100}})
        table.set_schedule("nightly", {"kind": "compact", "cron": "0 3 * * *"})
        lake.table("shop.rates").append({"country": ["DE", "FR"], "vat": [19, 20]}, create=True)
        lake.create_view(
            "shop.cheap",
            ViewDefinition(sql="SELECT id FROM shop.orders WHERE price < 50", schema_json=VIEW_COLUMNS),
        )
        lake.create_external("shop.arrivals", {"kind": "directory", "location": incoming.as_uri()})
        return _compact(lake)


def _compact(lake: Lamella) -> str:
    """Submit a job and end it, as a worker does; returns its id."""
    job, lease_token = lake.jobs.submit("compact", "shop.orders"), str(uuid.uuid4())
    lake.jobs.claim("worker-1", lease_token, lease_s=60)
    line = JobLine(number=1, at_ms=job.created_ms, text="nothing to compact")
    lake.jobs.finish(job.job_id, FinishJob(lease_token=lease_token, outcome="succeeded", log=(line,)))
    return job.job_id


def names(lake: Lamella | AsyncLamella, folder: Path, job_id: str) -> dict[str, Any]:
    """What examples use without importing or making it, with a lake that was opened in the folder."""
    return {
        "lake": lake,
        "table": lake.table("shop.orders"),
        "folder": folder / "lake",
        "incoming": (folder / "incoming").as_uri(),
        "job_id": job_id,
        "columns_json": VIEW_COLUMNS,
        "datetime": dt,
        "uuid": uuid,
        "AsyncLamella": AsyncLamella,
        "Lamella": Lamella,
        "RetryPolicy": RetryPolicy,
        "SnapshotLease": SnapshotLease,
        "call": call,
        "col": col,
        "join_keys": join_keys,
        "polars": polars,
        "pyarrow": pa,
    }
