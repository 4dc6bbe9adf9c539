"""A DAG of Airflow 3: wait for new rows of ``raw.orders``, add their sums to ``shop.sales``, compact the table.

The service is that of ``LAMELLA_URL`` (and the key that of ``LAMELLA_TOKEN_FILE``). The commit that adds the sums also
sets a property of ``shop.sales``: the snapshot of ``raw.orders`` that they reach to. So a run that fails anywhere adds
them once, or leaves them to the next run.
"""

from __future__ import annotations

import datetime as dt
import os
from contextlib import suppress

import pyarrow as pa
from airflow.sdk import PokeReturnValue, dag, task

from lamella.client import Lamella
from lamella.snapshot.errors import NotFound

DONE = "airflow.sales.until"


def lake() -> Lamella:
    """A client of the service."""
    return Lamella(os.environ["LAMELLA_URL"])


@dag(
    schedule=dt.timedelta(minutes=10),
    start_date=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,
)
def sales() -> None:
    """From orders to sums by country."""

    @task.sensor(poke_interval=30, timeout=540, mode="reschedule", soft_fail=True)
    def new_snapshot() -> PokeReturnValue:
        """Wait until the table has a snapshot that is not done; the run is skipped if there is none in nine minutes."""
        with lake() as client:
            newest = client.table("raw.orders").info().snapshot_id
            done = None
            with suppress(NotFound):
                done = client.table("shop.sales").info().properties.get(DONE)
        return PokeReturnValue(is_done=newest != done, xcom_value={"since": done, "until": newest})

    @task(retries=2, retry_delay=dt.timedelta(seconds=10))
    def add_sums(found: dict[str, str | None]) -> int:
        """Append the sums of the rows that were added between two snapshots; returns the number of these rows."""
        with lake() as client:
            orders = client.table("raw.orders")
            rows = orders.scan(
                columns=["country", "amount"], changes_since=found["since"], snapshot_id=found["until"]
            ).to_arrow()
            sums = rows.group_by("country").aggregate([("amount", "sum"), ("amount", "count")])
            named = pa.table(
                {
                    "snapshot_id": [found["until"]] * len(sums),
                    "country": sums["country"],
                    "amount": sums["amount_sum"],
                    "orders": sums["amount_count"],
                }
            )
            client.table("shop.sales").append(
                named,
                create=True,
                idempotency_key=f"sales-{found['until']}",
                set_properties={DONE: str(found["until"])},
            )
        return int(rows.num_rows)

    @task(execution_timeout=dt.timedelta(hours=1))
    def compact() -> dict[str, object]:
        """Queue a job for a worker (``lamella worker``), and wait for it."""
        with lake() as client:
            job = client.jobs.submit("compact", "shop.sales", unique=True)
            job = client.jobs.wait(job.job_id)
        if job.state != "succeeded":
            raise RuntimeError(f"{job.kind} {job.job_id} is {job.state}: {job.error}")
        return dict(job.result or {})

    add_sums(new_snapshot()) >> compact()


sales()
