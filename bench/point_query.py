"""A point query on 10,000 blocks: objects opened, bytes read and time, with skip indexes, beside embedded Databend.

Both systems have the same rows, in blocks of the same rows: a key without any order, so that minima and maxima rule out
nothing, and a bloom index over it. Each is asked in a new process, for keys that are there and keys that are not. What
Lamella opens is counted by its store, with every file behind a ranged read; what Databend opens, by ``strace``.

    python bench/point_query.py [--blocks 10000] [--rows 100] [--asks 20] [--out build/point_query.json]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.ids import Ids
from lamella.snapshot.index.building import build_part
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore, TableLayout
from lamella.snapshot.storage.store import ObjectStat
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

_MARKER = "/lamella-point-query-"


class CountingStore:
    """A store whose files are all remote: nothing is mapped, every read counts."""

    def __init__(self) -> None:
        self._store = FsspecStore()
        self.objects: set[str] = set()
        self.reads = 0
        self.bytes = 0

    def clear(self) -> None:
        """Count from zero."""
        self.objects, self.reads, self.bytes = set(), 0, 0

    def read(self, location: str) -> bytes:
        """All of an object."""
        return self._counted(location, self._store.read(location))

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """A part of one."""
        return self._counted(location, self._store.read_range(location, start, length))

    def stat(self, location: str) -> ObjectStat:
        """Its size."""
        return self._store.stat(location)

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Store one."""
        return self._store.put(location, data)

    def list(self, prefix: str, *, start_after: str | None = None) -> Any:
        """What is below a folder."""
        return self._store.list(prefix, start_after=start_after)

    def _counted(self, location: str, data: bytes) -> bytes:
        self.objects.add(location)
        self.reads += 1
        self.bytes += len(data)
        return data


def keys_of(blocks: int, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The keys of all rows, block after block."""
    return np.random.default_rng(11).permutation(blocks * rows * 4)[: blocks * rows].astype(np.int64) * 1_000_003


def query_keys(blocks: int, rows: int, asks: int) -> tuple[list[int], list[int]]:
    """Return existing keys, and some between them that do not exist."""
    keys = keys_of(blocks, rows)
    indexes = np.random.default_rng(12).integers(0, len(keys), asks)
    return keys[indexes].tolist(), (keys[indexes] + 1).tolist()


def build_lamella(folder: Path, blocks: int, rows: int, kinds: list[str]) -> dict[str, Any]:
    """Files, table and indexes; the rows that were indexed in a second of the processor, and bytes a row, by kind."""
    keys = keys_of(blocks, rows)
    (folder / "data").mkdir(parents=True)
    paths = []
    for number in range(blocks):
        path = folder / "data" / f"{number:06}.parquet"
        mine = keys[number * rows : (number + 1) * rows]
        pq.write_table(pa.table({"k": mine, "v": np.arange(rows)}), path)
        paths.append(f"file://{path}")
    store = FsspecStore()
    warehouse = Warehouse(store, f"file://{folder}/warehouse")
    schema = Schema.assign([Column(name="k", type="int64"), Column(name="v", type="int64")])
    table_id = str(uuid.uuid4())
    pointer = warehouse.create(table_id, schema, now_ms=1)
    taken, refused = ingest(store, paths, schema, workers=2)
    assert not refused
    pointer = warehouse.commit(pointer, added=warehouse.prepare(table_id, schema, taken), now_ms=2).pointer
    layout, ids = TableLayout(warehouse.table_location(table_id)), Ids()
    built: dict[str, Any] = {}
    pointers: dict[str, SnapshotPointer] = {"": pointer}
    for kind in kinds:
        with_one = warehouse.indexing.create(pointer, name="by_key", kind=kind, expression="k", now_ms=3).pointer
        snapshot = warehouse.snapshot(with_one)
        began, size = time.process_time(), 0
        parts = []
        for ref in warehouse.segments(with_one):
            part = build_part(store, snapshot.skip_indexes[0], snapshot, warehouse.segment(ref).blocks).part
            assert part is not None
            location = layout.index_part(ids.new())
            store.put(location, part.data)
            parts.append((part.ref(location), part.keys))
            size += len(part.data)
        spent = time.process_time() - began
        index_id = snapshot.skip_indexes[0].index_id
        pointers[kind] = warehouse.indexing.add_parts(with_one, index_id, parts, now_ms=4).pointer
        built[kind] = {"rows_per_s": round(blocks * rows / spent), "bytes_per_key": round(size / blocks / rows, 2)}
    import msgspec

    (folder / "pointers.json").write_bytes(msgspec.json.encode(pointers))
    return built


def query_lamella(folder: Path, kind: str, keys: list[int]) -> list[dict[str, Any]]:
    """Time one prune per key, in this fresh process."""
    import msgspec

    pointers = msgspec.json.decode((folder / "pointers.json").read_bytes(), type=dict[str, SnapshotPointer])
    store: Any = CountingStore()
    warehouse = Warehouse(store, f"file://{folder}/warehouse")
    found = []
    for key in keys:
        store.clear()
        began = time.perf_counter()
        answer = warehouse.prune(pointers[kind], PruneRequest(filter=f"k = {key}", shape="columns"))
        ms = (time.perf_counter() - began) * 1e3
        assert answer.block_columns is not None
        index = [name for name in store.objects if "/_ix/" in name]
        found.append(
            {
                "ms": ms,
                "objects": len(store.objects),
                "index_objects": len(index),
                "reads": store.reads,
                "bytes": store.bytes,
                "left": len(answer.block_columns.location),
            }
        )
    return found


def databend(folder: Path) -> Any:
    """A session on a data folder."""
    os.environ["DATABEND_DATA_PATH"] = f"{folder}/data/"
    os.environ["CACHE_TABLE_PRUNE_PARTITIONS_COUNT"] = "0"
    from databend import SessionContext

    return SessionContext(tenant="bench")


def rows_of(context: Any, text: str) -> list[dict[str, Any]]:
    """The answer to a statement."""
    return [row for batch in context.sql(text).to_py_arrow() for row in batch.to_pylist()]


def build_databend(folder: Path, blocks: int, rows: int) -> None:
    """The same rows with a bloom index over the key."""
    folder.mkdir(parents=True)
    context = databend(folder)
    for text in ("set enable_table_lock = 0", "set max_threads = 1"):
        rows_of(context, text)
    rows_of(
        context,
        "create table t (k bigint, v bigint) storage_format = 'parquet' "
        f"row_per_block = {rows} block_per_segment = 1000 bloom_index_columns = 'k'",
    )
    rows_of(context, f"create stage s url = 'fs://{folder}/in/' file_format = (type = parquet)")
    keys = keys_of(blocks, rows)
    (folder / "in").mkdir(exist_ok=True)  # the stage may have made it
    step = 1_000 * rows
    for start in range(0, len(keys), step):
        mine = keys[start : start + step]
        pq.write_table(
            pa.table({"k": mine, "v": np.tile(np.arange(rows), len(mine) // rows)}), folder / "in" / "x.parquet"
        )
        rows_of(context, "insert into t select k, v from @s/x.parquet (file_format => 'parquet')")
    (count,) = rows_of(context, "select block_count from fuse_snapshot('default', 't') limit 1")
    if count["block_count"] != blocks:
        raise RuntimeError(f"Databend cut {count['block_count']} blocks, not {blocks}")


def query_databend(folder: Path, keys: list[int]) -> list[dict[str, Any]]:
    """Return one plan per key, which shows how many blocks remain after the bloom index."""
    context = databend(folder)
    rows_of(context, "set max_threads = 2")
    found = []
    for number, key in enumerate(keys):
        Path(f"{_MARKER}{number}").exists()  # seen in the trace
        began = time.perf_counter()
        plan = "\n".join(
            next(iter(row.values())) for row in rows_of(context, f"explain select v from t where k = {key}")
        )
        ms = (time.perf_counter() - began) * 1e3
        left = re.search(r"partitions scanned: (\d+)", plan)
        found.append({"ms": ms, "left": int(left.group(1)) if left else 0})
    Path(f"{_MARKER}{len(keys)}").exists()
    return found


def traced(folder: Path, asks: list[str], count: int) -> list[dict[str, int]]:
    """What Databend opened and read for each key: objects below its data folder, and bytes."""
    log = folder / "trace"
    calls = "openat,read,pread64,stat,newfstatat,statx,access,faccessat2"
    subprocess.run(
        ["strace", "-f", "-y", "-qq", "-s", "200", "-e", f"trace={calls}", "-o", str(log), *asks], check=True
    )
    found: list[dict[str, Any]] = [{"objects": set(), "index_objects": set(), "bytes": 0} for _ in range(count)]
    now = -1
    for line in log.read_text(errors="replace").splitlines():
        marker = re.search(rf"{re.escape(_MARKER)}(\d+)", line)
        if marker is not None:
            now = int(marker.group(1))
            continue
        if not 0 <= now < count or f"{folder}/data/" not in line:
            continue
        opened = re.search(rf'openat\([^"]*"({re.escape(str(folder))}/data/[^"]*)".*= \d+', line)
        if opened is not None:
            found[now]["objects"].add(opened.group(1))
            if "/_i_b" in opened.group(1):
                found[now]["index_objects"].add(opened.group(1))
        read = re.search(r"(?:read|pread64)\(\d+<[^>]*>.*= (\d+)", line)
        if read is not None:
            found[now]["bytes"] += int(read.group(1))
    log.unlink()
    return [{name: len(value) if isinstance(value, set) else value for name, value in each.items()} for each in found]


def in_new_process(*arguments: str) -> Any:
    """This script, asked for one thing."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).absolute()), *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent / "build",  # Databend leaves a folder where it runs
    )
    return json.loads(done.stdout.splitlines()[-1])


def described(name: str, asks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first sample and the median of the others; prints them."""
    result = {
        "first": asks[0],
        "then": {key: statistics.median(each[key] for each in asks[1:]) for key in asks[0]},
    }
    for when in ("first", "then"):
        values = ", ".join(f"{key} {value:,.6g}" for key, value in result[when].items())
        print(f"{name}, {when}: {values}", flush=True)
    return result


def main() -> None:
    """Build what is not there yet, ask, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--asks", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=Path("build/point_query"))
    parser.add_argument("--out", type=Path, default=Path("build/point_query.json"))
    parser.add_argument("--only", nargs=2, metavar=("SYSTEM", "WHICH"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    there, absent = query_keys(given.blocks, given.rows, given.asks)
    root = (given.folder / f"{given.blocks}x{given.rows}").absolute()
    if given.only is not None:
        system, which = given.only
        keys = there if which == "there" else absent
        if system == "databend-build":
            build_databend(root / "databend", given.blocks, given.rows)
            print("{}")
        elif system == "databend":
            print(json.dumps(query_databend(root / "databend", keys)))
        else:
            print(json.dumps(query_lamella(root, system, keys)))
        return
    size = [
        *("--blocks", str(given.blocks), "--rows", str(given.rows), "--asks", str(given.asks)),
        *("--folder", str(given.folder.absolute())),
    ]
    kinds = ["bloom", "keys"]
    if not (root / "built.json").exists():
        shutil.rmtree(root, ignore_errors=True)
        built = build_lamella(root, given.blocks, given.rows, kinds)
        in_new_process(*size, "--only", "databend-build", "all")
        (root / "built.json").write_text(json.dumps(built))
    result: dict[str, Any] = {
        "blocks": given.blocks,
        "rows": given.rows,
        "built": json.loads((root / "built.json").read_text()),
    }
    print(json.dumps(result["built"]))
    for which in ("there", "absent"):
        for kind in kinds:
            asks = in_new_process(*size, "--only", kind, which)
            result[f"lamella {kind}, {which}"] = described(f"lamella {kind}, key {which}", asks)
        plain = in_new_process(*size, "--only", "databend", which)
        command = [sys.executable, str(Path(__file__).absolute()), *size, "--only", "databend", which]
        counted = traced(root / "databend", command, given.asks)
        asks = [{**each, **counts} for each, counts in zip(plain, counted, strict=True)]
        result[f"databend, {which}"] = described(f"databend, key {which}", asks)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
