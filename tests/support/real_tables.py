"""Tables of real Parquet files in a folder, with the statistics that their values have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.expression import bind, read_filter
from lamella.snapshot.index.building import build_part
from lamella.snapshot.manifest import SnapshotPointer
from lamella.snapshot.parquet import read_footer, schema_of
from lamella.snapshot.parquet.ingest import ingest
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.warehouse.block_sample import BlockSample, refined
from lamella.snapshot.warehouse.finder import IndexAccess
from lamella.snapshot.warehouse.manifests import Manifests


class RealTable:
    """A table of its own warehouse; one file for each of ``blocks``. ``pointer``: its current snapshot.

    ``write``: makes a file of a block.
    """

    def __init__(
        self,
        folder: Path,
        blocks: Sequence[pa.Table],
        *,
        verify: bool = True,
        segment_blocks: int = 1000,
        properties: Mapping[str, str] | None = None,
        write: Callable[[pa.Table, Path], object] = pq.write_table,
    ) -> None:
        self.store = FsspecStore()
        name = str(uuid4())
        data = folder / name / "data"
        data.mkdir(parents=True)
        self.root = f"file://{folder / name / 'warehouse'}"
        self.warehouse = Warehouse(self.store, self.root, segment_blocks=segment_blocks)
        locations = []
        for number, block in enumerate(blocks):
            write(block, data / f"{number:05}.parquet")
            locations.append(f"file://{data / f'{number:05}.parquet'}")
        schema = schema_of(read_footer(self.store, locations[0]))
        table_id = str(uuid4())
        pointer = self.warehouse.create(table_id, schema, properties=properties, now_ms=1)
        taken, refused = ingest(self.store, locations, schema, workers=2, verify=verify)
        assert not refused
        refs = self.warehouse.prepare(table_id, schema, taken)
        self.pointer: SnapshotPointer = self.warehouse.commit(pointer, added=refs, now_ms=2).pointer

    def add_index(
        self,
        name: str,
        kind: str,
        expression: str,
        options: dict[str, object] | None = None,
        *,
        left_out: int = 0,
        segments: int | None = None,
    ) -> None:
        """Make an index, and fill it with all blocks (of the first ``segments``) but so many, which cannot be taken."""
        indexing = self.warehouse.indexing
        self.pointer = indexing.create(
            self.pointer, name=name, kind=kind, expression=expression, options=options, now_ms=3
        ).pointer
        snapshot = self.warehouse.snapshot(self.pointer)
        (index,) = (each for each in snapshot.skip_indexes if each.name == name)
        parts = []
        for number, ref in enumerate(list(self.warehouse.segments(self.pointer))[:segments]):
            built = build_part(self.store, index, snapshot, self.warehouse.segment(ref).blocks)
            assert built.part is not None
            left_out -= len(built.left_out)
            location = f"{self.root}/parts/{index.index_id}-{number}"
            self.store.put(location, built.part.data)
            parts.append((built.part.ref(location), built.part.keys))
        assert not left_out
        if not parts:
            return
        self.pointer = indexing.add_parts(self.pointer, index.index_id, parts, now_ms=4).pointer

    def skipped(self, text: str) -> float:
        """The part of all blocks that a filter skips, by bounds and indexes."""
        manifests = Manifests(self.store, 64 << 20)
        scene = BlockSample(manifests, self.pointer)
        node = bind(read_filter(text), scene.head.schema)
        codes = scene.tested(node)
        rows = codes.nonzero()[0]  # NONE is zero
        left, _ = refined(IndexAccess(manifests).indexes(scene.head), scene, node, scene.parts(rows, codes))
        return 1 - sum(len(part.rows) for part in left) / len(scene)
