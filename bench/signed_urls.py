"""The cost of signed URLs: signing them, returning them in answers, and looking blocks up to renew them.

``python bench/signed_urls.py`` makes a table of 10,000 blocks that were never written (``--blocks`` for another
number), asks a service in this process for them with and without URLs, and signs the same locations by botocore. It
prints medians of several runs, of the clock and of the processor's time, which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.testclient import TestClient

from lamella.service.app import create_app
from lamella.service.catalog import open_catalog
from lamella.service.config.settings import Settings
from lamella.service.history.history import history_entry
from lamella.snapshot.manifest import Block
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.storage.s3 import S3Urls
from lamella.snapshot.warehouse import Warehouse

OPTIONS = {"s3": {"key": "AK", "secret": "secret", "token": "t" * 400, "endpoint_url": "https://s3.example.com"}}
TABLE = "/v1/namespaces/db/tables/t"
LIFETIME_S = 900


def table(folder: Path, count: int) -> tuple[TestClient, list[str]]:
    """A service over a table of so many blocks, and their locations."""
    settings = Settings(
        warehouse=f"{folder}/w", catalog=f"{folder}/c.db", signed_urls_max=count, log_level="error", log_requests=False
    )
    app = TestClient(create_app(settings, store=FsspecStore(OPTIONS)))
    app.post("/v1/namespaces", json={"name": "db"})
    columns = [Column(name="a", type="int64")]
    app.post("/v1/namespaces/db/tables", json={"name": "t", "schema": msgspec.to_builtins(columns)})
    locations = [f"s3://bucket/exports/day=2026-01-31/part-{number:08}.parquet" for number in range(count)]
    catalog = open_catalog(str(settings.catalog))
    warehouse = Warehouse(FsspecStore(), settings.warehouse_url)
    record = catalog.table("db", "t")
    blocks = [Block(location=location, row_count=1, file_size=1) for location in locations]
    refs = warehouse.prepare(record.table_id, Schema.assign(columns), blocks)
    done = warehouse.commit(record.pointer, added=refs, now_ms=record.pointer.timestamp_ms + 1)
    catalog.advance(record.table_id, history_entry(record.version + 1, done.pointer, done.snapshot))
    catalog.close()
    return app, locations


def measured(work: Callable[[], object], runs: int) -> dict[str, float]:
    """Medians in milliseconds."""
    work()
    clock, cpu = [], []
    for _ in range(runs):
        started_s, cpu_s = time.perf_counter(), time.process_time()
        work()
        clock.append((time.perf_counter() - started_s) * 1000)
        cpu.append((time.process_time() - cpu_s) * 1000)
    return {"p50_ms": round(statistics.median(clock), 2), "cpu_p50_ms": round(statistics.median(cpu), 2)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        app, locations = table(Path(folder), options.blocks)
        with app:
            store, urls = FsspecStore(OPTIONS), S3Urls(OPTIONS["s3"])
            keys = [location.removeprefix("s3://bucket/") for location in locations]

            def answer(path: str, **body: Any) -> Callable[[], object]:
                def ask() -> object:
                    response = app.post(f"{TABLE}/{path}", json=body)
                    assert response.status_code == 200, response.text
                    return found.setdefault(f"{path} {sorted(body)} bytes", len(response.content))

                return ask

            steps: dict[str, Callable[[], object]] = {
                "sign": lambda: store.sign(locations, LIFETIME_S),
                "sign one": lambda: store.sign(locations[:1], LIFETIME_S),
                "sign by botocore": lambda: urls._by_botocore("bucket", keys, LIFETIME_S),
                "prune": answer("prune", shape="columns"),
                "prune, signed": answer("prune", shape="columns", sign_urls=True),
                "prune, one block": answer("prune", limit=1),
                "prune, one block, signed": answer("prune", limit=1, sign_urls=True),
                "look 1,000 up": answer("blocks", locations=locations[:1_000]),
                "look 1,000 up, signed": answer("blocks", locations=locations[:1_000], sign_urls=True),
            }
            for name, work in steps.items():
                found[name] = measured(work, options.runs if name != "sign by botocore" else 3)
    print(json.dumps({"blocks": options.blocks, **found}, indent=1))


if __name__ == "__main__":
    main()
