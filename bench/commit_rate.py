"""Commits per second to many tables, each to a random one, from several clients at once.

``python bench/commit_rate.py`` makes 20,000 tables of one block in ``--folder`` (300 MB; a folder in memory spares the
disk), with the catalog in SQLite and then in a PostgreSQL of its own, and commits one block to a random table, again
and again, with an idempotency key each. It prints commits per second and the latency of one, for each number of
clients, and the processor time of the service.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from loopback import serving
from many_tables import make
from speed import load
from speed.clock import cpu_s

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))


class Options(argparse.Namespace):
    """The command line."""

    tables: int
    commits: int
    clients: list[int]
    catalogs: list[str]
    folder: Path
    out: Path


@contextmanager
def catalog_of(kind: str, folder: Path) -> Iterator[str]:
    """The address of an empty catalog while the block runs."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/catalog.db"
        return
    from postgres_bin import find
    from support.postgres_server import PostgresServer

    programs = find()
    if programs is None:
        raise SystemExit("PostgreSQL is not installed: scripts/postgres_bin.py --install")
    server = PostgresServer(programs)
    try:
        server.start()
        yield server.url.replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.remove()


def measure(folder: Path, catalog: str, options: Options) -> dict[str, Any]:
    """Return the figures by the number of clients."""
    rng = random.Random(1)
    files = folder / "files"
    files.mkdir()
    settings = {"warehouse": f"file://{folder}/warehouse", "catalog": catalog}
    found: dict[str, Any] = {}
    with serving(settings) as service:
        for clients in options.clients:
            requests = [_commit(rng, files, options.tables) for _ in range(options.commits)]
            load.run(service.port, requests[: options.commits // 10], clients)  # warms up
            requests = requests[options.commits // 10 :]
            before = cpu_s(service.pid)
            done = msgspec.to_builtins(load.run(service.port, requests, clients))
            found[str(clients)] = {
                **{name: done[name] for name in ("per_second", "p50_ms", "p99_ms", "requests")},
                "cpu_ms": round(1e3 * (cpu_s(service.pid) - before) / len(requests), 2),
            }
            print(f"  {clients} clients: {json.dumps(found[str(clients)])}", flush=True)
    return found


def _commit(rng: random.Random, files: Path, tables: int) -> bytes:
    """The request that adds a new file to a random table."""
    name = f"{uuid.UUID(int=rng.getrandbits(128))}"
    (files / f"{name}.parquet").write_bytes(b"x" * 100)
    body = {"added": [{"location": f"file://{files}/{name}.parquet", "row_count": 1, "file_size": 0}]}
    data = msgspec.json.encode(body)
    head = (
        f"POST /v1/namespaces/bench/tables/t{rng.randrange(tables):05d}/commits HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nIdempotency-Key: {name}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def main() -> None:
    """Make, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=20_000)
    parser.add_argument("--commits", type=int, default=3_000)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--catalogs", nargs="+", choices=("sqlite", "postgresql"), default=["sqlite", "postgresql"])
    parser.add_argument("--folder", type=Path, default=Path("build/commit_rate"))
    parser.add_argument("--out", type=Path, default=Path("build/commit_rate.json"))
    options = parser.parse_args(namespace=Options())
    folder = options.folder.resolve()
    results = {}
    for kind in options.catalogs:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            with catalog_of(kind, folder) as catalog:
                make(folder, options.tables, catalog)
                print(kind, flush=True)
                results[kind] = measure(folder, catalog, options)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
