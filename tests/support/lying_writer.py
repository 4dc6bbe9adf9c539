"""A small table of real files, and a writer that lies about it: manifests are changed, and their hashes with them."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot import commit as commits
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.manifest import (
    Block,
    Group,
    GroupRef,
    ObjectRef,
    Segment,
    SegmentRef,
    Snapshot,
    SnapshotPointer,
    content_hash,
    decode_group,
    encode,
)
from lamella.snapshot.parquet import ingest
from lamella.snapshot.schema import Column, Schema
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.verify import Options, Recorded, Verification
from lamella.snapshot.verify.sidecars import group_sidecar, segment_sidecar, snapshot_sidecar
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import VerifyAnswer

TABLE = "t"
ROWS = 10
SCHEMA = Schema.assign(
    [
        Column(name="a", type="int64"),
        Column(name="s", type="string"),
        Column(name="x", type="float64"),
        Column(name="n", type="int64"),
    ]
)
_NUMBERS = itertools.count()


def columns(index: int) -> dict[str, pa.Array]:
    """The values of block number ``index``: ``a`` and ``s`` count on, ``x`` has numbers, ``n`` every other row."""
    values = list(range(index * ROWS, (index + 1) * ROWS))
    return {
        "a": pa.array(values, pa.int64()),
        "s": pa.array([f"v{value:04}" for value in values]),
        "x": pa.array([value / 2 for value in values]),
        "n": pa.array([None if value % 2 else value for value in values], pa.int64()),
    }


def parquet(values: dict[str, pa.Array], **options: Any) -> bytes:
    """A Parquet file."""
    sink = io.BytesIO()
    options.setdefault("compression", "none")
    options.setdefault("use_dictionary", False)
    pq.write_table(pa.table(values), sink, write_page_index=True, max_rows_per_page=3, **options)
    return sink.getvalue()


@dataclass
class LyingWriter:
    """Six blocks of ten rows, two in a segment. ``scanned``: statistics come from the values, not the footers.

    ``grouped``: the segments are in groups.
    """

    scanned: bool = False
    grouped: bool = False
    pages: bool = False
    root: str = field(default_factory=lambda: f"memory://lies{next(_NUMBERS)}")
    pointer: SnapshotPointer = field(init=False)
    history: list[Recorded] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = FsspecStore()
        shape = commits.Shape(segment_blocks=2, group_segments=2 if self.grouped else 1_000)
        self.warehouse = Warehouse(self.store, self.root, shape=shape, prepare_pages=self.pages)
        self.pointer = self.warehouse.create(TABLE, SCHEMA, now_ms=1_000)
        self.record()
        for first in (0, 2, 4):
            blocks = [self.block(index) for index in (first, first + 1)]
            refs = self.warehouse.prepare(TABLE, SCHEMA, blocks)
            self.pointer = self.warehouse.commit(self.pointer, added=refs, now_ms=2_000).pointer
            self.record()

    def block(self, index: int, **options: Any) -> Block:
        """Write a block's file, and take it in."""
        location = self.put(f"{index}.parquet", parquet(columns(index), **options))
        blocks, refused = ingest(self.store, [location], SCHEMA, verify=self.scanned)
        assert not refused
        return blocks[0]

    def put(self, name: str, data: bytes) -> str:
        """Put a file there, whatever was there before."""
        location = f"{self.root}/data/{name}"
        self.replace(location, data)
        return location

    def replace(self, location: str, data: bytes) -> None:
        """Other bytes for an object."""
        self.store.delete(location)
        self.store.put(location, data)

    def record(self) -> None:
        """Let the catalog know the snapshot."""
        snapshot = self.snapshot
        self.history.append(
            Recorded(
                seq=len(self.history) + 1,
                pointer=self.pointer,
                prev_snapshot_id=snapshot.prev_snapshot_id,
                operation=snapshot.operation,
                row_count=snapshot.summary.row_count,
                block_count=snapshot.summary.block_count,
                segment_count=snapshot.segment_count,
                file_size_bytes=snapshot.summary.compressed_byte_size,
            )
        )

    def read_history(self, below: int, limit: int) -> Sequence[Recorded]:
        """What the catalog has."""
        return [record for record in reversed(self.history) if record.seq < below][:limit]

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot as it stands, read afresh."""
        return Warehouse(self.store, self.root).snapshot(self.pointer)

    @property
    def refs(self) -> list[SegmentRef]:
        """Its segments."""
        return list(Warehouse(self.store, self.root).segments(self.pointer))

    def segment(self, number: int = 0) -> Segment:
        """One of its segments."""
        return self.warehouse.segment(self.refs[number])

    def flip(self, location: str, at: int) -> None:
        """Change one bit of an object."""
        data = bytearray(self.store.read(location))
        data[at] ^= 1
        self.replace(location, bytes(data))

    def lie(
        self,
        *,
        number: int = 0,
        block: Callable[[Block], Block] | None = None,
        segment: Callable[[Segment], Segment] | None = None,
        ref: Callable[[SegmentRef], SegmentRef] | None = None,
        snapshot: Callable[[Snapshot], Snapshot] | None = None,
        sidecar: Callable[[bytes], bytes] | None = None,
        summarize: bool = True,
    ) -> None:
        """Write segment ``number`` again with its first block changed, what is above it with fitting hashes.

        ``block``, ``segment``, ``ref``, ``snapshot`` and ``sidecar`` change what is written, in that order.
        ``summarize``: summaries follow from the changed block.
        """
        whole, old = self.snapshot, self.refs[number]
        changed = self.segment(number)
        blocks = changed.blocks if block is None else (block(changed.blocks[0]), *changed.blocks[1:])
        changed = msgspec.structs.replace(changed, blocks=blocks)
        if block is not None and summarize:
            changed = msgspec.structs.replace(changed, summary=commits.summarize_blocks(SCHEMA, blocks))
        if segment is not None:
            changed = segment(changed)
        data = _sidecar(whole, changed, self.store.read(old.sidecar.location))
        new = msgspec.structs.replace(
            old,
            summary=changed.summary,
            manifest=self.write(old.manifest.location, encode(changed)),
            sidecar=self.write(old.sidecar.location, data if sidecar is None else sidecar(data)),
        )
        if ref is not None:
            new = ref(new)
        refs = [new if each.segment_id == old.segment_id else each for each in whole.segments]
        whole = msgspec.structs.replace(whole, segments=tuple(refs))
        if block is not None and summarize:
            summary = commits.summarize(SCHEMA, [each.summary for each in refs])
            whole = msgspec.structs.replace(whole, summary=summary)
        self.publish(whole if snapshot is None else snapshot(whole))

    def lie_of_group(
        self, group: Callable[[Group], Group] | None = None, ref: Callable[[GroupRef], GroupRef] | None = None
    ) -> None:
        """Write the first group again, and what is above it."""
        whole = self.snapshot
        old = whole.groups[0]
        changed = decode_group(self.store.read(old.manifest.location))
        if group is not None:
            changed = group(changed)
        new = msgspec.structs.replace(
            old,
            manifest=self.write(old.manifest.location, encode(changed)),
            sidecar=self.write(old.sidecar.location, group_sidecar(whole, changed)),
        )
        new = new if ref is None else ref(new)
        self.publish(msgspec.structs.replace(whole, groups=(new, *whole.groups[1:])))

    def publish(self, snapshot: Snapshot) -> None:
        """Write a snapshot in the place of the one there is, with its sidecar, and point at it."""
        data = snapshot_sidecar(snapshot)
        sidecar = self.write(self.pointer.sidecar.location, data)
        snapshot = msgspec.structs.replace(snapshot, sidecar=sidecar)
        manifest = self.write(self.pointer.manifest.location, encode(snapshot))
        self.pointer = msgspec.structs.replace(self.pointer, manifest=manifest, sidecar=sidecar)
        self.history[-1] = msgspec.structs.replace(
            self.history[-1],
            pointer=self.pointer,
            row_count=snapshot.summary.row_count,
            block_count=snapshot.summary.block_count,
            segment_count=snapshot.segment_count,
            file_size_bytes=snapshot.summary.compressed_byte_size,
        )

    def write(self, location: str, data: bytes) -> ObjectRef:
        """Put an object, and what refers to it."""
        self.replace(location, data)
        return ObjectRef(location=location, size_bytes=len(data), sha256=content_hash(data))

    def verify(self, options: Options | None = None) -> VerifyAnswer:
        """Verify the table, its history too."""
        options = options if options is not None else Options()
        options = msgspec.structs.replace(options, history=(self.history[-1].seq, 100))
        made = Verification(self.store, self.root, TABLE, self.pointer, options, self.read_history)
        return made.run()


def _sidecar(snapshot: Snapshot, segment: Segment, otherwise: bytes) -> bytes:
    """The sidecar that follows from a segment; where none does, the one that there was."""
    try:
        return segment_sidecar(snapshot, segment)
    except LamellaError:
        return otherwise
