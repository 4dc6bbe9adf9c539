"""Blocks in lists, as a writer brings them that has more than a request holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lamella.snapshot.commit.block_lists import packed
from lamella.snapshot.manifest import Block
from lamella.snapshot.storage import Store, TableLayout


def put_lists(store: Store, location: str, blocks: Sequence[Block | Any], *, each: int = 2) -> list[dict[str, Any]]:
    """Lists of ``each`` blocks in the scratch folder of the table at ``location``, as a body names them."""
    sent = []
    for start in range(0, len(blocks), each):
        encoded = [msgspec.json.encode(block) for block in blocks[start : start + each]]
        (one,) = packed(TableLayout(location), encoded, piece_bytes=1 << 30)
        store.put(one.sent.location, one.data)
        sent.append(msgspec.to_builtins(one.sent))
    return sent
