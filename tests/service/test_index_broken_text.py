"""A refresh over HTTP, where a block has text that is not UTF-8."""

from __future__ import annotations

import pyarrow as pa

from lamella.client.http import Lamella
from support.broken_text import text_of
from support.service_api import World, parquet_bytes


def test_a_refresh_leaves_out_a_block_with_text_that_is_none(local: World) -> None:
    """The others are indexed, the answer names the block with the reason, and a prune keeps it."""
    table, folder = local.table(), local.folder()
    broken = pa.table({"a": [1, 2], "s": text_of([b"v7", b"\xff"])})
    local.put(f"{folder}/broken.parquet", parquet_bytes(broken))
    table.register(*local.numbers(folder, 4), f"{folder}/broken.parquet")
    with Lamella(local.url) as lake:
        handle = lake.table(f"{table.namespace}.{table.name}")
        for kind in ("bloom", "ngram", "value_set"):
            handle.create_index(kind, kind, "s")
            answer = handle.refresh_index(kind)
            assert answer.indexed == 4
            assert [left.reason for left in answer.left_out] == ["s has text that is not UTF-8"]
            assert answer.left_out[0].location.endswith("/broken.parquet")
    selected = table.prune("s = 'v7' AND a < 5")["blocks"]
    assert any(block["location"].endswith("/broken.parquet") for block in selected)
