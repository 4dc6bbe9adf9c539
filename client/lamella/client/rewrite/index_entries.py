"""What the table's skip indexes are to know of new blocks, built from the rows while they are at hand.

Each task puts a small part into scratch space; whoever commits puts them together (:func:`joined_parts`), so that a
query opens one part for many blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from lamella.client.rewrite.runs import Scratch
from lamella.client.rewrite.target import Target
from lamella.snapshot.expression.bound import leaves_in
from lamella.snapshot.ids import Ids
from lamella.snapshot.index.building import PART_BLOCKS
from lamella.snapshot.index.definition import term_in
from lamella.snapshot.index.kind import kind_named
from lamella.snapshot.index.part import Part, PartRef, pack, ref_of
from lamella.snapshot.layout import Store, TableLayout
from lamella.snapshot.manifest import Block, TableIndex
from lamella.snapshot.manifest.block_key import block_keys
from lamella.snapshot.rows.conform import conform_leaf
from lamella.snapshot.rows.term import RowTerms
from lamella.snapshot.schema import Schema
from lamella.snapshot.stats.measure import leaf_values
from lamella.snapshot.wire import PartSent

#: Bytes of small parts that are put together at a time; it is done in memory.
_JOINED_BYTES: Final = 256 << 20


class ScratchPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part in scratch space; ``keys`` are its blocks', 16 bytes each."""

    index_id: str
    ref: PartRef
    keys: bytes


class _History(msgspec.Struct, frozen=True):
    history: tuple[Schema, ...]


class IndexEntries:
    """One index's entries for the blocks of one task."""

    def __init__(self, index: TableIndex, target: Target) -> None:
        self._index = index
        self._term = term_in(index, _History(target.history))
        self._builder = None
        if self._term is not None:  # else a column of it is gone, and the index serves nobody
            self._builder = kind_named(index.kind).builder(self._term.dtype, index.options)
        self._done: list[Block] = []

    def add(self, block: Block, rows: pa.Table) -> None:
        """The rows of a block that was written; one for which the expression fails is left out, and always read."""
        if self._term is None or self._builder is None:
            return
        columns = {
            leaf.id: conform_leaf(leaf_values(rows, leaf).combine_chunks(), leaf.dtype, leaf.name)
            for leaf in leaves_in(self._term)
        }
        vector = RowTerms(columns, rows.num_rows).vector(self._term)
        if vector.failed is not None and vector.failed.any():
            return
        self._builder.add(vector)
        self._builder.end_block()
        self._done.append(block)

    def part(self, store: Store, scratch: Scratch, ids: Ids) -> ScratchPart | None:
        """Put what there is into scratch space."""
        if self._term is None or self._builder is None or not self._done:
            return None
        index = self._index
        sections, facts = self._builder.sections()
        data, tail = pack(
            index.kind, str(self._term.dtype), len(self._done), sections, options=index.options, facts=facts
        )
        ref = ref_of(scratch.location(ids, "part"), data, tail, len(self._done))
        store.put(ref.location, data)
        return ScratchPart(index_id=index.index_id, ref=ref, keys=_bytes(block_keys(self._done)))


def joined_parts(
    store: Store, layout: TableLayout, ids: Ids, parts: Iterable[ScratchPart]
) -> dict[str, list[PartSent]]:
    """Parts in the table's folder that have what those in scratch space have, by index: few large ones."""
    found: dict[str, list[PartSent]] = {}
    by_index: dict[str, list[ScratchPart]] = {}
    for part in parts:
        by_index.setdefault(part.index_id, []).append(part)
    for index_id, mine in by_index.items():
        found[index_id] = [_joined(store, layout, ids, some) for some in _batches(mine)]
    return found


def _batches(parts: Sequence[ScratchPart]) -> Iterator[list[ScratchPart]]:
    some: list[ScratchPart] = []
    blocks = size_bytes = 0
    for part in parts:
        full = blocks + part.ref.block_count > PART_BLOCKS or size_bytes + part.ref.size_bytes > _JOINED_BYTES
        if some and full:
            yield some
            some, blocks, size_bytes = [], 0, 0
        some.append(part)
        blocks += part.ref.block_count
        size_bytes += part.ref.size_bytes
    if some:
        yield some


def _joined(store: Store, layout: TableLayout, ids: Ids, parts: Sequence[ScratchPart]) -> PartSent:
    opened = [(_open(store, part.ref), np.arange(part.ref.block_count, dtype=np.int64)) for part in parts]
    header = opened[0][0].header
    sections, facts = kind_named(header.kind).taken(opened)
    count = sum(part.ref.block_count for part in parts)
    data, tail = pack(header.kind, header.dtype, count, sections, options=header.options, facts=facts)
    ref = ref_of(layout.index_part(ids.new()), data, tail, count)
    store.put(ref.location, data)
    return PartSent(
        location=ref.location,
        size_bytes=ref.size_bytes,
        tail_bytes=ref.tail_bytes,
        tail_sha256=ref.tail_sha256,
        keys=b"".join(part.keys for part in parts),
    )


def _open(store: Store, ref: PartRef) -> Part:
    data = store.read(ref.location)
    return Part(ref, lambda ranges: [data[start : start + length] for start, length in ranges])


def _bytes(keys: Any) -> bytes:
    return np.ascontiguousarray(keys).astype("<u8").tobytes()
