"""A table of many columns: what a prune of one column, and a commit of one block, cost by the number of columns.

``python bench/wide_tables.py`` makes tables of 100,000 blocks x 10, 100 and 1,000 columns and prunes by one column.
Their sidecars have the bytes that Lamella writes. Each is kept as what differs from the first one of its table, so a
table of 44 GB takes little memory; to the warehouse they are objects of a remote store that answers at once. The
store's own processor time is left out of all figures.

Counted are requests, bytes that were read and hashed, processor time, and memory that the caches say they hold.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lamella.snapshot import commit as commits
from lamella.snapshot.columnar import column_parts
from lamella.snapshot.columnar import sidecar as sidecars
from lamella.snapshot.columnar.column_parts import SPLIT_FROM_BYTES
from lamella.snapshot.columnar.locations import hashes_of
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import Block, ColumnMeta, ObjectRef, SegmentRef, SnapshotPointer, codec
from lamella.snapshot.manifest.block_key import Identity, block_keys
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.sketch.layers import SketchLayers
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore, ObjectStat, TableLayout
from lamella.snapshot.storage.together import TogetherStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.manifest_writer import ManifestWriter
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import PruneRequest

SEGMENT: Final = 1_000
_ROWS: Final = 100_000
_FILE_BYTES: Final = 64 << 20
_FOLDER: Final = "s3://bucket/wide/"
_ROOT: Final = "memory://wide"


class Options(argparse.Namespace):
    """The command line."""

    blocks: int
    columns: list[int]
    whole: bool
    out: Path | None


def schema(columns: int) -> Schema:
    """Three of four columns are numbers, the others text."""
    kinds = ("int64", "int64", "float64", "string")
    return Schema.assign([Column(name=f"c{at}", type=kinds[at % 4]) for at in range(columns)])


def blocks_of(first: int, count: int, columns: Schema) -> list[Block]:
    """Blocks whose first column ascends; the other columns are the same in all segments."""
    found = []
    for number in range(first, first + count):
        stats: dict[int, ColumnStats] = {}
        sizes: dict[int, tuple[ColumnMeta, ...]] = {}
        for leaf in columns.leaves():
            low, high = _bounds(leaf.id == _requested(columns), number, number % SEGMENT)
            if leaf.dtype.order == "bytes":
                values: Any = f"v{low:010d}".encode(), f"v{high:010d}".encode()
            else:
                values = (float(low), float(high)) if leaf.dtype.order == "float" else (low, high)
            stats[leaf.id] = ColumnStats(
                min=to_bound(leaf.dtype, values[0]), max=to_bound(leaf.dtype, values[1]), null_count=0, source="footer"
            )
            sizes[leaf.id] = (ColumnMeta(4, 1_000, _ROWS),)
        found.append(
            Block(
                location=_location(number),
                row_count=_ROWS,
                file_size=_FILE_BYTES,
                block_size=2 * _FILE_BYTES,
                col_stats=stats,
                col_metas=sizes,
            )
        )
    return found


def _requested(columns: Schema) -> int:
    return next(iter(columns.leaves())).id


def _bounds(requested: bool, number: int, within: int) -> tuple[int, int]:
    return (1_000 * number, 1_000 * number + 1_499) if requested else (within, within + 1_000_000)


def _location(number: int) -> str:
    return f"{_FOLDER}part-{number:010d}.parquet"


class PatchedStore(FsspecStore):
    """A store that counts what is read, some of whose objects are kept as what differs from a template."""

    def __init__(self) -> None:
        super().__init__()
        self.template: bytes = b""
        #: By location, the offsets and bytes that differ from the template.
        self.patches: dict[str, list[tuple[int, bytes]]] = {}
        self.requests = 0
        self.read_bytes = 0
        self.put_bytes = 0
        self.own_s = 0.0
        self._lock = threading.Lock()

    def _counted(self, make: Callable[[], bytes]) -> bytes:
        begin = time.thread_time()
        data = make()
        with self._lock:
            self.requests += 1
            self.read_bytes += len(data)
            self.own_s += time.thread_time() - begin
        return data

    def _range(self, location: str, start: int, length: int) -> bytes:
        stop = min(len(self.template), start + length)
        data = bytearray(memoryview(self.template)[start:stop])
        for offset, patch in self.patches[location]:
            low, high = max(start, offset), min(stop, offset + len(patch))
            if low < high:
                data[low - start : high - start] = patch[low - offset : high - offset]
        return bytes(data)

    def read(self, location: str) -> bytes:
        """All bytes of an object."""
        if location in self.patches:
            return self._counted(lambda: self._range(location, 0, len(self.template)))
        return self._counted(lambda: super(PatchedStore, self).read(location))

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Some bytes of an object."""
        if location in self.patches:
            return self._counted(lambda: self._range(location, start, length))
        return self._counted(lambda: super(PatchedStore, self).read_range(location, start, length))

    def put(self, location: str, data: bytes) -> ObjectStat:
        """Create an object."""
        self.put_bytes += len(data)
        return super().put(location, data)

    def stat(self, location: str) -> ObjectStat:
        """Size and content id of an object; of a data file, made up."""
        if location.startswith(_FOLDER):
            return ObjectStat(location=location, size_bytes=_FILE_BYTES, content_id="1")
        return super().stat(location)


def rehashed(data: bytearray) -> list[tuple[int, bytes]]:
    """Correct the hashes of a sidecar whose values were changed; returns what was changed, too."""
    tail = column_parts.read_tail(bytes(data))
    if tail is None:
        return []
    directory = tail.directory.copy()
    for entry in directory[:1]:  # only the column that is requested differs
        part = data[int(entry["start"]) : int(entry["start"] + entry["length"])]
        entry["sha256"] = np.void(hashlib.sha256(part).digest()[:16])
    offset = len(data) - tail.size_bytes + len(tail.common)
    data[offset : offset + directory.nbytes] = directory.tobytes()
    return [(offset, directory.tobytes())]


def ref_of(location: str, data: bytes) -> ObjectRef:
    """The reference to a sidecar."""
    tail_bytes, tail_sha256 = column_parts.tail_of(data)
    return ObjectRef(
        location=location,
        size_bytes=len(data),
        sha256=codec.content_hash(data),
        tail_bytes=tail_bytes,
        tail_sha256=tail_sha256,
    )


class Table:
    """A table in a store: its snapshot, and the columns that its filters ask for."""

    def __init__(self, count: int, columns: int, split_from_bytes: int | None) -> None:
        self.store = PatchedStore()
        self.schema = schema(columns)
        self.count = count
        self.root = f"{_ROOT}-{columns}-{count}"
        self.split_from_bytes = SPLIT_FROM_BYTES if split_from_bytes is None else split_from_bytes
        warehouse = self.warehouse()
        self.table_id = str(Ids().new())
        first = warehouse.create(self.table_id, self.schema, now_ms=1)
        (self._example,) = warehouse.prepare(self.table_id, self.schema, blocks_of(0, SEGMENT, self.schema))
        self.store.template = self.store.read(self._example.sidecar.location)
        self._layout = TableLayout(warehouse.table_location(self.table_id))
        self._positions = self._found_positions()
        made = [self.segment(number) for number in range(count // SEGMENT)]
        self.pointer = self._committed(warehouse, first, [ref for ref, _ in made], [each for _, each in made])

    def warehouse(self) -> Warehouse:
        """The table's warehouse, with nothing in its caches."""
        return Warehouse(self.store, self.root, cache_bytes=512 << 20, split_from_bytes=self.split_from_bytes)

    def _found_positions(self) -> dict[str, int]:
        """Where in the template the values are that differ between segments."""
        opened = sidecars.Sidecar(self.store.template)
        base = np.frombuffer(self.store.template, np.uint8).ctypes.data
        requested = _requested(self.schema)
        names = ("block_key.high", "block_key.low", f"{requested}.min", f"{requested}.max")
        positions = {name: opened.numbers(name).ctypes.data - base for name in names}
        return positions | {"location": opened.text_array("location").buffers()[2].address - base}

    def segment(self, number: int) -> tuple[SegmentRef, npt.NDArray[np.uint64]]:
        """The reference of a segment, whose sidecar is kept, and the hashes of its blocks' locations."""
        begin = number * SEGMENT
        locations = [_location(begin + at) for at in range(SEGMENT)]
        keys = block_keys([Identity(each, _ROWS, _FILE_BYTES) for each in locations])
        lows = 1_000 * np.arange(begin, begin + SEGMENT)
        requested = _requested(self.schema)
        values = {
            "location": "".join(locations).encode(),
            "block_key.high": keys[:, 0].tobytes(),
            "block_key.low": keys[:, 1].tobytes(),
            f"{requested}.min": lows.tobytes(),
            f"{requested}.max": (lows + 1_499).tobytes(),
        }
        patches = [(self._positions[name], value) for name, value in values.items()]
        data = bytearray(self.store.template)
        for offset, patch in patches:
            data[offset : offset + len(patch)] = patch
        patches += rehashed(data)
        segment_id = str(Ids().new())
        location = self._layout.segment_sidecar(segment_id)
        self.store.patches[location] = patches
        summary = self._example.summary
        stats = dict(summary.col_stats)
        leaf = next(iter(self.schema.leaves()))
        stats[requested] = msgspec.structs.replace(
            stats[requested], min=to_bound(leaf.dtype, int(lows[0])), max=to_bound(leaf.dtype, int(lows[-1]) + 1_499)
        )
        ref = msgspec.structs.replace(
            self._example,
            segment_id=segment_id,
            manifest=msgspec.structs.replace(self._example.manifest, location=self._layout.segment(segment_id)),
            sidecar=ref_of(location, bytes(data)),
            summary=msgspec.structs.replace(summary, col_stats=stats),
            first_location=locations[0],
            last_location=locations[-1],
        )
        return ref, hashes_of(locations)

    def _committed(
        self,
        warehouse: Warehouse,
        first: SnapshotPointer,
        refs: Sequence[SegmentRef],
        hashes: Sequence[npt.NDArray[np.uint64]],
    ) -> SnapshotPointer:
        store = TogetherStore(self.store)
        writer = ManifestWriter(
            store,
            self.root,
            Ids(),
            SketchLayers(store),
            Manifests(store, cache_bytes=0),
            split_from_bytes=self.split_from_bytes,
        )
        empty = warehouse.snapshot(first)
        moved = commits.to_move([ref.summary.block_count for ref in refs], commits.Shape(max_moved=1 << 30))
        groups = []
        for members in moved:
            index = [(np.sort(hashes[row]), np.full(SEGMENT, at, np.uint32)) for at, row in enumerate(members)]
            groups.append(writer.group(self._layout, empty, [refs[row] for row in members], index))
        gone = {row for members in moved for row in members}
        following = commits.next_snapshot(
            empty,
            snapshot_id=str(Ids().new()),
            groups=groups,
            segments=[ref for row, ref in enumerate(refs) if row not in gone],
            appended=None,
            operation="append",
            row_changes=["append"],
            properties={},
            prev_manifest=first.manifest,
            now_ms=2,
        )
        return writer.snapshot(following)[0]


class _Hashed:
    """Counts the bytes that are hashed."""

    def __init__(self) -> None:
        self.bytes = 0
        self._sha256 = hashlib.sha256

    def __enter__(self) -> _Hashed:
        def sha256(data: Any = b"", **options: Any) -> Any:
            self.bytes += memoryview(data).nbytes
            return self._sha256(data, **options)

        hashlib.sha256 = sha256  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        hashlib.sha256 = self._sha256


def measured(store: PatchedStore, work: Callable[[], Any]) -> dict[str, Any]:
    """Requests, bytes and processor time of ``work``."""
    gc.collect()
    requests, read, put, own_s = store.requests, store.read_bytes, store.put_bytes, store.own_s
    with _Hashed() as hashed:
        begin = time.process_time()
        work()
        cpu_s = time.process_time() - begin - (store.own_s - own_s)
    return {
        "cpu_ms": round(1e3 * cpu_s, 1),
        "requests": store.requests - requests,
        "read_mb": round((store.read_bytes - read) / 1e6, 2),
        "hashed_mb": round(hashed.bytes / 1e6, 2),
        "put_mb": round((store.put_bytes - put) / 1e6, 2),
    }


def figures(table: Table) -> dict[str, Any]:
    """Figures of cold and repeated prunes, and of commits of one block each."""
    store, made = table.store, {}
    total = table.count

    def prune(warehouse: Warehouse, text: str, expected: int) -> None:
        answer = warehouse.prune(table.pointer, PruneRequest(filter=text, shape="ranges"))
        found = 0 if answer.block_ranges is None else sum(answer.block_ranges.block_count)
        assert found == expected, f"{found} blocks instead of {expected}"

    begin = total // 2 + 10
    questions = (
        ("one segment", f"c0 BETWEEN {1_000 * begin} AND {1_000 * (begin + 10)}", 12),
        ("every segment", "c1 < 5", 5 * total // SEGMENT),
    )
    for name, text, expected in questions:
        warehouse = table.warehouse()
        cold = measured(store, lambda: prune(warehouse, text, expected))  # noqa: B023
        made[f"cold prune, {name}"] = cold | {"held_mb": round(warehouse.memory_cache.size_bytes / 1e6, 2)}
        made[f"prune again, {name}"] = measured(store, lambda: prune(warehouse, text, expected))  # noqa: B023
    warehouse = table.warehouse()
    pointer = table.pointer

    def commit(number: int) -> None:
        nonlocal pointer
        blocks = blocks_of(number, 1, table.schema)
        refs = warehouse.prepare(table.table_id, table.schema, blocks)
        pointer = warehouse.commit(pointer, added=refs, now_ms=3 + number).pointer

    made["cold commit"] = measured(store, lambda: commit(total))

    def more() -> None:
        for at in range(1, 6):
            commit(total + at)

    several = measured(store, more)
    made["next commit, mean of 5"] = {name: round(value / 5, 2) for name, value in several.items()}
    return made


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 100, 1_000])
    parser.add_argument("--whole", action="store_true", help="sidecars as releases before sidecar_parts wrote them")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(namespace=Options())
    found: dict[int, Any] = {}
    for columns in options.columns:
        begin = time.process_time()
        table = Table(options.blocks, columns, 1 << 62 if options.whole else None)
        print(
            f"{columns} columns, sidecar of {len(table.store.template) / 1e6:.2f} MB, made in"
            f" {time.process_time() - begin:.0f} s of processor time",
            file=sys.stderr,
            flush=True,
        )
        found[columns] = figures(table)
        for name, each in found[columns].items():
            print(f"{columns} columns, {name}: {json.dumps(each)}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
