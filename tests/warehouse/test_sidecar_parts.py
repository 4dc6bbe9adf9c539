"""Sidecars in parts: what of them is read and hashed, that damage of it is found, and that answers are the same."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from lamella.snapshot.cache import DiskCache
from lamella.snapshot.columnar import Sidecar, build_blocks
from lamella.snapshot.columnar.column_parts import read_tail, tail_of, whole_batch
from lamella.snapshot.commit import Shape
from lamella.snapshot.errors import HashMismatch, ManifestError, UnsupportedFormat
from lamella.snapshot.manifest import SIDECAR_PARTS, Block, ColumnMeta, ObjectRef, SnapshotPointer, codec
from lamella.snapshot.prune.pipeline import Deferred
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.stats import ColumnStats, to_bound
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.verify import Options, Verification
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.manifests import Manifests
from lamella.snapshot.warehouse.segment_prune import SegmentPrune, head_of, left_segments, selected_blocks
from lamella.snapshot.wire import PruneRequest
from support import golden
from support.cache_folder import Heard

ROOMY = 64 << 20
BLOCKS = 200


class CountingStore(FsspecStore):
    """Counts reads and bytes; ``barrier`` is waited for in each read of a range, when there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: list[str] = []
        self.ranges: list[tuple[str, int, int]] = []
        self.read_bytes = 0
        self.barrier: threading.Barrier | threading.Event | None = None

    def clear(self) -> None:
        """Forget what was counted."""
        self.whole, self.ranges, self.read_bytes = [], [], 0

    def read(self, location: str) -> bytes:
        """All bytes of an object."""
        data = super().read(location)
        self.whole.append(location)
        self.read_bytes += len(data)
        return data

    def read_range(self, location: str, start: int, length: int) -> bytes:
        """Some bytes of an object."""
        if self.barrier is not None:
            self.barrier.wait(30)
        data = super().read_range(location, start, length)
        self.ranges.append((location, start, length))
        self.read_bytes += len(data)
        return data


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each call of SHA-256."""
    sizes: list[int] = []
    sha256 = hashlib.sha256

    def counted(data: Any = b"", **options: Any) -> Any:
        sizes.append(memoryview(data).nbytes)
        return sha256(data, **options)

    monkeypatch.setattr(hashlib, "sha256", counted)
    return sizes


def schema(columns: int) -> Schema:
    return Schema.assign([Column(name=f"c{at}", type="int64") for at in range(columns)])


def wide(columns: Schema, count: int = BLOCKS) -> list[Block]:
    """Blocks whose columns all ascend."""
    dtype = columns.leaves()[0].dtype
    found = []
    for at in range(count):
        stats = ColumnStats(min=to_bound(dtype, 10 * at), max=to_bound(dtype, 10 * at + 9), null_count=0)
        found.append(
            Block(
                location=f"memory://data/{at:04}.parquet",
                row_count=10,
                file_size=1_000 + at,
                col_stats={leaf.id: stats for leaf in columns.leaves()},
                col_metas={leaf.id: (ColumnMeta(4, 50 + leaf.id, 10),) for leaf in columns.leaves()},
            )
        )
    return found


class Table:
    """A table of ``columns`` columns in segments of fifty blocks, which are in groups."""

    def __init__(self, columns: int, root: str = "", split_from_bytes: int = 0) -> None:
        self.store = CountingStore()
        self.root = root or f"memory://{uuid.uuid4()}"
        self.schema = schema(columns)
        shape = Shape(segment_blocks=50, group_segments=2)
        warehouse = Warehouse(self.store, self.root, shape=shape, split_from_bytes=split_from_bytes)
        table_id = str(uuid.uuid4())
        pointer = warehouse.create(table_id, self.schema, now_ms=1)
        for blocks in (wide(self.schema)[:100], wide(self.schema)[100:150], wide(self.schema)[150:]):
            refs = warehouse.prepare(table_id, self.schema, blocks)
            pointer = warehouse.commit(pointer, added=refs, now_ms=2).pointer
        self.pointer: SnapshotPointer = pointer
        self.snapshot = warehouse.snapshot(pointer)
        self.refs: list[ObjectRef] = [ref.sidecar for ref in warehouse.segments(pointer)]
        self.store.clear()

    def warehouse(self, disk: DiskCache | None = None, **options: Any) -> Warehouse:
        """A new process."""
        return Warehouse(self.store, self.root, disk_cache=disk, **options)


def selected(warehouse: Warehouse, pointer: SnapshotPointer, text: str) -> list[str]:
    answer = warehouse.prune(pointer, PruneRequest(filter=text))
    assert answer.blocks is not None
    return [each.location for each in answer.blocks]


def test_a_prune_reads_and_hashes_what_it_asks_for(hashed: list[int]) -> None:
    """Of eight times as many columns it reads no more than their entries in directories, and the snapshot's own."""
    costs = {}
    for columns in (16, 128):
        table = Table(columns)
        assert all(ref.tail_bytes for ref in table.refs)
        assert table.snapshot.groups[0].sidecar.tail_bytes
        warehouse = table.warehouse()
        hashed.clear()
        assert len(selected(warehouse, table.pointer, "c3 >= 500 AND c3 < 1510 OR c3 = 77")) == 102
        assert table.store.whole == [table.pointer.sidecar.location]
        own = table.pointer.sidecar.size_bytes
        assert table.store.read_bytes <= sum(hashed) <= table.store.read_bytes + 20_000  # names of chunks and the like
        costs[columns] = table.store.read_bytes - own
        total = sum(ref.size_bytes for ref in table.refs)
        assert costs[columns] < 0.5 * total
        hashed.clear()
        table.store.clear()
        assert len(selected(warehouse, table.pointer, "c3 < 990")) == 99
        assert (table.store.read_bytes, table.store.ranges) == (0, [])
        assert len(selected(warehouse, table.pointer, "c4 < 995")) == 100
        assert table.store.read_bytes < 30_000
    directories = 36 * (128 - 16) * (len(table.refs) + len(table.snapshot.groups))
    assert costs[128] == costs[16] + directories


def test_memory_follows_the_columns_that_were_requested() -> None:
    """What the caches say they hold grows with each column, and never to what whole sidecars take."""
    cached_bytes = {}
    for split in (0, 1 << 62):
        table = Table(128, split_from_bytes=split)
        warehouse = table.warehouse()
        sizes = []
        for text in ("c3 < 990", "c3 < 980", "c4 < 990", "c5 < 990"):
            assert selected(warehouse, table.pointer, text)
            sizes.append(warehouse.memory_cache.kind_bytes("sidecar"))
        cached_bytes[split] = sizes
    first, again, second, third = cached_bytes[0]
    assert first == again < second < third < 0.5 * cached_bytes[1 << 62][-1]
    assert third - second == pytest.approx(second - first, rel=0.3)


def test_a_commit_reads_no_columns() -> None:
    """A commit of one block opens neither parts of other segments nor whole sidecars of them."""
    table = Table(64)
    warehouse = table.warehouse(shape=Shape(segment_blocks=50, group_segments=2), split_from_bytes=0)
    (more,) = wide(table.schema, BLOCKS + 1)[BLOCKS:]
    refs = warehouse.prepare(table.snapshot.table_id, table.schema, [more])
    made = warehouse.commit(table.pointer, added=refs, now_ms=3)
    sidecars = {ref.location: ref.tail_bytes for ref in table.refs}
    assert not sidecars.keys() & set(table.store.whole)
    assert all(length == sidecars.get(location, length) for location, _, length in table.store.ranges)
    assert len(selected(table.warehouse(), made.pointer, "c9 >= 1990")) == 2


@pytest.mark.parametrize("kind", ["remote", "disk", "local"])
def test_damage_of_what_is_used_is_found(kind: str, tmp_path: Path) -> None:
    """Any byte of the tail and of the column, and a file that ends early; another column's bytes do not matter."""
    table = Table(6, f"file://{tmp_path}/w" if kind == "local" else "")
    ref = table.refs[3]
    store = table.store
    good = store.read(ref.location)
    tail = read_tail(good)
    assert tail is not None
    leaf = table.schema.leaf("c2")
    row = tail.directory["column"].tolist().index(leaf.id)
    start, length = (int(tail.directory[name][row]) for name in ("start", "length"))
    used = [*range(start, start + length, 61), *range(len(good) - ref.tail_bytes, len(good), 307), len(good) - 1]

    def ask(number: int) -> list[str]:
        disk = DiskCache(tmp_path / f"cache{number}", ROOMY) if kind == "disk" else None
        return selected(table.warehouse(disk), table.pointer, "c2 >= 1500")

    def put(data: bytes) -> None:
        store.delete(ref.location)
        store.put(ref.location, data)

    wanted = [f"memory://data/{at:04}.parquet" for at in range(150, 200)]
    assert ask(-1) == wanted
    for number, position in enumerate(used):
        put(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        for turn in range(2):
            with pytest.raises(HashMismatch):
                ask(number if turn else -2 - number)
    for number, data in enumerate((b"", good[:-1], good[: start + length - 1], good[1:])):
        put(data)
        with pytest.raises(HashMismatch):
            ask(10_000 + number)
    other = int(tail.directory["start"][row - 1])
    put(good[:other] + bytes([good[other] ^ 1]) + good[other + 1 :])
    assert ask(20_000) == wanted
    with pytest.raises(HashMismatch):
        selected(table.warehouse(), table.pointer, "c1 >= 1500")


def test_what_a_reference_says_of_a_tail_is_checked() -> None:
    """A wrong hash or size is an error, and so is one that is none."""
    table = Table(3)
    ref = table.refs[0]
    wrong: list[dict[str, Any]] = [{"tail_sha256": "00" * 32}, {"tail_bytes": ref.tail_bytes - 8}]
    for change in wrong:
        with pytest.raises(HashMismatch):
            Manifests(table.store, ROOMY).sidecar(msgspec.structs.replace(ref, **change))
    for change in ({"tail_sha256": ""}, {"tail_sha256": "zz" * 32}, {"tail_bytes": ref.size_bytes + 1}):
        with pytest.raises(ManifestError):
            Manifests(table.store, ROOMY).sidecar(msgspec.structs.replace(ref, **change))


def test_a_damaged_tail_of_bytes_without_a_hash_is_an_error() -> None:
    """Lengths beyond the object, and a part that is no batch or has other rows."""
    columns = schema(2)
    data = build_blocks(columns, wide(columns, 4), split_from_bytes=0)
    other = build_blocks(columns, wide(columns, 5), split_from_bytes=0)
    assert len(Sidecar(data)) == 4
    with pytest.raises(ManifestError):
        Sidecar(data[:-24] + bytes([255]) * 8 + data[-16:])
    tail, longer = read_tail(data), read_tail(other)
    assert tail is not None
    assert longer is not None
    first = longer.directory[0]
    part = other[int(first["start"]) : int(first["start"] + first["length"])]
    for content in (part, b"no batch" * 40):
        directory = tail.directory.copy()
        directory[0] = (first["column"], 64, len(content), np.void(hashlib.sha256(content).digest()[:16]))
        made = bytes(64) + content + bytes(tail.common) + directory.tobytes() + data[-24:]
        with pytest.raises(ManifestError):
            Sidecar(made).numbers(f"{int(first['column'])}.flags")


def test_the_disk_cache_keeps_parts(tmp_path: Path) -> None:
    """After a restart a prune of the same column asks the store for nothing; damaged copies are read again."""
    table = Table(20)
    wanted = selected(table.warehouse(DiskCache(tmp_path, ROOMY)), table.pointer, "c3 >= 300 AND c3 < 990")
    assert len(wanted) == 69
    table.store.clear()
    assert selected(table.warehouse(DiskCache(tmp_path, ROOMY)), table.pointer, "c3 >= 300 AND c3 < 990") == wanted
    assert (table.store.whole, table.store.ranges) == ([], [])
    files = [path for path in tmp_path.glob("v1/??/*") if path.is_file()]
    for path in files:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    heard = Heard()
    again = selected(table.warehouse(DiskCache(tmp_path, ROOMY, heard)), table.pointer, "c3 >= 300 AND c3 < 990")
    assert again == wanted
    assert heard.files["damaged"] == heard.files["miss"] > 0
    assert "hit" not in heard.files


def test_a_local_warehouse_is_mapped(tmp_path: Path) -> None:
    """Nothing is read, and what is hashed is what is used."""
    table = Table(20, f"file://{tmp_path}/w")
    assert len(selected(table.warehouse(), table.pointer, "c3 >= 300 AND c3 < 990")) == 69
    assert (table.store.whole, table.store.ranges) == ([], [])


def test_columns_of_many_segments_are_read_at_once() -> None:
    """All tails, and then the parts of all segments, are under way at the same time, or none would return."""
    table = Table(9)
    manifests = Manifests(table.store, ROOMY, fetch_threads=4)
    table.store.barrier = threading.Barrier(4)
    found = manifests.sidecars(table.refs, column_ids=[2])
    table.store.barrier = None
    assert len(table.store.ranges) == 8
    assert [int(each.numbers("2.min")[0]) for each in found] == [0, 500, 1_000, 1_500]
    assert len(table.store.ranges) == 8


def test_threads_that_ask_for_the_same_column_read_it_once() -> None:
    """One thread reads, the others wait for it."""
    table = Table(9)
    sidecar = Manifests(table.store, ROOMY).sidecar(table.refs[0])
    table.store.clear()
    event = table.store.barrier = threading.Event()
    ready = threading.Barrier(5)

    def ask(_: int) -> int:
        ready.wait(30)
        return int(sidecar.numbers("3.max")[1])

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(ask, number) for number in range(4)]
        ready.wait(30)
        event.set()
        assert {future.result() for future in futures} == {19}
    assert len(table.store.ranges) == 1


def test_an_answer_that_must_not_wait_does_not_read_columns() -> None:
    """A column that is not in memory is left to a thread that may read; afterwards the answer is immediate."""
    table = Table(9)
    warehouse = table.warehouse()
    requests = [PruneRequest(filter="c1 = 1505"), PruneRequest(filter="c2 = 1505"), PruneRequest(filter="c2 = 1505")]
    assert len(selected(warehouse, table.pointer, "c1 = 1505")) == 1
    table.store.clear()
    assert not isinstance(warehouse.find_now(table.pointer, requests[0]), Deferred)
    assert isinstance(warehouse.find_now(table.pointer, requests[1]), Deferred)
    sized = msgspec.structs.replace(requests[0], columns=["c7"])
    assert isinstance(warehouse.find_now(table.pointer, sized), Deferred)
    assert table.store.read_bytes == 0
    assert len(selected(warehouse, table.pointer, "c2 = 1505")) == 1
    table.store.clear()
    assert not isinstance(warehouse.find_now(table.pointer, requests[2]), Deferred)
    assert table.store.read_bytes == 0


def test_another_process_reads_the_columns_of_its_filter() -> None:
    """A test of segments elsewhere, as executors do it: the tails and one column of its segments."""
    table = Table(40)
    warehouse = table.warehouse()
    answer = warehouse.prune(table.pointer, PruneRequest(filter="c5 < 620", level="segment"))
    manifests = Manifests(table.store, ROOMY)
    segments = left_segments(manifests, table.snapshot, answer.segments or ())
    prune = SegmentPrune(head=head_of(table.snapshot), segments=segments, filter="c5 < 620")
    sent = msgspec.json.decode(msgspec.json.encode(prune), type=SegmentPrune)
    table.store.clear()
    parts = list(selected_blocks(Manifests(table.store, ROOMY), sent))
    assert sum(len(part.rows) for part in parts) == 62
    assert table.store.whole == []
    assert len(table.store.ranges) == 2 * len(segments) == 4
    assert table.store.read_bytes < 0.4 * sum(segment.sidecar.size_bytes for segment in segments)


def test_releases_that_do_not_know_parts_refuse_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshot and group require the feature; readers of blocks need not declare it."""
    table = Table(3)
    assert table.snapshot.required_features == (SIDECAR_PARTS,)
    assert table.snapshot.features == ()
    assert table.snapshot.groups[0].has_parts
    assert Table(3, split_from_bytes=1 << 62).snapshot.required_features is msgspec.UNSET
    monkeypatch.setattr(codec, "KNOWN_FEATURES", ())
    warehouse = table.warehouse()
    for read in (warehouse.snapshot, warehouse.head):
        with pytest.raises(UnsupportedFormat, match=SIDECAR_PARTS):
            read(table.pointer)
    with pytest.raises(UnsupportedFormat, match=SIDECAR_PARTS):
        warehouse.manifests.group(table.snapshot.groups[0])


def test_a_verification_finds_and_repairs_damage_of_any_part() -> None:
    """Also of a column that no query asked for; and a tail that is not the recorded one."""
    table = Table(5)
    assert not _codes(table)
    for ref in (table.refs[0], table.snapshot.groups[0].sidecar):
        good = table.store.read(ref.location)
        table.store.delete(ref.location)
        table.store.put(ref.location, good[:100] + bytes([good[100] ^ 1]) + good[101:])
        assert _codes(table) == ["sidecar_hash"]
        assert _codes(table, repair=True) == ["sidecar_hash"]
        assert table.store.read(ref.location) == good
        assert not _codes(table)


def _codes(table: Table, *, repair: bool = False) -> list[str]:
    options = Options(files=False, repair=repair)
    answer = Verification(table.store, table.root, table.snapshot.table_id, table.pointer, options).run()
    return [finding.code for finding in answer.findings]


def _tables() -> Iterator[tuple[Schema, list[Block]]]:
    yield golden.SCHEMA, golden.blocks()
    yield golden.FEATURE_SCHEMA, golden.feature_blocks()


@pytest.mark.parametrize(("columns", "blocks"), list(_tables()), ids=["plain", "features"])
def test_parts_hold_what_a_whole_sidecar_holds(columns: Schema, blocks: list[Block]) -> None:
    """Every array, type and member: bounds of every kind, missing ones, constants, deletes."""
    whole, split = build_blocks(columns, blocks), build_blocks(columns, blocks, split_from_bytes=0)
    assert tail_of(whole) == (0, "")
    assert tail_of(split)[0] > 0
    one, other = whole_batch(whole), whole_batch(split)
    assert other.schema.metadata == one.schema.metadata
    assert sorted(other.schema.names) == sorted(one.schema.names)
    for name in one.schema.names:
        assert other.schema.field(name).equals(one.schema.field(name), check_metadata=True)
        assert other.column(name).equals(one.column(name))
    for leaf in columns.leaves_with_statistics():
        assert Sidecar(split).null_counts(leaf.id, leaf.dtype).tolist() == (
            Sidecar(whole).null_counts(leaf.id, leaf.dtype).tolist()
        )


TYPES = {"i": "int64", "s": "string", "d": "decimal(38,4)", "f": "float64"}


@pytest.mark.parametrize("seed", range(30))
def test_answers_are_those_of_whole_sidecars_and_no_match_is_lost(seed: int) -> None:
    """Random rows and filters: against a table of whole sidecars, and against a scan of all rows."""
    random = Random(seed)
    columns = Schema.assign([Column(name=name, type=kind) for name, kind in TYPES.items()])
    rows: list[list[dict[str, int | None]]] = []
    blocks = []
    for number in range(random.randint(5, 30)):
        base = random.randint(-20, 60)
        values: list[dict[str, int | None]] = [
            {name: None if random.random() < 0.1 else base + random.randint(0, 9) for name in TYPES} for _ in range(4)
        ]
        rows.append(values)
        stats = {}
        for leaf in columns.leaves():
            known = [value for row in values if (value := row[leaf.name]) is not None]
            if random.random() < 0.1:
                continue
            ends = [_value(leaf.name, end) for end in (min(known), max(known))] if known else [None, None]
            low, high = (None if end is None else to_bound(leaf.dtype, end) for end in ends)
            stats[leaf.id] = ColumnStats(min=low, max=high, null_count=4 - len(known))
        blocks.append(Block(location=f"memory://d/{number:03}", row_count=4, file_size=9, col_stats=stats))
    tables = [_written(columns, blocks, split) for split in (0, 1 << 62)]
    for _ in range(12):
        name, other = random.choice(list(TYPES)), random.choice(list(TYPES))
        at, end = random.randint(-25, 75), random.randint(-25, 75)
        text = f"{name} < {_literal(name, at)} AND {other} > {_literal(other, end)}"
        if random.random() < 0.3:
            text = f"{name} = {_literal(name, at)} OR {other} IS NULL"
        found, expected = ([(b.location, b.verdict) for b in _answer(*table, text)] for table in tables)
        assert found == expected, text
        left = {location for location, _ in found}
        for block, values in zip(blocks, rows, strict=True):
            if any(_matches(text, row, name, other, at, end) for row in values):
                assert block.location in left, text


def _value(name: str, number: int) -> Any:
    """A number as a bound of a column; texts sort as the numbers do."""
    return {"s": f"v{number + 100:04}".encode(), "f": float(number), "d": number * 10_000}.get(name, number)


def _literal(name: str, number: int) -> str:
    return f"'v{number + 100:04}'" if name == "s" else str(number)


def _matches(text: str, row: dict[str, int | None], name: str, other: str, at: int, end: int) -> bool:
    one, two = row[name], row[other]
    if " OR " in text:
        return one == at or two is None
    return one is not None and two is not None and one < at and two > end


def _written(columns: Schema, blocks: list[Block], split_from_bytes: int) -> tuple[Warehouse, SnapshotPointer]:
    store, root, table_id = FsspecStore(), f"memory://{uuid.uuid4()}", str(uuid.uuid4())
    shape = Shape(segment_blocks=3, group_segments=2)
    warehouse = Warehouse(store, root, shape=shape, split_from_bytes=split_from_bytes)
    pointer = warehouse.create(table_id, columns, now_ms=1)
    refs = warehouse.prepare(table_id, columns, blocks)
    pointer = warehouse.commit(pointer, added=refs, now_ms=2).pointer
    return Warehouse(store, root), pointer


def _answer(warehouse: Warehouse, pointer: SnapshotPointer, text: str) -> Any:
    return warehouse.prune(pointer, PruneRequest(filter=text)).blocks
