"""What one Spark task does for an index: build the part of some blocks, write it to the table's folder, report it.

Runs in Spark's Python workers, through ``mapInArrow``. Only parts that a successful attempt reports are committed, so a
retry or a speculative twin leaves nothing but unreferenced objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from lamella.snapshot.ids import Ids
from lamella.snapshot.index.building import Source, build_part
from lamella.snapshot.layout import FsspecStore, TableLayout
from lamella.snapshot.manifest import Block, ObjectRef, TableIndex, decode_segment
from lamella.snapshot.manifest.block_key import bytes_of
from lamella.snapshot.schema import Schema
from lamella.snapshot.wire import LeftOutBlock, PartSent

#: The columns of what a task reports, in Spark's spelling.
REPORT: Final = "report string"


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that get a part together: the manifests of their segments, and the rows among all blocks of these."""

    manifests: tuple[ObjectRef, ...]
    rows: tuple[int, ...]


class PieceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a piece; ``part`` is None when no block of it could be taken."""

    part: PartSent | None
    indexed: int
    row_count: int
    left_out: tuple[LeftOutBlock, ...] = ()


class _History(msgspec.Struct, frozen=True):
    """The schemas of a table."""

    history: tuple[Schema, ...]


class IndexPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A function from numbers of pieces to one row each: a :class:`PieceReport` as JSON.

    ``location``: the table's folder. ``read_threads``: files that a task reads at once.
    """

    location: str
    index: TableIndex
    history: tuple[Schema, ...]
    pieces: tuple[Piece, ...]
    source: Source
    read_threads: int
    storage_options: dict[str, dict[str, Any]] = {}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = FsspecStore(self.storage_options)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                report = msgspec.json.encode(self._build(store, self.pieces[number])).decode()
                yield pa.record_batch([pa.array([report])], names=["report"])

    def _build(self, store: FsspecStore, piece: Piece) -> PieceReport:
        blocks: list[Block] = []
        for manifest in piece.manifests:
            data = store.read(manifest.location)
            blocks += decode_segment(data, sha256=manifest.sha256, location=manifest.location).blocks
        built = build_part(
            store,
            self.index,
            _History(self.history),
            [blocks[row] for row in piece.rows],
            source=self.source,
            workers=self.read_threads,
        )
        left_out = tuple(LeftOutBlock(location=each.location, reason=each.reason) for each in built.left_out)
        if built.part is None:
            return PieceReport(part=None, indexed=0, row_count=0, left_out=left_out)
        ref = built.part.ref(TableLayout(self.location).index_part(Ids().new()))
        store.put(ref.location, built.part.data)
        sent = PartSent(
            location=ref.location,
            size_bytes=ref.size_bytes,
            tail_bytes=ref.tail_bytes,
            tail_sha256=ref.tail_sha256,
            keys=bytes_of(built.part.keys),
        )
        return PieceReport(part=sent, indexed=len(built.part.keys), row_count=built.part.row_count, left_out=left_out)
