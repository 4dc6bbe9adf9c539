"""Appends per second: 64 clients append small Parquet files to one table; compared with pyiceberg and delta-rs.

Every system is given the same files, which are there already. Lamella is a real service on a loopback port, asked in
two ways: ``register`` names a file and the service reads its footer; ``commit`` sends the block with its statistics,
as a writer that knows them does, and the service looks at the file's size only. pyiceberg uses its SQL catalog and
``add_files``, delta-rs ``create_write_transaction`` with the file as an add action, and ``write_deltalake``, which
has to write the rows again. Libraries without a service have no other process to ask: each of their clients is a
thread that commits by itself, once 64 at a time and once alone, and the best of all these is what Lamella is beside.

    python bench/appends.py [--appends 2000] [--peer-appends 200] [--out build/appends.json]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from loopback import Service

from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore

CLIENTS = 64
ROWS = 10
COLUMNS = (Column(name="id", type="bigint"), Column(name="name", type="string"))
TABLE = "/v1/namespaces/bench/tables/"


def write_files(folder: Path, count: int) -> list[Path]:
    """``count`` small Parquet files whose ranges of ``id`` follow each other."""
    folder.mkdir(parents=True)
    files = []
    for number in range(count):
        ids = range(number * ROWS, (number + 1) * ROWS)
        table = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"name {i}" for i in ids]})
        files.append(folder / f"{number:06}.parquet")
        pq.write_table(table, files[-1])
    return files


def timed(work: Callable[[Path], None], files: Sequence[Path], clients: int) -> tuple[float, Counter[str]]:
    """Seconds for all files, by so many threads, and the errors that callers saw."""
    errors: Counter[str] = Counter()

    def attempt(file: Path) -> None:
        try:
            work(file)
        except Exception as error:  # whatever a peer raises is counted
            errors[type(error).__name__] += 1

    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(attempt, files))
    return time.perf_counter() - started, errors


def lamella(folder: Path, files: Sequence[Path], clients: int, catalog: str | None, workers: int) -> dict[str, Any]:
    """Both ways of appending, each to a table of its own; every request has an idempotency key."""
    found: dict[str, Any] = {}
    blocks, refused = ingest(FsspecStore(), [f"file://{file}" for file in files], Schema.assign(COLUMNS))
    if refused:
        raise RuntimeError(refused[0].reason)
    ways = {
        "register": [msgspec.json.encode({"paths": [f"file://{file}"]}) for file in files],
        "commits": [msgspec.json.encode({"added": [block]}) for block in blocks],
    }
    columns = msgspec.to_builtins(COLUMNS)
    folder.mkdir()
    settings = {"warehouse": str(folder / "warehouse"), "workers": str(workers)}
    if catalog is not None:
        settings["catalog"] = catalog
    with Service(folder, settings) as service:
        service.send("POST", "/v1/namespaces", b'{"name":"bench"}')
        for way, bodies in ways.items():
            table = {"name": way, "schema": columns}
            service.send("POST", TABLE.rstrip("/"), msgspec.json.encode(table))
            service.hang_up()
            body_of = dict(zip(files, bodies, strict=True))
            path = f"{TABLE}{way}/{way}"
            before = service.metric("lamella_commits_total")

            def append(file: Path, path: str = path, body_of: dict[Path, bytes] = body_of) -> None:
                service.send("POST", path, body_of[file], key=str(uuid.uuid4()))

            seconds, errors = timed(append, files, clients)
            service.hang_up()  # the service ends a connection that was idle meanwhile
            committed = service.send("GET", f"{TABLE}{way}")["block_count"]
            service.hang_up()
            snapshots = service.metric("lamella_commits_total") - before
            found[way] = result(files, seconds, errors, committed) | {"snapshots": snapshots}
    return found


def result(files: Sequence[Path], seconds: float, errors: Counter[str], committed: int) -> dict[str, Any]:
    """Return the report of one run; only committed appends count."""
    return {
        "appends": len(files),
        "committed": committed,
        "per_second": round(committed / seconds, 1),
        "errors": dict(errors),
    }


def iceberg(folder: Path, files: Sequence[Path], clients: int) -> dict[str, Any]:
    """pyiceberg, SQL catalog on SQLite, ``add_files``; a lost commit is tried again on a fresh table, 100 times."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException

    logging.getLogger("pyiceberg").setLevel(logging.CRITICAL)  # it writes a line for each lost commit

    folder.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("bench")
    catalog.create_table("bench.t", schema=pq.read_schema(files[0]))
    local = threading.local()
    lost: Counter[str] = Counter()

    def append(file: Path) -> None:
        for _ in range(100):
            if not hasattr(local, "table"):
                local.table = catalog.load_table("bench.t")
            try:
                local.table.add_files([str(file)], check_duplicate_files=False)
            except CommitFailedException:
                lost["commits"] += 1
                del local.table
            else:
                return
        raise TimeoutError

    seconds, errors = timed(append, files, clients)
    committed = len(catalog.load_table("bench.t").inspect.files())
    return result(files, seconds, errors, committed) | {"lost_commits": lost["commits"]}


def delta_actions(folder: Path, files: Sequence[Path], clients: int) -> dict[str, Any]:
    """delta-rs, each file as an add action with its statistics; the library itself tries lost commits again."""
    from deltalake import DeltaTable, Field, Schema
    from deltalake.schema import PrimitiveType
    from deltalake.transaction import AddAction, CommitProperties

    folder.mkdir()
    schema = Schema([Field("id", PrimitiveType("long")), Field("name", PrimitiveType("string"))])
    DeltaTable.create(str(folder), schema)
    sizes = {}
    for file in files:  # an add action names a file inside the table's folder
        os.link(file, folder / file.name)
        sizes[file] = file.stat().st_size
    local = threading.local()

    def append(file: Path) -> None:
        if not hasattr(local, "table"):
            local.table = DeltaTable(str(folder))
        first = int(file.stem) * ROWS
        statistics = {
            "numRecords": ROWS,
            "minValues": {"id": first},
            "maxValues": {"id": first + ROWS - 1},
            "nullCount": {"id": 0},
        }
        action = AddAction(file.name, sizes[file], {}, 0, True, json.dumps(statistics))
        retries = CommitProperties(max_commit_retries=1000)
        local.table.create_write_transaction([action], "append", schema, commit_properties=retries)

    seconds, errors = timed(append, files, clients)
    return result(files, seconds, errors, len(DeltaTable(str(folder)).file_uris()))


def delta_write(folder: Path, files: Sequence[Path], clients: int) -> dict[str, Any]:
    """delta-rs, ``write_deltalake``: the rows, read before the clock starts, are written to a file of its own."""
    from deltalake import CommitProperties, DeltaTable, write_deltalake

    folder.mkdir()
    rows = {file: pq.read_table(file) for file in files}
    write_deltalake(str(folder), rows[files[0]].slice(0, 0))
    start = len(DeltaTable(str(folder)).file_uris())
    retries = CommitProperties(max_commit_retries=1000)

    def append(file: Path) -> None:
        write_deltalake(str(folder), rows[file], mode="append", commit_properties=retries)

    seconds, errors = timed(append, files, clients)
    return result(files, seconds, errors, len(DeltaTable(str(folder)).file_uris()) - start)


PEERS = {"pyiceberg add_files": iceberg, "delta-rs add actions": delta_actions, "delta-rs write": delta_write}


def run(
    appends: int, peer_appends: int, *, catalog: str | None = None, workers: int = 1, folder: str | None = None
) -> dict[str, Any]:
    """All of it, or without the others (``peer_appends`` 0); prints as it goes."""
    results: dict[str, Any] = {"clients": CLIENTS, "lamella": {}, "peers": {}}
    with tempfile.TemporaryDirectory(prefix="lamella-bench-", dir=folder) as name:
        root = Path(name)
        files = write_files(root / "files", max(appends, peer_appends))
        print(f"{'appends to one table':<34}{'clients':>8}{'appends/s':>11}{'committed':>9}  errors")
        for way, each in lamella(root / "lamella", files[:appends], CLIENTS, catalog, workers).items():
            results["lamella"][way] = each
            line(f"Lamella {way}", CLIENTS, each, f"{each['snapshots']:.0f} snapshots")
        for peer, work in PEERS.items() if peer_appends else ():
            for clients in (1, CLIENTS):
                # The more peers fight over the table, the slower each append: fewer of them tell the rate as well.
                some = files[: peer_appends if clients == 1 else max(CLIENTS, peer_appends // 2)]
                each = work(root / f"{peer} {clients}".replace(" ", "-"), some, clients)
                results["peers"][f"{peer}, {clients} clients"] = each
                line(peer, clients, each, f"{each['lost_commits']} lost" if "lost_commits" in each else "")
    if results["peers"]:
        best, of = max((each["per_second"], name) for name, each in results["peers"].items())
        ratios = {way: round(each["per_second"] / best, 1) for way, each in results["lamella"].items()}
        results["best_peer"], results["times_the_best_peer"] = of, ratios
        print(f"beside the best of the others ({of}): " + ", ".join(f"{way} {x} times" for way, x in ratios.items()))
    return results


def line(name: str, clients: int, each: dict[str, Any], note: str) -> None:
    """Print one row."""
    errors = ", ".join(f"{count} {kind}" for kind, count in each["errors"].items()) or "none"
    more = f"  ({note})" if note else ""
    print(f"{name:<34}{clients:>8}{each['per_second']:>11,.1f}{each['committed']:>9,}  {errors}{more}", flush=True)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--appends", type=int, default=2_000)
    made.add_argument("--peer-appends", type=int, default=200, help="0: without the others")
    made.add_argument("--catalog", help="the service's catalog (default: SQLite beside the warehouse)")
    made.add_argument("--workers", type=int, default=1, help="processes of the service")
    made.add_argument("--folder", help="where the files go (default: the system's temporary folder)")
    made.add_argument("--out", type=Path, default=Path("build/appends.json"))
    return made


def main() -> None:
    """Run, print and keep."""
    options = parser().parse_args()
    results = run(
        options.appends,
        options.peer_appends,
        catalog=options.catalog,
        workers=options.workers,
        folder=options.folder,
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
