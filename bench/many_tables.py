"""A service with many small tables: listings, a first prune of each table, policies; and its memory meanwhile.

``python bench/many_tables.py`` makes 20,000 tables of one block in ``--folder`` (300 MB; a folder in memory spares the
disk), each with a policy, and measures one process of the service over loopback, with the default cache.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from loopback import Service, serving
from speed import load
from speed.clock import cpu_s
from speed.memory import status
from synthetic import FILTERED_COLUMNS, Model, blocks_of, schema

from lamella.service.catalog import PolicyRecord, TableRecord, open_catalog
from lamella.service.history.history import history_entry
from lamella.snapshot.ids import Ids
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import NamespaceInfo

_TABLES: Final = "/v1/namespaces/bench/tables"
_DUE: Final = "/v1/jobs/due"
#: A policy is due again after so many seconds: longer than a pass over all of them takes.
_CHECK_S: Final = 180
_POLICY: Final = json.dumps({"compact": {"small_blocks": 1_000}, "vacuum": {"snapshots": 100}})


class Options(argparse.Namespace):
    """The command line."""

    tables: int
    folder: Path
    out: Path


def make(folder: Path, count: int, catalog_url: str | None = None) -> None:
    """Tables of one block, with policies that request nothing; the catalog is in the folder, or at another address."""
    catalog = open_catalog(catalog_url or f"sqlite:///{folder}/catalog.db")
    warehouse = Warehouse(FsspecStore(), f"file://{folder}/warehouse", cache_bytes=1 << 20)
    columns = schema(FILTERED_COLUMNS)
    model = Model(1, FILTERED_COLUMNS)
    ids = Ids()
    catalog.create_namespace(NamespaceInfo(name="bench"), now_ms=1)
    for number in range(count):
        table_id = str(ids.new())
        empty = warehouse.create(table_id, columns, now_ms=1)
        refs = warehouse.prepare(table_id, columns, list(blocks_of(model, 0, 1, columns)))
        made = warehouse.commit(empty, added=refs, now_ms=2)
        record = TableRecord(
            table_id=table_id,
            namespace="bench",
            name=f"t{number:05d}",
            location=warehouse.table_location(table_id),
            version=1,
            pointer=made.pointer,
            created_at_ms=1,
        )
        catalog.create_table(record, history_entry(1, made.pointer, made.snapshot))
        catalog.put_policy(PolicyRecord(table_id=table_id, policy=_POLICY, updated_ms=1))
        if number % 1_000 == 999:
            print(f"{number + 1:,} tables", file=sys.stderr, flush=True)
    catalog.close()


def measure(folder: Path, count: int) -> dict[str, Any]:
    """Figures of each step, in milliseconds for one request, and the memory after it."""
    settings = {"warehouse": f"file://{folder}/warehouse", "catalog": f"sqlite:///{folder}/catalog.db"}
    settings["policy_check_s"] = str(_CHECK_S)
    found: dict[str, Any] = {}
    with serving(settings) as service:
        names = [f"t{number:05d}" for number in range(count)]
        steps: list[tuple[str, Callable[[], Any]]] = [
            ("idle", lambda: None),
            ("listing", lambda: _run(service, [load.request(_TABLES)] * 20)),
            *(
                (f"first prune of {each}", lambda part=part: _run(service, _prunes(part)))
                for each, part in _tenths(names)
            ),
            ("prunes again", lambda: _run(service, _prunes(names))),
            ("policies", lambda: _policies(service)),
            ("policies again", lambda: _policies(service, _CHECK_S)),
            (
                "health of each table",
                lambda: _run(service, [load.request(f"{_TABLES}/{name}/health") for name in names]),
            ),
            ("policies with stored health", lambda: _policies(service, _CHECK_S)),
        ]
        for name, step in steps:
            done = step()
            sizes = status(service.pid)
            found[name] = {
                **({} if done is None else done),
                "rss_mb": round(sizes["VmRSS"] / 1e6),
                "own_mb": round(sizes["RssAnon"] / 1e6),
            }
            print(f"{name}: {json.dumps(found[name])}", flush=True)
    return found


def _tenths(names: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    step = max(1, len(names) // 10)
    return [(f"{names[at]} and after", names[at : at + step]) for at in range(0, len(names), step)]


def _prunes(names: Sequence[str]) -> list[bytes]:
    body = json.dumps({"filter": "user_id = 5000000000", "shape": "ranges"}).encode()
    return [load.request(f"{_TABLES}/{name}/prune", body) for name in names]


def _run(service: Service, requests: Sequence[bytes]) -> dict[str, Any]:
    before = cpu_s(service.pid)
    done = load.run(service.port, requests, 1)
    cpu_ms = (cpu_s(service.pid) - before) * 1e3 / len(requests)
    figures = msgspec.to_builtins(done)
    return {name: figures[name] for name in ("requests", "p50_ms", "p99_ms", "answer_bytes")} | {
        "cpu_ms": round(cpu_ms, 3)
    }


def _policies(service: Service, wait_s: float = 0.0) -> dict[str, Any]:
    """Check every policy that is due, as a worker does; ``wait_s``: before, so that all of them are."""
    time.sleep(wait_s)
    service.hang_up()  # the service ends a connection that was idle meanwhile
    before, requests = cpu_s(service.pid), 0
    more = True
    while more:
        more = service.send("POST", _DUE, b"{}")["more"]
        requests += 1
    return {"requests": requests, "cpu_s": round(cpu_s(service.pid) - before, 2)}


def main() -> None:
    """Make, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, default=Path("build/many_tables"))
    parser.add_argument("--out", type=Path, default=Path("build/many_tables.json"))
    options = parser.parse_args(namespace=Options())
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        make(folder, options.tables)
        results = measure(folder, options.tables)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
