"""Upserts by key into a table of Parquet files: Lamella beside delta-rs and pyiceberg, each through its own client.

    python bench/upserts.py [--rows 4000000] [--files 20] [--limit-s 900] [--out build/upserts.json]

Each engine gets a table of the same rows in files of the same size, in a process of its own, and upserts new values
for keys of which nine in ten are in the table. Three cases, each on a fresh table: 10,000 keys out of the last
hundredth of the table, 10,000 keys spread over all of it, and 1,000,000 keys spread over all of it. ``id`` counts from
file to file, so that each file has a range of its own. Seconds, bytes written, and how much memory was added at most;
afterwards the rows are read and compared. Lamella runs with its own way of deleting (``auto``) and, beside it,
rewriting blocks as the other two do. An engine that takes longer than ``--limit-s`` for a case is stopped, and that is
its result.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from loopback import Service, written_bytes

_NEW_ONE_IN: Final = 10


def table_rows(rows: int) -> pa.Table:
    """The rows of the table before the upserts; ``id`` counts by two, so that new keys fit between."""
    draw = np.random.default_rng(1)
    return pa.table(
        {
            "id": np.arange(rows, dtype=np.int64) * 2,
            "amount": draw.integers(0, 1 << 40, rows),
            "price": draw.random(rows),
            "day": pa.array(draw.integers(0, 3_650, rows).astype(np.int32), pa.int32()).cast(pa.date32()),
            "name": pa.array([f"customer {value}" for value in draw.integers(0, 100_000, rows)]),
        }
    )


def sent_rows(rows: int, keys: int, *, spread: bool) -> pa.Table:
    """The rows of an upsert, in random order."""
    draw = np.random.default_rng(keys)
    first = 0 if spread else rows - max(keys, rows // 100)
    chosen = (first + draw.permutation(rows - first)[:keys]).astype(np.int64) * 2
    chosen[::_NEW_ONE_IN] += 1
    return table_rows(keys).set_column(0, "id", pa.array(chosen))


def digest(rows: pa.Table) -> tuple[int, int, int]:
    """What tells one content of the table from another."""
    product = np.bitwise_xor.reduce(rows["id"].to_numpy() * 0x9E3779B1 ^ rows["amount"].to_numpy())
    return rows.num_rows, int(product), len(pc.unique(rows["id"]))


def highest_memory_kib() -> int:
    """The most memory that this process had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


class Measurement:
    """Seconds, written bytes and memory of one upsert below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, upsert: Callable[[], Any]) -> dict[str, Any]:
        """Run it."""
        bytes_before = written_bytes(self._folder)
        Path("/proc/self/clear_refs").write_text("5")  # the highest memory so far is the memory of now
        memory_before = highest_memory_kib()
        started = time.perf_counter()
        upsert()
        seconds = time.perf_counter() - started
        return {
            "seconds": round(seconds, 2),
            "written_mib": round((written_bytes(self._folder) - bytes_before) / 2**20, 1),
            "more_memory_mib": round((highest_memory_kib() - memory_before) / 1024),
        }


def lamella(folder: Path, rows: pa.Table, sent: pa.Table, file_rows: int, mode: str) -> tuple[dict[str, Any], Any]:
    """Through the service, the table's ``upsert``."""
    from lamella.client import Lamella

    with (
        Service(folder, {"warehouse": f"file://{folder}/warehouse"}) as service,
        Lamella(f"http://127.0.0.1:{service.port}", timeout_s=1_200) as lake,
    ):
        lake.create_namespace("bench")
        table = lake.table("bench.t")
        table.append(rows, create=True, cluster_by=["id"], target_block_rows=file_rows)
        table.commit(operation="alter", properties={"write.delete.mode": mode})
        found = Measurement(folder / "warehouse").of(lambda: table.upsert(sent, on=["id"]))
        return found, digest(table.scan(columns=["id", "amount"]).to_arrow())


def delta(folder: Path, rows: pa.Table, sent: pa.Table, file_rows: int) -> tuple[dict[str, Any], Any]:
    """delta-rs, ``merge`` with an update of all columns and an insert."""
    from deltalake import DeltaTable, write_deltalake

    for at in range(0, rows.num_rows, file_rows):
        write_deltalake(folder / "t", rows.slice(at, file_rows), mode="append")
    table = DeltaTable(folder / "t")

    def upsert() -> None:
        merge = table.merge(sent, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    found = Measurement(folder / "t").of(upsert)
    return found, digest(pa.table(DeltaTable(folder / "t").to_pyarrow_table(columns=["id", "amount"])))


def iceberg(folder: Path, rows: pa.Table, sent: pa.Table, file_rows: int) -> tuple[dict[str, Any], Any]:
    """pyiceberg, ``upsert``, with a catalog in SQLite."""
    from pyiceberg.catalog.sql import SqlCatalog

    warehouse = folder / "warehouse"
    warehouse.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{warehouse}")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.t", schema=rows.schema)
    for at in range(0, rows.num_rows, file_rows):
        table.append(rows.slice(at, file_rows))
    found = Measurement(warehouse).of(lambda: table.upsert(sent, join_cols=["id"]))
    return found, digest(table.scan(selected_fields=("id", "amount")).to_arrow())


ENGINES: Final[dict[str, Callable[..., tuple[dict[str, Any], Any]]]] = {
    "Lamella": partial(lamella, mode="auto"),
    "Lamella, rewriting blocks": partial(lamella, mode="copy-on-write"),
    "delta-rs": delta,
    "pyiceberg": iceberg,
}


def run_one(engine: str, rows: int, files: int, keys: int, spread: bool, answer: Any) -> None:  # a process's arguments
    """One engine and one case, in this process."""
    with tempfile.TemporaryDirectory(prefix="lamella-bench-", ignore_cleanup_errors=True) as name:
        table, sent = table_rows(rows), sent_rows(rows, keys, spread=spread)
        answer.send(ENGINES[engine](Path(name), table, sent, -(-rows // files)))


def run(rows: int, files: int, limit_s: float) -> dict[str, Any]:
    """All engines and cases; prints as it goes."""
    processes = multiprocessing.get_context("spawn")
    results: dict[str, Any] = {"rows": rows, "files": files, "cases": {}}
    for keys, spread in ((10_000, False), (10_000, True), (1_000_000, True)):
        case = f"{keys:,} keys, {'spread' if spread else 'recent'}"
        cells: dict[str, Any] = {}
        digests: dict[str, Any] = {}
        print(case, flush=True)
        for engine in ENGINES:
            receiver, sender = processes.Pipe(duplex=False)
            process = processes.Process(target=run_one, args=(engine, rows, files, keys, spread, sender))
            process.start()
            sender.close()
            # what is not measured, making the table and reading it, has the same time once more
            if receiver.poll(2 * limit_s):
                try:
                    cells[engine], digests[engine] = receiver.recv()
                except EOFError:
                    cells[engine] = {"failed": True}
            else:
                cells[engine] = {"longer_than_s": limit_s}
                process.terminate()
            process.join()
            print(f"  {engine:<28}{json.dumps(cells[engine])}", flush=True)
        assert len(set(digests.values())) == 1, digests
        ours = cells["Lamella"]["seconds"]
        for cell in cells.values():
            if "seconds" in cell:
                cell["times_lamella"] = round(cell["seconds"] / ours, 2)
        results["cases"][case] = cells
    return results


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--limit-s", type=float, default=900, help="for one engine and case")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    text = json.dumps(run(given.rows, given.files, given.limit_s), indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
