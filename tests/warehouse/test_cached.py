"""What a warehouse keeps near: on disk, mapped, in memory; how much of it, and how it is read."""

from __future__ import annotations

import hashlib
import threading
import tracemalloc
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import msgspec
import pytest

from lamella.snapshot.cache import DiskCache, MemoryCache
from lamella.snapshot.errors import HashMismatch, LamellaError, ObjectNotFound, StoreError
from lamella.snapshot.expression.filters import Filters
from lamella.snapshot.manifest import Block, ObjectRef, SnapshotPointer
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.manifests import PART_BYTES, Manifests, StoredObjects
from lamella.snapshot.wire import PruneRequest
from support.cache_folder import Heard

SCHEMA = Schema.assign([Column(name="a", type="int64"), Column(name="b", type="string")])
ROOMY = 64 << 20


class SlowStore(FsspecStore):
    """Counts reads by location; ``barrier`` is waited for in each, when there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self.barrier: threading.Barrier | threading.Event | None = None

    def read(self, location: str) -> bytes:
        self.reads.append(location)
        if self.barrier is not None:
            self.barrier.wait(30)
        return super().read(location)


def block(index: int) -> Block:
    dtype = SCHEMA.leaf("a").dtype
    stats = ColumnStats(min=to_bound(dtype, index * 10), max=to_bound(dtype, index * 10 + 9), null_count=0)
    return Block(location=f"memory://data/{index}.parquet", row_count=10, file_size=100 + index, col_stats={1: stats})


def table(store: FsspecStore, root: str, segments: int = 6) -> tuple[SnapshotPointer, list[ObjectRef]]:
    """A table of segments with two blocks each, written by another process; its pointer, the segments' sidecars."""
    warehouse = Warehouse(store, root, segment_blocks=2)
    pointer = warehouse.create(str(uuid.uuid4()), SCHEMA, now_ms=1)
    table_id = warehouse.snapshot(pointer).table_id
    refs = warehouse.prepare(table_id, SCHEMA, [block(i) for i in range(2 * segments)])
    pointer = warehouse.commit(pointer, added=refs, now_ms=2).pointer
    return pointer, [ref.sidecar for ref in warehouse.segments(pointer)]


def selected(warehouse: Warehouse, pointer: SnapshotPointer, text: str) -> list[str]:
    answer = warehouse.prune(pointer, PruneRequest(filter=text))
    assert answer.blocks is not None
    return [each.location for each in answer.blocks]


def reference(path: str, size: int = 1) -> ObjectRef:
    """A reference to nothing."""
    return ObjectRef(location=path, size_bytes=size, sha256="00")


def test_what_is_in_the_disk_cache_is_not_read_again(tmp_path: Path) -> None:
    """After a restart a prune asks the store for nothing."""
    store = SlowStore()
    root = f"memory://{uuid.uuid4()}"
    pointer, _ = table(store, root)
    wanted = [f"memory://data/{i}.parquet" for i in range(2, 9)]
    for turn in range(2):
        store.reads.clear()
        heard = Heard()
        fresh = Warehouse(store, root, disk_cache=DiskCache(tmp_path, ROOMY, heard))
        assert selected(fresh, pointer, "a >= 20 AND a < 90") == wanted
        reads = 5  # the snapshot's sidecar, and those of four segments
        assert len(store.reads) == (0 if turn else reads)
        assert heard.files == ({"hit": reads} if turn else {"miss": reads})


def test_segments_that_are_ruled_out_are_never_fetched(tmp_path: Path) -> None:
    """Of a store elsewhere only sidecars of the segments that are left are read, however many these are."""
    store = SlowStore()
    pointer, refs = table(store, f"memory://{uuid.uuid4()}", segments=60)
    row_of = {ref.location: row for row, ref in enumerate(refs)}

    def read() -> list[int]:
        """The segments whose sidecars were read since the last time."""
        found = sorted(row_of[location] for location in store.reads if location in row_of)
        store.reads.clear()
        return found

    for disk in (None, DiskCache(tmp_path, ROOMY)):
        warehouse = Warehouse(store, "memory://w", disk_cache=disk)
        read()
        assert len(selected(warehouse, pointer, "a >= 40 AND a < 60")) == 2
        assert read() == [2]
        assert len(selected(warehouse, pointer, "a >= 100 AND a < 900")) == 80
        assert read() == list(range(5, 45))
        assert len(selected(warehouse, pointer, "a >= 100 AND a < 890")) == 79
        assert read() == []
        assert len(selected(warehouse, pointer, "a < 960 OR b = 'x'")) == 120
        assert read() == [0, 1, 3, 4, *range(45, 60)]
        assert len(selected(warehouse, pointer, "a < 959")) == 96
        assert read() == []


def test_a_damaged_copy_is_fetched_again(tmp_path: Path) -> None:
    """Whatever happened to the files of the cache, the answer stays."""
    store = SlowStore()
    root = f"memory://{uuid.uuid4()}"
    pointer, _ = table(store, root)
    wanted = selected(Warehouse(store, root, disk_cache=DiskCache(tmp_path, ROOMY)), pointer, "a >= 20")
    files = [path for path in tmp_path.glob("v1/??/*") if path.is_file()]
    for number, path in enumerate(files):
        data = bytearray(path.read_bytes())
        data[len(data) * number // len(files)] ^= 1
        path.write_bytes(data if number % 2 else data[: len(data) // 2])
    store.reads.clear()
    heard = Heard()
    assert selected(Warehouse(store, root, disk_cache=DiskCache(tmp_path, ROOMY, heard)), pointer, "a >= 20") == wanted
    assert heard.files["damaged"] == heard.files["miss"] == len(store.reads) == len(files)


def test_bytes_that_are_not_what_was_written_never_reach_the_cache(tmp_path: Path) -> None:
    """An object that does not have its hash is an error, the second time as well, and no file is made of it."""
    store = SlowStore()
    pointer, refs = table(store, f"memory://{uuid.uuid4()}")
    store.delete(refs[0].location)
    store.put(refs[0].location, b"something else")
    manifests = Manifests(store, ROOMY, disk=DiskCache(tmp_path, ROOMY))
    for _ in range(2):
        with pytest.raises(HashMismatch):
            manifests.sidecar(refs[0])
    assert not [path for path in tmp_path.glob("v1/??/*") if path.is_file()]
    with pytest.raises(HashMismatch):
        manifests.sidecars(refs)
    assert manifests.head(pointer).summary.block_count == 12


def test_a_local_warehouse_is_mapped_and_not_read(tmp_path: Path) -> None:
    """Sidecars are neither read nor copied; deleting them does not disturb whoever has them open."""
    store = SlowStore()
    pointer, refs = table(store, f"file://{tmp_path}/w")
    store.reads.clear()
    fresh = Warehouse(store, f"file://{tmp_path}/w", disk_cache=DiskCache(tmp_path / "cache", ROOMY))
    wanted = [f"memory://data/{i}.parquet" for i in range(2, 9)]
    assert selected(fresh, pointer, "a >= 20 AND a < 90") == wanted
    assert store.reads == []
    copies = {path.read_bytes() for path in (tmp_path / "cache").glob("v1/??/*") if path.is_file()}
    assert not any(store.read(ref.location) in copy for ref in refs for copy in copies)
    store.delete_many([ref.location for ref in refs])
    assert selected(fresh, pointer, "a >= 20 AND a < 90") == wanted
    with pytest.raises(ObjectNotFound):
        Manifests(store, ROOMY).sidecars(refs)


def test_a_damaged_file_of_a_local_warehouse_is_found(tmp_path: Path) -> None:
    """A mapped object is held against its hash before anything in it is believed: every byte, and its length."""
    store = SlowStore()
    _, refs = table(store, f"file://{tmp_path}/w", segments=1)
    path = Path(refs[0].location.removeprefix("file://"))
    good = path.read_bytes()
    for position in range(0, len(good), 7):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(HashMismatch):
            Manifests(store, ROOMY).sidecar(refs[0])
    for data in (b"", good[:-1], good + b"\0"):
        path.write_bytes(data)
        with pytest.raises(HashMismatch):
            Manifests(store, ROOMY).sidecar(refs[0])
    path.write_bytes(good)
    assert len(Manifests(store, ROOMY).sidecar(refs[0])) == 2


def test_sidecars_are_read_several_at_a_time_and_come_in_order() -> None:
    """All six reads are under way at once, or none of them would return."""
    store = SlowStore()
    _, refs = table(store, f"memory://{uuid.uuid4()}")
    store.barrier = threading.Barrier(6)
    store.reads.clear()
    found = Manifests(store, ROOMY, fetch_threads=6).sidecars([*refs, refs[2], refs[0]])
    locations = [sidecar.texts("location")[0] for sidecar in found]
    assert locations == [f"memory://data/{2 * i}.parquet" for i in (0, 1, 2, 3, 4, 5, 2, 0)]
    assert sorted(store.reads) == sorted(ref.location for ref in refs)


class PartStore(SlowStore):
    """Counts ranges as well; ``cut`` and ``broken``: from where on ranges are empty, or an error."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[tuple[int, int]] = []
        self.cut = self.broken = 1 << 62

    def read_range(self, location: str, start: int, length: int) -> bytes:
        self.ranges.append((start, length))
        if self.barrier is not None:
            self.barrier.wait(30)
        if start >= self.broken:
            raise StoreError("the disk is on fire", location=location)
        return super().read_range(location, start, length) if start < self.cut else b""


def test_large_objects_are_read_in_parts_at_once() -> None:
    """All parts are under way at the same time, and together they are the object; its hash is checked as ever."""
    store = PartStore()
    data = Random(7).randbytes(3 * PART_BYTES + 1)
    ref = ObjectRef(
        location=f"memory://{uuid.uuid4()}/x", size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )
    store.put(ref.location, data)
    store.barrier = threading.Barrier(4)
    objects = StoredObjects(store, fetch_threads=4)
    assert objects.read(ref) == data
    assert store.reads == []
    assert sorted(store.ranges) == [*((part * PART_BYTES, PART_BYTES) for part in range(3)), (3 * PART_BYTES, 1)]
    store.barrier = None
    longer = msgspec.structs.replace(ref, size_bytes=len(data) + PART_BYTES)
    assert objects.read(longer) == data, "the hash says what an object is"
    for wrong in ({"sha256": "00" * 32}, {"size_bytes": len(data) - 1}):
        with pytest.raises(HashMismatch):
            objects.read(msgspec.structs.replace(ref, **wrong))
    store.cut = PART_BYTES
    with pytest.raises(HashMismatch):
        objects.read(ref)
    store.broken = 2 * PART_BYTES
    with pytest.raises(StoreError, match="on fire"):
        objects.read(ref)
    with pytest.raises(ObjectNotFound):
        objects.read(msgspec.structs.replace(ref, location="memory://nowhere/x"))


def test_small_objects_are_one_read() -> None:
    """An object of one part's size is asked for once, whole."""
    store = PartStore()
    data = bytes(PART_BYTES)
    ref = ObjectRef(
        location=f"memory://{uuid.uuid4()}/x", size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )
    store.put(ref.location, data)
    assert StoredObjects(store).read(ref) == data
    assert (store.reads, store.ranges) == ([ref.location], [])


def test_sidecars_that_are_near_are_not_read_again(tmp_path: Path) -> None:
    """Those in memory and on disk are taken from there, and only the others are asked for."""
    store = SlowStore()
    _, refs = table(store, f"memory://{uuid.uuid4()}")
    Manifests(store, ROOMY, disk=DiskCache(tmp_path, ROOMY)).sidecars(refs[:2])
    manifests = Manifests(store, ROOMY, disk=DiskCache(tmp_path, ROOMY))
    manifests.sidecar(refs[3])
    store.reads.clear()
    first = manifests.sidecars(refs)
    assert sorted(store.reads) == sorted(refs[i].location for i in (2, 4, 5))
    again = manifests.sidecars(refs)
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert len(store.reads) == 3


def test_no_sidecars_are_no_work() -> None:
    """An empty list, and one sidecar, which needs no other thread."""
    store = SlowStore()
    _, refs = table(store, f"memory://{uuid.uuid4()}")
    manifests = Manifests(store, ROOMY)
    assert manifests.sidecars([]) == []
    assert len(manifests.sidecars(refs[:1])[0]) == 2


@pytest.mark.parametrize("cache_bytes", [ROOMY, 0])
def test_sidecars_are_right_with_any_memory(cache_bytes: int) -> None:
    """Also when nothing can be kept, and the first that cannot be read is the error."""
    store = SlowStore()
    _, refs = table(store, f"memory://{uuid.uuid4()}")
    manifests = Manifests(store, cache_bytes, fetch_threads=3)
    for _ in range(2):
        assert [sidecar.texts("location")[0] for sidecar in manifests.sidecars(refs)] == [
            f"memory://data/{2 * i}.parquet" for i in range(6)
        ]
    gone = [reference("memory://nowhere/1"), reference("memory://nowhere/2")]
    with pytest.raises(ObjectNotFound) as caught:
        manifests.sidecars([refs[0], *gone, refs[1]])
    assert caught.value.details["location"] == "memory://nowhere/1"


def test_threads_that_want_the_same_object_read_it_once() -> None:
    """Sidecars, manifests and heads: one thread reads, the others wait for it."""
    store = SlowStore()
    pointer, refs = table(store, f"memory://{uuid.uuid4()}")
    barrier = store.barrier = threading.Event()
    store.reads.clear()
    manifests = Manifests(store, ROOMY)
    threads = 6
    ready = threading.Barrier(threads + 1)

    def ask(_: int) -> tuple[object, ...]:
        ready.wait(30)
        return manifests.sidecar(refs[0]), manifests.head(pointer), manifests.snapshot(pointer)

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(ask, number) for number in range(threads)]
        ready.wait(30)
        barrier.set()
        found = {tuple(map(id, future.result())) for future in futures}
    assert len(found) == 1
    assert sorted(store.reads) == sorted([refs[0].location, pointer.sidecar.location, pointer.manifest.location])


def test_a_read_that_fails_is_an_error_for_all_who_wait_and_is_tried_again_afterwards() -> None:
    """A failure is not kept."""
    store = SlowStore()
    _, refs = table(store, f"memory://{uuid.uuid4()}")
    data = store.read(refs[0].location)
    store.delete(refs[0].location)
    manifests = Manifests(store, ROOMY)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(manifests.sidecar, refs[0]) for _ in range(4)]
        errors = [future.exception() for future in futures]
    assert all(isinstance(error, LamellaError) for error in errors)
    assert len({id(error) for error in errors}) == 4
    store.put(refs[0].location, data)
    assert len(manifests.sidecar(refs[0])) == 2


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_snapshots(tmp_path: Path) -> None:
    """Whatever is asked of however many snapshots, all kinds of values together stay within the bound."""
    limit = 200_000
    for store, root, disk in (
        (FsspecStore(), f"memory://{uuid.uuid4()}", None),
        (FsspecStore(), f"file://{tmp_path}/w", None),
        (FsspecStore(), f"memory://{uuid.uuid4()}", DiskCache(tmp_path / "cache", ROOMY)),
    ):
        warehouse = Warehouse(store, root, cache_bytes=limit, segment_blocks=2, disk_cache=disk)
        cache = warehouse.manifests.memory_cache
        pointer = warehouse.create(str(uuid.uuid4()), SCHEMA, now_ms=1)
        table_id = warehouse.snapshot(pointer).table_id
        for number in range(90):
            refs = warehouse.prepare(table_id, SCHEMA, [block(2 * number), block(2 * number + 1)])
            pointer = warehouse.commit(pointer, added=refs, now_ms=2 + number).pointer
            assert len(selected(warehouse, pointer, f"a >= {20 * number}")) == 2
            assert cache.size_bytes <= limit
        assert warehouse.snapshot(pointer).groups
        assert 0 < len(cache) < 90


def test_derived_columns_are_stored_on_disk_when_there_is_one(tmp_path: Path) -> None:
    """Without a folder they count to the memory of the process."""
    store = FsspecStore()
    disk = DiskCache(tmp_path, ROOMY)
    assert Manifests(store, ROOMY, disk=disk).derived is disk
    manifests = Manifests(store, ROOMY)
    assert isinstance(manifests.derived, MemoryCache)
    manifests.derived.derived("x", lambda: [b"x" * 1000])
    assert manifests.memory_cache.size_bytes >= 1000


def long_list(number: int) -> str:
    return f"a IN ({', '.join(str(10**9 * number + n) for n in range(700))})"


def long_text(number: int) -> str:
    return f"b = '{number:04}{'x' * 8_000}'"


def many_parts(number: int) -> str:
    return " OR ".join(f"(a > {number * 300 + n} AND b > '{n}')" for n in range(120))


def not_prunable(number: int) -> str:
    return f"b LIKE '%{number:04}{'y' * 8_000}%'"


@pytest.mark.slow
@pytest.mark.parametrize("written", [long_list, long_text, many_parts, not_prunable])
@pytest.mark.few(1)
def test_what_is_cached_of_long_filters_is_counted_whole(tmp_path: Path, written: Callable[[int], str]) -> None:
    """The memory that distinct filters take is within what they are counted as, so that the bound is one of bytes."""
    store = FsspecStore()
    pointer, _ = table(store, str(tmp_path))
    warehouse = Warehouse(store, str(tmp_path), cache_bytes=ROOMY)
    cache = warehouse.memory_cache
    warehouse._finder._filters = Filters(characters=0)  # it has a bound of its own
    warehouse.prune(pointer, PruneRequest(filter=written(0)))
    estimated_bytes, entries = cache.size_bytes, len(cache)
    tracemalloc.start()
    try:
        for number in range(1, 101):
            warehouse.prune(pointer, PruneRequest(filter=written(number)))
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(cache) - entries >= 100
    assert taken_bytes <= cache.size_bytes - estimated_bytes
    assert taken_bytes > 100 * 2_000  # filters that take nothing would show nothing


def test_distinct_filters_take_no_more_than_the_bound(tmp_path: Path) -> None:
    """However many there are: the least recently used make room."""
    store = FsspecStore()
    pointer, _ = table(store, str(tmp_path))
    warehouse = Warehouse(store, str(tmp_path), cache_bytes=1 << 20)
    for number in range(100):
        warehouse.prune(pointer, PruneRequest(filter=long_list(number)))
        assert warehouse.memory_cache.size_bytes <= 1 << 20
    assert warehouse.memory_cache.counts()["funnel"].evicted > 50
