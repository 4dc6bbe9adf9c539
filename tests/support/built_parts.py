"""Blocks and parts of their indexes as a job makes them: before any commit knows the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lamella.snapshot.ids import Ids
from lamella.snapshot.index.building import build_part
from lamella.snapshot.manifest import Block, Snapshot
from lamella.snapshot.manifest.block_key import bytes_of
from lamella.snapshot.parquet import block_of, read_footer
from lamella.snapshot.storage import Store, TableLayout
from lamella.snapshot.warehouse.indexing import index_named
from lamella.snapshot.wire import IndexPartsSent, PartSent


def blocks_of(store: Store, table: Snapshot, files: Sequence[str]) -> list[Block]:
    """The files as blocks with statistics of their footers."""
    blocks = [block_of(read_footer(store, file), table.schema) for file in files]
    return [msgspec.structs.replace(each, schema_id=table.schema.schema_id) for each in blocks]


def sent_blocks(blocks: Sequence[Block]) -> list[Any]:
    """Blocks as a body has them."""
    return [msgspec.json.decode(msgspec.json.encode(block)) for block in blocks]


def built(
    store: Store, location: str, table: Snapshot, name: str, blocks: Sequence[Block], *, by_keys: bool = False
) -> IndexPartsSent:
    """A part about these blocks, written to the folder of the table at ``location``.

    ``by_keys``: it says which blocks they are by their keys, and not by their places in the commit.
    """
    index = index_named(table.skip_indexes, name)
    part = build_part(store, index, table, blocks).part
    assert part is not None
    ref = part.ref(TableLayout(location).index_part(Ids().new()))
    store.put(ref.location, part.data)
    sent = PartSent(
        location=ref.location,
        size_bytes=ref.size_bytes,
        tail_bytes=ref.tail_bytes,
        tail_sha256=ref.tail_sha256,
        keys=bytes_of(part.keys) if by_keys else b"",
        blocks=() if by_keys else tuple(range(len(blocks))),
    )
    return IndexPartsSent(name=name, index_id=index.index_id, parts=(sent,))


def sent_parts(parts: Sequence[IndexPartsSent]) -> list[Any]:
    """Parts as a body has them."""
    return list(msgspec.json.decode(msgspec.json.encode(parts)))
