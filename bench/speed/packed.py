"""A table of a hundred million blocks x five columns on little disk space, and the store that a service reads it from.

Its sidecars would take 36 GB. They are made from arrays, byte by byte as Lamella writes them (:func:`compare` checks
some of them), and kept compressed, in 9 GB; a read decompresses one. So they are not mapped: to the service they are
objects of a remote store that answers at once. Groups and the snapshot are written by Lamella's own code. Segments'
JSON manifests and data files, which no prune reads, are not made.

``python -m speed.packed`` is a service on such a table; its settings are those of ``python -m lamella.service``.
"""

from __future__ import annotations

import multiprocessing
import shutil
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from synthetic import COUNTRIES, FILTERED_COLUMNS, FOLDER, ROWS, SPAN_MS, START_MS, Array, Model, blocks_of, schema

from lamella.service.catalog import Catalog, TableRecord, open_catalog
from lamella.service.history.history import history_entry
from lamella.snapshot import commit as commits
from lamella.snapshot.columnar.locations import Hashes
from lamella.snapshot.ids import Ids
from lamella.snapshot.manifest import (
    FORMAT_VERSION,
    GroupRef,
    ObjectRef,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    content_hash,
)
from lamella.snapshot.manifest.block_key import Identity, block_keys
from lamella.snapshot.sketch.layers import SketchLayers
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore, ObjectStat, TableLayout
from lamella.snapshot.storage.together import TogetherStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.manifest_writer import IndexPart, ManifestWriter
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.wire import NamespaceInfo
from speed.clock import process_cpu_s
from speed.tables import Made

SEGMENT: Final = 1_000
#: Blocks that are drawn together, and that one process prepares at a time.
PART: Final = 1_000_000
_BYTES_A_BLOCK: Final = 110
#: Maximum disk space of a table.
LIMIT_BYTES: Final = 12 << 30
#: Increment it whenever a value changes: it identifies tables on disk.
_VERSION: Final = 1
_ENTRY: Final = "table.json"
_CODEC: Final = "zstd"


class Part(Model):
    """The blocks from ``first`` on of a table of ``total`` blocks, as arrays; their values are like those of a model.

    A model of all blocks would take 16 GB.
    """

    def __init__(self, first: int, total: int, count: int = PART) -> None:
        self.count = count
        self.first = first
        random = np.random.default_rng((11, first))
        number = np.arange(first, first + count, dtype=np.uint64)
        begin = START_MS + (number * np.uint64(SPAN_MS) // np.uint64(total)).astype(np.int64)
        tenant = random.integers(0, 1_000, count)
        last_tenant = np.minimum(tenant + random.integers(0, 3, count), 999)
        one, other = random.integers(0, 10**6, (2, count))
        same = tenant == last_tenant
        country = random.integers(0, len(COUNTRIES), count)
        self.low = {
            "event_time": begin,
            "user_id": random.integers(1, 10**6, count),
            "error_code": random.integers(0, 5, count),
            "country": country,
            "path": tenant * 10**6 + np.where(same, np.minimum(one, other), one),
        }
        self.high = {
            "event_time": begin + SPAN_MS * 3 // (2 * total),
            "user_id": 10**12 - random.integers(1, 10**6, count),
            "error_code": random.integers(500, 600, count),
            "country": np.minimum(country + random.integers(0, 4, count), len(COUNTRIES) - 1),
            "path": last_tenant * 10**6 + np.where(same, np.maximum(one, other), other),
        }
        nulls = random.random(count)
        self.all_null = nulls < 0.005
        some = np.where(nulls < 0.01, random.integers(1, 500, count), 0)
        self._nulls = {"error_code": np.where(self.all_null, ROWS, some)}
        self.tag = random.integers(0, 2**63 - 1, count)
        self.file_size = (64 << 20) + random.integers(0, 1 << 20, count)

    def names(self, start: int, stop: int) -> list[str]:
        """File names of blocks, counted from the part's first one."""
        tags = self.tag[start:stop].tolist()
        numbers = range(self.first + start, self.first + stop)
        return [f"part-{number:08d}-{tag:016x}.parquet" for number, tag in zip(numbers, tags, strict=True)]


def parts(total: int) -> Iterator[Part]:
    """All parts of a table, one after another."""
    for first in range(0, total, PART):
        yield Part(first, total, min(PART, total - first))


class PackedStore(FsspecStore):
    """A store of local files, of which sidecars of segments may be compressed: those cannot be mapped."""

    def read(self, location: str) -> bytes:
        """All bytes of an object."""
        packed = _packed(location)
        if packed is None:
            return super().read(location)
        data = packed.read_bytes()
        size = int.from_bytes(data[:8], "little")
        plain: bytes = pa.Codec(_CODEC).decompress(memoryview(data)[8:], size, asbytes=True)
        return plain

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Some bytes of an object."""
        if _packed(location) is None:
            return super().read_range(location, start, length)
        return self.read(location)[start : start + length]

    def stat(self, location: str) -> ObjectStat:
        """Size and content id of an object; of a data file, which a commit asks for, made up."""
        if location.startswith(FOLDER):
            return ObjectStat(location=location, size_bytes=64 << 20, content_id="1")
        return super().stat(location)

    def local_path(self, location: str) -> str | None:
        """The path of an object that can be mapped."""
        return None if _packed(location) is not None else super().local_path(location)


def _packed(location: str) -> Path | None:
    """The compressed file of a segment's sidecar, if there is one."""
    if "/_sg/" not in location or not location.endswith(".arrow"):
        return None
    path = Path(location.removeprefix("file://") + ".zst")
    return path if path.exists() else None


class Builder:
    """Sidecars and references of segments from arrays."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self._ids = Ids()
        self._schema = schema(FILTERED_COLUMNS)
        example = _written_by_lamella(Part(0, SEGMENT, SEGMENT))
        self._example, sidecar = example
        with pa.ipc.open_file(pa.BufferReader(sidecar)) as reader:
            #: Names, types, their order and metadata are those of a sidecar that Lamella wrote.
            self._form: pa.Schema = reader.schema

    def segments(self, part: Part) -> tuple[list[SegmentRef], npt.NDArray[np.uint64]]:
        """Write the sidecars of a part's segments; also returns the hashes of the blocks' locations."""
        refs, hashes = [], []
        for start in range(0, part.count, SEGMENT):
            ref, data, keys = self.segment(part, start)
            path = Path(ref.sidecar.location.removeprefix("file://") + ".zst")
            path.write_bytes(len(data).to_bytes(8, "little") + pa.Codec(_CODEC, 3).compress(data, asbytes=True))
            refs.append(ref)
            hashes.append(keys[:, 0])
        return refs, np.concatenate(hashes)

    def segment(self, part: Part, start: int) -> tuple[SegmentRef, bytes, npt.NDArray[np.uint64]]:
        """The reference, sidecar and block keys of a segment's blocks, which begin at ``start`` in the part."""
        stop = min(part.count, start + SEGMENT)
        count = stop - start
        locations = [FOLDER + name for name in part.names(start, stop)]
        sizes = part.file_size[start:stop]
        keys = block_keys(
            [Identity(location, ROWS, size) for location, size in zip(locations, sizes.tolist(), strict=True)]
        )
        zeros = np.zeros(count, np.int64)
        arrays: dict[str, Any] = {
            "location": pa.array(locations, pa.large_string()),
            "row_count": np.full(count, ROWS),
            "file_size": sizes,
            "block_size": zeros,
            "block_key.high": np.ascontiguousarray(keys[:, 0]),
            "block_key.low": np.ascontiguousarray(keys[:, 1]),
        }
        stats = {}
        for leaf in self._schema.leaves():
            flags, nulls, low, high = _bounds(part, leaf.name, start, stop)
            arrays |= {
                f"{leaf.id}.flags": flags,
                f"{leaf.id}.nulls": nulls,
                **_side(f"{leaf.id}.min", leaf.name, low),
                **_side(f"{leaf.id}.max", leaf.name, high),
                f"{leaf.id}.size": zeros,
            }
            known = (flags & 1) != 0
            low_bound, high_bound = _value(leaf.name, low[known].min()), _value(leaf.name, high[known].max())
            stats[leaf.id] = ColumnStats(
                min=to_bound(leaf.dtype, low_bound),
                max=to_bound(leaf.dtype, high_bound),
                null_count=int(nulls.sum()),
                source="merge",
            )
        sink = pa.BufferOutputStream()
        columns = [pa.array(arrays[field.name], field.type) for field in self._form]
        with pa.ipc.new_file(sink, self._form) as writer:
            writer.write_batch(pa.record_batch(columns, schema=self._form))
        data = bytes(sink.getvalue())
        segment_id = str(self._ids.new())
        location = self._layout.segment_sidecar(segment_id)
        summary = msgspec.structs.replace(
            self._example.summary,
            row_count=ROWS * count,
            block_count=count,
            perfect_block_count=self._example.summary.perfect_block_count and count,
            compressed_byte_size=int(sizes.sum()),
            col_stats=stats,
        )
        ref = msgspec.structs.replace(
            self._example,
            segment_id=segment_id,
            manifest=msgspec.structs.replace(self._example.manifest, location=self._layout.segment(segment_id)),
            sidecar=ObjectRef(location=location, size_bytes=len(data), sha256=content_hash(data)),
            summary=summary,
            first_location=locations[0],
            last_location=locations[-1],
        )
        return ref, data, keys


def _written_by_lamella(part: Part) -> tuple[SegmentRef, bytes]:
    """The reference and the sidecar that Lamella writes for all blocks of a part, which are one segment."""
    store = FsspecStore()
    warehouse = Warehouse(store, "memory://packed")
    table_id = str(Ids().new())
    columns = schema(FILTERED_COLUMNS)
    (ref,) = warehouse.prepare(table_id, columns, list(blocks_of(part, 0, part.count, columns)))
    return ref, store.read(ref.sidecar.location)


def compare(total: int) -> None:
    """Check that some segments are those that Lamella writes for the same blocks: sidecars, and references."""
    builder = Builder(TableLayout("memory://packed"))
    for first in (0, PART // 2, total - SEGMENT):
        part = Part(first, total, SEGMENT)
        expected, sidecar = _written_by_lamella(part)
        ref, data, _ = builder.segment(part, 0)
        assert data == sidecar, f"the sidecar of blocks from {first} on differs"
        same = {"summary", "format_version", "schema_id", "block_schema_ids", "first_location", "last_location"}
        for name in same:
            assert getattr(ref, name) == getattr(expected, name), f"{name} of blocks from {first} on differs"


def _bounds(part: Part, column: str, start: int, stop: int) -> tuple[Array, Array, Array, Array]:
    """Flags, null counts, and bounds as they are in the part; zero where there is no bound."""
    low, high = part.low[column][start:stop], part.high[column][start:stop]
    nulls = part.nulls(column)[start:stop]
    # 1, 2: both bounds are known; 4: may be null; 8: may be a number; 32: the null count is known.
    flags = np.full(stop - start, 1 | 2 | 8 | 32, np.uint8)
    flags[nulls > 0] |= 4
    if column == "error_code":
        empty = part.all_null[start:stop]
        flags[empty] = 4 | 32
        low, high = np.where(empty, 0, low), np.where(empty, 0, high)
    return flags, nulls, low, high


def _side(name: str, column: str, values: Array) -> dict[str, Any]:
    if column == "event_time":
        return {name: values * 1_000}
    if column not in ("country", "path"):
        return {name: values}
    letters = _letters(column, values)
    width = letters.shape[1]
    offsets = np.arange(len(values) + 1, dtype=np.int64) * width
    texts = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    )
    keys = np.zeros((len(values), 8), np.uint8)
    keys[:, : min(width, 8)] = letters[:, :8]
    return {name: texts, f"{name}.key": keys.view(">u8").ravel().astype(np.uint64)}


def _value(column: str, value: Any) -> Any:
    """A bound as it is compared."""
    if column == "event_time":
        return int(value) * 1_000
    return _letters(column, np.array([value])).tobytes() if column in ("country", "path") else int(value)


_COUNTRIES: Final = np.array([list(country.encode()) for country in COUNTRIES], np.uint8)
_PATH: Final = np.frombuffer(b"tenant-00000/obj-000000", np.uint8)
_TENS: Final = 10 ** np.arange(5, -1, -1)


def _letters(column: str, codes: Array) -> Array:
    """The bytes of texts that codes stand for, one row each; all texts of a column have the same length."""
    if column == "country":
        return np.ascontiguousarray(_COUNTRIES[codes])
    found = np.tile(_PATH, (len(codes), 1))
    found[:, 7:12] += (codes[:, None] // 10**6 // _TENS[1:] % 10).astype(np.uint8)
    found[:, 17:23] += (codes[:, None] % 10**6 // _TENS % 10).astype(np.uint8)
    return found


def table(folder: Path, total: int, processes: int = 2) -> Made:
    """The table of ``total`` blocks below ``folder``, made if it is not there yet."""
    table_folder = folder / f"packed-{_VERSION}-format{FORMAT_VERSION}-{total}"
    entry = table_folder / _ENTRY
    if entry.exists():
        made = msgspec.json.decode(entry.read_bytes(), type=Made)
        if made.folder == str(table_folder):
            return made
    if total * _BYTES_A_BLOCK > LIMIT_BYTES:
        raise OSError(f"{table_folder} would take more than {LIMIT_BYTES >> 30} GiB")
    compare(total)
    shutil.rmtree(table_folder, ignore_errors=True)
    table_folder.mkdir(parents=True)
    started = process_cpu_s()
    pointer = _make(table_folder, total, processes)
    made = Made(
        folder=str(table_folder),
        count=total,
        columns=FILTERED_COLUMNS,
        pointer=pointer,
        build_s=round(process_cpu_s() - started, 1),
    )
    entry.write_bytes(msgspec.json.encode(made))
    return made


def _make(table_folder: Path, total: int, processes: int) -> SnapshotPointer:
    root = f"file://{table_folder}/warehouse"
    catalog = open_catalog(f"sqlite:///{table_folder}/catalog.db")
    store, ids = PackedStore(), Ids()
    warehouse = Warehouse(store, root)
    table_id = str(ids.new())
    first = warehouse.create(table_id, schema(FILTERED_COLUMNS), now_ms=1)
    empty = warehouse.snapshot(first)
    layout = TableLayout(warehouse.table_location(table_id))
    Path(layout.root.removeprefix("file://"), "_sg").mkdir(parents=True)
    manifests = Manifests(store, cache_bytes=0)
    writer = ManifestWriter(TogetherStore(store), root, ids, SketchLayers(TogetherStore(store)), manifests)
    groups: list[GroupRef] = []
    refs: list[SegmentRef] = []
    hashes: list[Hashes] = []
    with multiprocessing.get_context("spawn").Pool(processes, _start, (layout.root, total)) as pool:
        for some, theirs in pool.imap(_prepare, range(0, total, PART)):
            refs += some
            hashes += np.split(theirs, np.cumsum([ref.summary.block_count for ref in some])[:-1])
            while len(refs) >= _LARGEST:
                groups.append(writer.group(layout, empty, refs[:_LARGEST], _index(hashes[:_LARGEST])))
                refs, hashes = refs[_LARGEST:], hashes[_LARGEST:]
            print(f"{table_folder.name}: {len(groups) * _LARGEST + len(refs):,} segments", file=sys.stderr, flush=True)
        pool.close()
        pool.join()
    sizes = commits.to_move([ref.summary.block_count for ref in refs], _SHAPE)
    for members in sizes:
        own = [refs[row] for row in members], [hashes[row] for row in members]
        groups.append(writer.group(layout, empty, own[0], _index(own[1])))
    moved = {row for members in sizes for row in members}
    rest = [ref for row, ref in enumerate(refs) if row not in moved]
    following = commits.next_snapshot(
        empty,
        snapshot_id=str(ids.new()),
        groups=groups,
        segments=rest,
        appended=None,
        operation="append",
        row_changes=["append"],
        properties={},
        prev_manifest=first.manifest,
        now_ms=2,
    )
    pointer, written = writer.snapshot(following)
    catalog.create_namespace(NamespaceInfo(name="bench"), now_ms=1)
    _add_table(catalog, "t", table_id, layout, pointer, written)
    catalog.close()
    return pointer


def _add_table(
    catalog: Catalog, name: str, table_id: str, layout: TableLayout, pointer: SnapshotPointer, snapshot: Snapshot
) -> None:
    record = TableRecord(
        table_id=table_id,
        namespace="bench",
        name=name,
        location=layout.root,
        version=1,
        pointer=pointer,
        created_at_ms=1,
    )
    catalog.create_table(record, history_entry(1, pointer, snapshot))


def unordered(made: Made, name: str) -> None:
    """Add a table of the same segments to the catalog whose groups' names are said to lie among each other's.

    So they do where names are random; then a commit looks for its blocks' names in the index of every group.
    """
    store, ids = PackedStore(), Ids()
    base = Manifests(store, cache_bytes=0).snapshot(made.pointer)
    table_id = str(ids.new())
    widest = [
        msgspec.structs.replace(group, first_location=FOLDER, last_location=FOLDER + "~") for group in base.groups
    ]
    together = TogetherStore(store)
    writer = ManifestWriter(together, made.root, ids, SketchLayers(together), Manifests(store, cache_bytes=0))
    snapshot = msgspec.structs.replace(
        base, table_id=table_id, snapshot_id=str(ids.new()), groups=tuple(widest), sidecar=None, prev_snapshot_id=None
    )
    pointer, written = writer.snapshot(snapshot)
    catalog = open_catalog(made.catalog)
    _add_table(catalog, name, table_id, writer.layout(table_id), pointer, written)
    catalog.close()


#: Groups as commits leave them, of at most as many segments as these have.
_SHAPE: Final = commits.Shape(max_moved=1 << 30)
_LARGEST: Final = _SHAPE.max_grouped


def _index(hashes: list[Hashes]) -> list[IndexPart]:
    sorted_ = [np.sort(each) for each in hashes]
    return [(each, np.full(len(each), number, np.uint32)) for number, each in enumerate(sorted_)]


class _Worker:
    def __init__(self, root: str, total: int) -> None:
        self._total = total
        self._layout = TableLayout(root)

    @cached_property
    def _builder(self) -> Builder:
        return Builder(self._layout)

    def prepare(self, first: int) -> tuple[list[SegmentRef], npt.NDArray[np.uint64]]:
        """The segments of one part."""
        return self._builder.segments(Part(first, self._total, min(PART, self._total - first)))


_worker: _Worker


def _start(root: str, total: int) -> None:
    global _worker
    _worker = _Worker(root, total)


def _prepare(first: int) -> tuple[list[SegmentRef], npt.NDArray[np.uint64]]:
    return _worker.prepare(first)


def main() -> None:
    """Serve, with the store of compressed sidecars in place of the usual one."""
    from lamella.service import __main__ as service
    from lamella.service import app

    vars(app)["FsspecStore"] = PackedStore  # there is no setting for a store of a benchmark
    sys.exit(service.main())


if __name__ == "__main__":
    main()
